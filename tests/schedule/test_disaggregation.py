"""Stage times, smallest pools against trying every size, ratios and energy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import ProvenInfeasible, UsageError
from moeplan.hardware.gpu import Gpu
from moeplan.hardware.nearmem import Core, Die, Unit
from moeplan.schedule.decode_step import DecodeStep, decode_step
from moeplan.schedule.disaggregation import (
    DIE_W,
    H20_W,
    balanced_ratios,
    check_capacity,
    equal_compute_gpus,
    ffn_s,
    pool_energy,
    smallest_pools,
    stages,
)
from moeplan.workload.attention import AttentionWork
from moeplan.workload.model import load_model

# A die of four units: 400 bytes, 40 bytes/s, 160 FLOP/s.
UNIT = Unit(columns=10, column_bytes=10, column_s=1.0, tile_tokens=2, flop_per_s=40.0)
DIE = Die(
    core=Core(unit=UNIT, side=2, link_bytes_per_s=1.0, multicast_bytes_per_s=1.0),
    rows=2,
    cols=2,
    link_bytes_per_s=1.0,
)
GPU = Gpu(
    memory_bandwidth_bytes_per_s=10.0,
    memory_bytes=1000.0,
    peak_flop_per_s={"fp8": 320.0},
    nvlink_bytes_per_s=1.0,
    memory_efficiency=1.0,
    compute_efficiency=1.0,
    kernel_s=0.0,
)


def toy(**values) -> DecodeStep:
    """Two layers, each reading 50 bytes of weights and 150 of cache; experts of 700 bytes."""
    layer = AttentionWork(weight_bytes=50.0, cache_read_bytes=150.0)
    usual = {
        "batch": 4,
        "attention": (layer, layer),
        "ffn_bytes": 640.0,
        "ffn_flop": 100.0,
        "resident_bytes": 700.0,
        "attention_resident_bytes": 2500.0,
        "hidden_size": 8,
    }
    return DecodeStep(**(usual | values))


def test_stages_by_hand() -> None:
    # Attention: 400 bytes over 2 x 10 bytes/s. Two dies read 640 bytes at 80 bytes/s; two GPUs at 20.
    found = stages(toy(), DIE, 2, GPU, 2.0)
    assert (found.attention_s, found.ffn_s, found.ffn_gpu_s) == (20.0, 8.0, 32.0)
    assert (found.tpot_s, found.homogeneous_s) == (20.0, 52.0)
    assert found.gain == pytest.approx(2.6)
    assert found.per_token(found.tpot_s) == 5.0
    # Where computing takes longer than reading, it decides: 3200 FLOP at 320 FLOP/s.
    assert stages(toy(ffn_flop=3200.0), DIE, 2, GPU, 2.0).ffn_s == 10.0
    # Kernels cost their constant however many GPUs there are: three a layer, and one for the experts.
    slow = replace(GPU, kernel_s=1.0)
    found = stages(toy(), DIE, 2, slow, 2.0)
    assert (found.attention_s, found.ffn_gpu_s) == (26.0, 34.0)


def test_a_pool_too_small_says_how_many_dies_it_takes() -> None:
    check_capacity(800.0, DIE, 2)
    with pytest.raises(ProvenInfeasible, match=r"(?s)1 dies hold .* at least 2 dies"):
        stages(toy(), DIE, 1, GPU, 1.0)
    with pytest.raises(ProvenInfeasible, match="at least 3 dies"):
        check_capacity(801.0, DIE, 2)
    with pytest.raises(UsageError, match="cannot run on 0"):
        stages(toy(), DIE, 2, GPU, 0.0)


def tried(step: DecodeStep, gpu: Gpu, target_s: float) -> tuple[int, int, int]:
    """The smallest pools by trying every size up from one device."""

    def first(fits, time_s) -> int:
        return next(n for n in range(1, 10_000) if fits(n) and time_s(n) <= target_s)

    attention, experts = step.attention_resident_bytes, step.resident_bytes
    return (
        first(lambda n: n * 400.0 >= experts, lambda n: ffn_s(step, DIE, n)),
        first(lambda n: n * 1000.0 >= attention, lambda n: step.attention_s(gpu, n)),
        first(
            lambda n: n * 1000.0 >= attention + experts,
            lambda n: step.attention_s(gpu, n) + step.ffn_gpu_s(gpu, n),
        ),
    )


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    st.floats(0.1, 60.0),
    st.floats(0.0, 5000.0),
    st.floats(0.0, 5000.0),
    st.floats(1.0, 5000.0),
    st.floats(1.0, 9000.0),
)
def test_smallest_pools_equal_trying_all(target, ffn_bytes, flop, experts, attention) -> None:
    step = toy(ffn_bytes=ffn_bytes, ffn_flop=flop, resident_bytes=experts, attention_resident_bytes=attention)
    found = smallest_pools(step, DIE, GPU, target)
    sizes = (found.dies.devices, found.gpus.devices, found.homogeneous.devices)
    assert sizes == tried(step, GPU, target)
    assert found.tpot_s <= target
    for size in (found.dies, found.gpus, found.homogeneous):
        assert size.seconds <= target


def test_limits_of_smallest_pools() -> None:
    # 700 bytes need two dies, which take 8 s; 2500 bytes need three GPUs, which take 13.3 s.
    loose = smallest_pools(toy(), DIE, GPU, 20.0)
    assert (loose.dies.devices, loose.dies.limit) == (2, "memory")
    assert (loose.gpus.devices, loose.gpus.limit) == (3, "memory")
    # 4 s: four dies read 640 bytes in 4 s exactly; 400 bytes take ten GPUs.
    tight = smallest_pools(toy(), DIE, GPU, 4.0)
    assert (tight.dies.devices, tight.dies.limit, tight.dies.seconds) == (4, "time", 4.0)
    assert (tight.gpus.devices, tight.gpus.limit) == (10, "time")
    assert tight.homogeneous.devices == 26  # (400 + 640) / 10 / 4
    assert tight.tpot_s == 4.0


def test_targets_out_of_reach() -> None:
    with pytest.raises(ProvenInfeasible, match="however many"):
        smallest_pools(toy(), DIE, replace(GPU, kernel_s=1.0), 6.0)  # six kernels take 6 s already
    for target in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="cannot be aimed at"):
            smallest_pools(toy(), DIE, GPU, target)


def test_balanced_ratio_makes_both_stages_equal() -> None:
    model = load_model("qwen3.5-35b-a3b")
    die = replace(DIE, core=replace(DIE.core, unit=replace(UNIT, columns=1 << 20, column_s=1e-9)))
    gpu = replace(GPU, kernel_s=1e-4)
    found = balanced_ratios(model, die, 30, gpu, unions={8: 50.0, 64: 160.0}, contexts=(512, 4096))
    assert [(row.batch, row.context) for row in found] == [(8, 512), (8, 4096), (64, 512), (64, 4096)]
    for row in found:
        union = {8: 50.0, 64: 160.0}[row.batch]
        step = decode_step(model, batch=row.batch, context=row.context, union=union)
        assert step.attention_s(gpu, row.gpus) == pytest.approx(ffn_s(step, die, 30))
        assert row.ratio == pytest.approx(row.gpus / 30)
    # Where kernels alone take as long as the experts, no number of GPUs is enough.
    (never,) = balanced_ratios(model, die, 30, replace(gpu, kernel_s=1e9), unions={8: 50.0}, contexts=(512,))
    assert never.gpus == float("inf")


def test_energy_by_hand() -> None:
    # 640 bytes of which 40 are the router's, four requests: 150 bytes each at 0.2 and 4 pJ; 25 FLOP at 0.4;
    # 80 / 4 bytes at 0.5 pJ per bit. Two dies for 8 s / 4 and three GPUs for 21.3 s / 4.
    found = pool_energy(toy(), DIE, 2, GPU, 3.0, router_bytes=40.0, link_bytes=80.0)
    assert found.weights_bytes == 150.0
    assert found.weights_j == pytest.approx(30e-12)
    assert found.weights_hbm_j == pytest.approx(600e-12)
    assert found.compute_j == pytest.approx(10e-12)
    assert found.link_j == pytest.approx(80e-12)
    assert found.dynamic_j == pytest.approx(120e-12)
    assert (found.dies_w, found.gpus_w) == (2 * DIE_W, 3 * H20_W)
    assert pytest.approx(46.6) == DIE_W
    assert found.dies_j == pytest.approx(2 * DIE_W * 2.0)
    assert found.gpus_j == pytest.approx(3 * H20_W * 640 / 30 / 4)


def test_equal_compute() -> None:
    assert equal_compute_gpus(DIE, 6, GPU) == 3.0  # 6 x 160 / 320
