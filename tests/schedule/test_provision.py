"""A whole pool: what is taken from the platform, what is counted, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moeplan.common.errors import BadInput, ProvenInfeasible
from moeplan.hardware.platform import load_platform
from moeplan.schedule.provision import check_pool, even_cores, provision, union_of
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

QWEN = load_model("qwen3.5-35b-a3b")
POOL = load_platform("rexpert-pool-35b")


def load_of(steps: int = 2, batch: int = 16, layers: int = 2) -> Load:
    rng = np.random.default_rng(3)
    experts = np.argsort(rng.random((steps, batch, layers, 256)), axis=-1)[..., :8]
    return Load(experts, tuple(range(layers)), 256, QWEN.name, batch, False, "drawn")


def test_sizes_come_from_the_platform_or_from_the_model() -> None:
    def sizes(platform, **given):
        found = provision(QWEN, platform, batch=8, context=1024, union=50.0, **given)
        return found.dies, found.gpus

    assert sizes(POOL) == (25, 10.81)
    # Other dies: as many GPUs as have their peak, 74 x 128 / 296.
    assert sizes(POOL, dies=74) == (74, pytest.approx(32.0))
    assert sizes(POOL, dies=74, gpus=3.5) == (74, 3.5)
    assert POOL.nearmem is not None
    left_open = replace(POOL, nearmem=replace(POOL.nearmem, dies=0, gpus=0.0))
    assert sizes(left_open) == (25, pytest.approx(25 * 128 / 296))


def test_a_step_goes_through_its_layers_one_after_the_other() -> None:
    found = provision(QWEN, POOL, batch=64, context=4096, union=168.0)
    # 40 layers: an expert's 512 inner elements are 4 slices of 128, of 3 x 2048 columns of 2.5 ns each.
    assert found.wave_s - found.stages.attention_s == pytest.approx(40 * 4 * 3 * 2048 * 2.5e-9)
    assert found.wave_s > found.stages.tpot_s


def test_what_a_pool_holds() -> None:
    found = provision(QWEN, POOL, batch=64, context=32768, union=168.6, target_s=2e-3)
    # Bytes: 30.1 / 1.25 GiB. Units: one per expert and layer, shared ones included: 40 x 257 / 320.
    assert (found.least_dies, found.unit_dies) == (25, 33)
    # 40 layers x 1024 bytes x 32768 x 64 of cache and 40 x 18.9 MB of weights fit into one H20.
    assert found.least_gpus == 1
    assert found.pools is not None
    assert found.pools.tpot_s <= 2e-3
    assert found.demands.routed == ()
    assert found.stages.ffn_s == found.checkpoint.ffn_s
    assert found.checkpoint.attention_s < found.stages.attention_s  # 30 of 40 layers keep states


def test_levels_are_counted_on_steps() -> None:
    load = load_of()
    found = provision(QWEN, POOL, batch=16, context=1024, union=union_of(load), load=load)
    levels = {demand.level: demand for demand in found.demands.all}
    assert list(levels) == [
        "unit I/O",
        "package D2D, per die",
        "all D2D, per die",
        "node residual",
        "die NoC, busiest link",
        "core mesh, p99",
        "core mesh, peak",
    ]
    # Ep-first no link carries more than an activation and a sum, 3 x 2048 bytes, per token; every
    # token has an expert away from its port, so that the busiest of 62 links carries at least the mean.
    most = 16 * 3 * 2048 / 61.44e-6
    assert most / 62 < levels["die NoC, busiest link"].bytes_per_s < most
    # Even routing: 16 x 8 tokens over 256 experts, one tile each; nothing is multicast.
    assert levels["core mesh, peak"].bytes_per_s == 0.0


def test_union_is_what_steps_activate() -> None:
    load = load_of(steps=3)
    seen = [len(np.unique(load.experts[s, :, layer])) for s in range(3) for layer in range(2)]
    assert union_of(load) == pytest.approx(np.mean(seen))
    assert union_of(load, load.batch) == pytest.approx(np.mean(seen))
    # One token activates its eight experts.
    assert union_of(load, 1) == pytest.approx(8.0)


def test_ratios_over_batches_and_contexts() -> None:
    load = load_of()
    found = provision(QWEN, POOL, batch=16, context=1, union=union_of(load), load=load, contexts=(100, 200))
    ratios = {(row.batch, row.context): row for row in found.ratios}
    assert list(ratios) == [(1, 100), (1, 200), (8, 100), (8, 200), (16, 100), (16, 200)]
    # A balanced pool serves both stages in the same time.
    even = provision(
        QWEN, POOL, batch=16, context=200, union=union_of(load), gpus=ratios[16, 200].gpus
    ).stages
    assert even.attention_s == pytest.approx(even.ffn_s)
    alone = provision(QWEN, POOL, batch=16, context=1, union=50.0, contexts=(100,))
    assert [row.batch for row in alone.ratios] == [16]


def test_experts_fill_cores_evenly() -> None:
    assert even_cores(6, 1, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert even_cores(8, 2, 2).tolist() == [0, 0, 1, 1] * 2
    # Each of two dies has 256 experts on 20 cores: twelve or thirteen on each.
    both = even_cores(512, 2, 20)
    assert set(np.bincount(both[:256])) == set(np.bincount(both[256:])) == {12, 13}
    assert even_cores(2, 1, 4).tolist() == [0, 2]


def test_what_cannot_be_is_refused() -> None:
    how = {"batch": 8, "context": 1024, "union": 50.0}
    with pytest.raises(BadInput, match="no near-memory dies"):
        provision(QWEN, load_platform("h20"), **how)
    with pytest.raises(BadInput, match="no GPU for attention"):
        provision(QWEN, load_platform("rexpert-die"), **how)
    with pytest.raises(ProvenInfeasible, match="at least 543 dies"):
        provision(load_model("glm-5.2"), POOL, **how)
    with pytest.raises(ProvenInfeasible, match="at least 25 dies"):
        check_pool(QWEN, POOL, 24)
    check_pool(QWEN, POOL)
