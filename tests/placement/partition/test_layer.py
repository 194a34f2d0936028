"""Costs of real layers worked out by hand, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition import partition_layer
from moeplan.placement.partition.costs import attention_on_pim_s, gpu_costs
from moeplan.workload.model import load_model

REFRESH = 1.0 - 350 / 3900


@pytest.fixture(scope="module")
def platform():
    return load_platform("b200-hbmpim")


def test_gpu_costs(platform):
    costs = gpu_costs(load_model("gpt-oss-120b"), platform, 0)
    bandwidth, peak = 8e12 * 0.85, 2250e12 * 0.8
    assert costs.expert_s == pytest.approx(3 * 2880 * 2880 * 0.53125 / bandwidth, rel=1e-12)
    assert costs.token_s == pytest.approx(2 * 2880 * 2 / bandwidth, rel=1e-12)
    assert costs.flop_s == pytest.approx(2 * 3 * 2880 * 2880 / peak, rel=1e-12)
    # Router 2880 x 128; query, key and value 2880 x (64 + 2 * 8) * 64, output 4096 x 2880; all in 16 bits.
    params = 2880 * 128 + 2880 * 80 * 64 + 4096 * 2880
    assert costs.work.memory_s == pytest.approx(params * 2 / bandwidth, rel=1e-12)
    assert costs.work.token_compute_s == pytest.approx(2 * params / peak, rel=1e-12)


def test_fp8_weights_are_multiplied_in_fp8(platform):
    costs = gpu_costs(load_model("deepseek-v3"), platform, 3)
    assert costs.flop_s == pytest.approx(2 * 3 * 7168 * 2048 / (4500e12 * 0.8), rel=1e-12)


def test_kernel_constant_is_paid_once(platform):
    costs = gpu_costs(load_model("mixtral-8x7b"), platform, 0)
    assert costs.coefficients(4.0)[:2].tolist() == [3e-6, 0.0]
    alone = dataclasses.replace(costs, work=type(costs.work)())
    assert alone.coefficients(4.0)[:2].tolist() == [0.0, 3e-6]


def test_attention_on_pim(platform):
    # 4096 tokens x 32 heads x (128 + 128) products, 16 a column, over 128 x 2 x 32 banks: 256 columns of
    # 2.5 ns in 8 rows, each 16.25 + 19.375 ns to turn over.
    seconds = attention_on_pim_s(load_model("mixtral-8x7b"), platform, [4096], 0)
    assert seconds == pytest.approx((256 * 2.5e-9 + 8 * 35.625e-9) / REFRESH, rel=1e-9)


def test_pim_table_takes_the_fastest_split(platform):
    model = load_model("qwen3-30b-a3b")
    for layout, groups in (("tp", 256), ("ep", 2)):
        table = partition_layer(model, platform, layout=layout).timing.snapshot.seconds
        best = min(
            platform.pim.expert_s(
                2048, 768, matrices=3, weight_bytes=2.0, activation_bytes=2.0, groups=groups, k_banks=k
            )
            for k in (1, 2, 4, 8, 16, 32)
        )
        assert table[:3] == pytest.approx([0.0, best, 2 * best], rel=1e-12)


def test_homes_are_contiguous_or_given(platform):
    model = load_model("deepseek-v3")
    posed = partition_layer(model, platform, layout="ep")
    assert posed.home.tolist() == [e // 2 for e in range(256)]
    assert (posed.homes, partition_layer(model, platform).homes) == (128, 1)
    given = partition_layer(model, platform, layout="ep", home=np.arange(256, dtype=np.int32) % 128)
    assert given.home[:3].tolist() == [0, 1, 2]
    assert given.home.dtype == given.problem([1] * 256).home.dtype == np.int64  # as kernels read it


def test_experts_of_one_machine_of_many(platform):
    posed = partition_layer(load_model("deepseek-v3"), platform, experts=32)
    assert posed.problem([1] * 32, batch=256).experts == 32


@pytest.mark.parametrize(
    "tokens", [[-1, 1], [0.5, 1.0], [1.0, 2.0], [True, False], [1], [[1, 2]], ["1", "2"]]
)
def test_wrong_counts_are_refused(platform, tokens):
    posed = partition_layer(load_model("mixtral-8x7b"), platform, experts=2)
    with pytest.raises(BadInput):
        posed.problem(tokens)


@pytest.mark.parametrize("name", ["attention_s", "comm_s", "batch"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_wrong_times_are_refused(platform, name, value):
    posed = partition_layer(load_model("mixtral-8x7b"), platform)
    with pytest.raises(BadInput, match=name):
        posed.problem([1] * 8, **{name: value})


def test_what_does_not_belong_together(platform):
    model = load_model("mixtral-8x7b")
    with pytest.raises(BadInput, match="no PIM"):
        partition_layer(model, load_platform("b200"))
    with pytest.raises(BadInput, match="no GPU"):
        partition_layer(model, load_platform("spimoe-4x8"))
    with pytest.raises(BadInput, match="no MoE layer 99"):
        partition_layer(model, platform, layer=99)
    with pytest.raises(UsageError, match="unknown layout"):
        partition_layer(model, platform, layout="row")
    with pytest.raises(UsageError, match="ep only"):
        partition_layer(model, platform, home=[0] * 8)
    for home in ([0] * 7, [0] * 7 + [128], [-1] * 8, [0.0] * 8):
        with pytest.raises(BadInput, match="channel ids"):
            partition_layer(model, platform, layout="ep", home=home)


@pytest.mark.parametrize("experts", [-1, 65, 1.5, True, "3", 10**12])
def test_a_number_of_experts_is_a_part_of_the_model(platform, experts):
    with pytest.raises(UsageError, match="is no number of experts of deepseek-v2-lite") as caught:
        partition_layer(load_model("deepseek-v2-lite"), platform, experts=experts)
    assert caught.value.allowed == "whole numbers from 0 to 64"


@pytest.mark.parametrize("batch", ["3", -1, float("nan"), True, 10**400])
def test_a_batch_that_cannot_be_is_called_tokens(platform, batch):
    posed = partition_layer(load_model("deepseek-v2-lite"), platform)
    with pytest.raises(BadInput, match="batch must be a finite number of tokens of at least 0"):
        posed.problem(np.ones(64, dtype=np.int64), batch=batch)
