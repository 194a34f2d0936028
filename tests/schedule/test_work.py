"""Durations of a layer's tasks: against the formulas of GPU and PIM, and bytes counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition.layer import partition_layer
from moeplan.placement.partition.problem import Decision
from moeplan.schedule.layer import estimate, layer_graph
from moeplan.schedule.timeline import list_schedule
from moeplan.schedule.work import Exchange, busiest_gpu, layer_work, one_gpu
from moeplan.workload.model import load_model


@pytest.fixture(scope="module")
def platform():
    return load_platform("b200-hbmpim")


@pytest.fixture(scope="module")
def model():
    return load_model("qwen3-30b-a3b")


def posed(model, platform, routed, layout="tp", **more):
    layer = partition_layer(model, platform, layout=layout, experts=routed.experts.size)
    problem = layer.problem(routed.tokens, comm_s=sum(routed.exchange), batch=routed.batch, **more)
    return layer, problem


def zipf(experts: int, batch: int, top_k: int) -> np.ndarray:
    """Choices [B, K]: distinct experts, low ids more often."""
    rng = np.random.default_rng(3)
    keys = -np.log(1.0 + np.arange(experts)) + rng.gumbel(size=(batch, experts))
    return np.argsort(-keys, axis=1)[:, :top_k].astype(np.int16)


def test_gpu_experts_take_what_the_grouped_gemm_takes(model, platform):
    tokens = np.bincount(zipf(128, 64, 8).ravel(), minlength=128)
    routed = one_gpu(tokens, 8)
    work = layer_work(*posed(model, platform, routed), routed, np.ones(128, dtype=bool))
    whole_s = platform.gpu.grouped_gemm_s(
        tokens, 2048, 768, matrices=3, weight_bytes=2.0, activation_bytes=2.0, dtype="bf16"
    )
    longest_s = max(work.gpu.load_s.sum(), work.gpu.gemm_s.sum())
    assert work.fixed.launch_s + longest_s == pytest.approx(whole_s, rel=1e-12)
    # One expert: 3 * 2048 * 768 weights of 2 bytes at 0.85 * 8 TB/s, and 2 * 4096 bytes per token.
    first = tokens[work.gpu.ids[0]]
    assert work.gpu.load_s[0] == pytest.approx((3 * 2048 * 768 * 2 + first * 2 * 4096) / 6.8e12, rel=1e-12)
    assert work.gpu.gemm_s[0] == pytest.approx(2 * first * 3 * 2048 * 768 / (0.8 * 2250e12), rel=1e-12)
    assert work.fixed.commands_s == 0.0


def test_steps_of_an_expert_on_pim_add_up_to_its_table_entry(model, platform):
    tokens = np.array([0, 1, 5, 2] + [0] * 124)
    routed = one_gpu(tokens, 8)
    layer, problem = posed(model, platform, routed)
    work = layer_work(layer, problem, routed, np.zeros(128, dtype=bool))
    assert work.pim.ids.tolist() == [1, 2, 3]
    whole_s = work.pim.send_s + work.pim.compute_s + work.pim.read_s
    assert whole_s == pytest.approx(problem.seconds[[1, 2, 3]], rel=1e-12)
    # Gate and up each write 2048 values of 2 bytes, 32 at 1.25 ns: 2 * 128 * 1.25 ns, stretched by refresh.
    assert work.pim.send_s[0] == pytest.approx(2 * 128 * 1.25e-9 / (1 - 350 / 3900), rel=1e-9)
    assert work.fixed.launch_s == 0.0
    assert work.gpu.ids.size == 0


def test_channels_are_the_homes_of_the_problem(model, platform):
    routed = one_gpu(np.ones(128, dtype=int), 8)
    layer, problem = posed(model, platform, routed, layout="ep")
    work = layer_work(layer, problem, routed, np.arange(128) < 120)
    assert work.pim.channel.tolist() == list(range(120, 128))


def test_experts_with_several_local_tokens_load_early(model, platform):
    routed = one_gpu(np.array([1, 2, 3, 0] + [0] * 124), 8)
    work = layer_work(*posed(model, platform, routed), routed, np.ones(128, dtype=bool))
    assert work.gpu.early.tolist() == [False, True, True]


def test_attention_and_decision_take_what_they_are_said_to_take(model, platform):
    routed = one_gpu(np.ones(128, dtype=int), 8)
    layer, problem = posed(model, platform, routed, attention_s=5e-6)
    fixed = layer_work(layer, problem, routed, np.ones(128, dtype=bool), scheduler_s=7e-6).fixed
    assert (fixed.attention_s, fixed.scheduler_s) == (5e-6, 7e-6)
    # Attention of Qwen3-30B: 2048 x (32 + 2 * 4) heads of 128, and 32 * 128 x 2048 back; 16 tokens.
    weights = 2048 * 40 * 128 + 4096 * 2048
    vectors = 16 * (2048 + 40 * 128 + 4096 + 2048)
    assert fixed.projections_s == pytest.approx(6e-6 + (weights + vectors) * 2 / 6.8e12, rel=1e-12)


def test_two_gpus_by_hand():
    # 4 experts, slots 0-1 on GPU 0 with experts 0-1, slots 2-3 on GPU 1 with experts 2-3.
    model = load_model("mixtral-8x7b")
    platform = load_platform("b200-hbmpim")
    chosen = np.array([[4, 5], [0, 7], [4, 6], [5, 6]], dtype=np.int16)
    routed = busiest_gpu(chosen, model, platform, 2)
    # Experts 4-7 are GPU 1's: 7 of 8 choices. Slots 0 and 1 send it one token each, nothing comes back.
    assert routed.experts.tolist() == [4, 5, 6, 7]
    assert routed.tokens.tolist() == [2, 2, 2, 1]
    assert routed.local_tokens.tolist() == [1, 1, 2, 0]
    assert routed.batch == 2
    tokens_s = 3e-6 + 2 * 4096 * 2 / 900e9
    assert routed.exchange.dispatch_s == pytest.approx(tokens_s, rel=1e-12)
    assert routed.exchange.combine_s == pytest.approx(tokens_s, rel=1e-12)
    # The other GPU's map: 2 slots x 2 choices x 4 bytes.
    assert routed.exchange.all_gather_s == pytest.approx(3e-6 + 16 / 900e9, rel=1e-12)


def test_one_gpu_of_one_exchanges_nothing(model, platform):
    chosen = zipf(128, 16, 8)
    routed = busiest_gpu(chosen, model, platform, 1)
    assert routed.exchange == Exchange(0.0, 0.0, 0.0)
    assert (routed.tokens == np.bincount(chosen.ravel(), minlength=128)).all()
    assert (routed.local_tokens == routed.tokens).all()


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "gpt-oss-120b", "qwen3.5-397b-a17b", "deepseek-v3"])
@pytest.mark.parametrize("layout", ["tp", "ep"])
def test_a_layer_takes_longer_than_the_partition_expects(name, layout, platform):
    model = load_model(name)
    routed = busiest_gpu(zipf(model.experts, 64, model.top_k), model, platform, 4)
    layer, problem = posed(model, platform, routed, layout, attention_s=4e-6)
    on_gpu = routed.tokens > np.median(routed.tokens)
    graph = layer_graph(layer_work(layer, problem, routed, on_gpu))
    times = problem.times(Decision(on_gpu))
    assert list_schedule(graph).makespan_s > times.total_s
    expected = estimate(graph)
    assert expected.t_comm_s == pytest.approx(times.comm_s, rel=1e-12)
    assert expected.t_pim_s == pytest.approx(times.pim_s, rel=1e-12)


def test_what_cannot_be_split_evenly_is_refused(model, platform):
    with pytest.raises(UsageError, match="128 experts cannot be split evenly over 3 GPUs"):
        busiest_gpu(zipf(128, 9, 8), model, platform, 3)
    with pytest.raises(UsageError, match="9 batch slots cannot"):
        busiest_gpu(zipf(128, 9, 8), model, platform, 2)


def test_a_platform_without_gpu_is_refused(model):
    with pytest.raises(BadInput, match="has no GPU"):
        busiest_gpu(zipf(128, 8, 8), model, load_platform("spimoe-4x8"), 2)


@pytest.mark.parametrize("tokens", [[-1, 2], [0.5, 1.0], [[1, 2]], [math.nan, 1.0]])
def test_counts_must_be_whole(tokens):
    with pytest.raises(UsageError, match="whole numbers"):
        one_gpu(tokens, 2)


def test_a_partition_of_other_experts_is_refused(model, platform):
    routed = one_gpu(np.ones(128, dtype=int), 8)
    with pytest.raises(UsageError, match="127 partitioned"):
        layer_work(*posed(model, platform, routed), routed, np.ones(127, dtype=bool))
