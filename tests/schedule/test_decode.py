"""Whole decode steps: conservation, sums over layers, policies beside each other, and parts by hand."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition.layer import partition_layer
from moeplan.placement.partition.problem import Decision
from moeplan.placement.solve import solve
from moeplan.schedule.decode import POLICIES, Policy, Prefill, Setup, decode
from moeplan.schedule.layer import MEMORY, in_mode, layer_graph
from moeplan.schedule.timeline import list_schedule
from moeplan.schedule.work import busiest_gpu, layer_work
from moeplan.workload.load import Load
from moeplan.workload.model import load_model
from moeplan.workload.replay import replay
from moeplan.workload.synthetic import synthesize

PLATFORM = load_platform("b200-hbmpim")
QWEN = load_model("qwen3-30b-a3b")


def load_of(model, batch, steps=2, seed=0):
    few = dataclasses.replace(model, moe_layers=model.moe_layers[:1])
    return replay(synthesize(few, tokens=2 * batch * steps, seed=seed), batch=batch, steps=steps, seed=seed)


@pytest.mark.parametrize("timing", ["estimate", "timeline"])
def test_one_layer_takes_what_its_timeline_takes(timing):
    """A model of one MoE layer: the step is that layer and the output matrix."""
    model = dataclasses.replace(QWEN, layers=1, moe_layers=(0,))
    load = load_of(QWEN, 32, steps=1)
    done = decode(Setup(model, PLATFORM, timing=timing, context=99), load, Policy("sieve"))
    routed = busiest_gpu(load.experts[0, :, 0], model, PLATFORM, 1)
    layer = partition_layer(model, PLATFORM, layer=0)
    problem = layer.problem(routed.tokens, attention_s=layer.attention_s([100] * 32), batch=32)
    decision = solve(problem, "sieve").decision
    if timing == "estimate":
        expected = problem.times(decision).total_s
    else:
        work = layer_work(layer, problem, routed, decision.on_gpu, scheduler_s=20e-6)
        expected = list_schedule(in_mode(layer_graph(work), "overlapped")).makespan_s
    assert done.parts["moe_layers_s"] == pytest.approx(expected, rel=1e-12)
    # Output matrix: 151,936 x 2,048 weights of two bytes at the GPU's effective bandwidth, and the kernel.
    gpu = PLATFORM.gpu
    head_s = 3e-6 + 151936 * 2048 * 2 / (gpu.memory_bandwidth_bytes_per_s * gpu.memory_efficiency)
    assert done.parts["head_s"] == pytest.approx(head_s, rel=1e-12)
    assert done.tpot_s == pytest.approx(expected + head_s, rel=1e-12)


def test_parts_add_up_and_rates_follow():
    done = decode(
        Setup(load_model("deepseek-v3"), PLATFORM, gpus=8),
        load_of(load_model("deepseek-v3"), 64),
        POLICIES[3],
    )
    outside = done.parts["moe_layers_s"] + done.parts["dense_layers_s"] + done.parts["head_s"]
    assert done.tpot_s == pytest.approx(outside)
    assert done.parts["dense_layers_s"] > 0.0  # its first three layers have no experts
    assert done.tokens_per_s_per_user == pytest.approx(1 / done.tpot_s)
    assert done.tokens_per_s_per_gpu == pytest.approx(64 / done.tpot_s / 8)


@pytest.mark.parametrize("batch", [8, 64, 256])
def test_order_of_policies_by_the_estimate(batch):
    """In one layout, Sieve is never behind what it generalises, and never ahead of the proven optimum.

    Across layouts it may be: at batch 8, one channel an expert wastes fewer banks than all channels.
    """
    load, setup = load_of(QWEN, batch), Setup(QWEN, PLATFORM, timing="estimate")
    tpot = {p.solver: decode(setup, load, dataclasses.replace(p, layout="tp")).tpot_s for p in POLICIES}
    assert tpot["exact"] <= tpot["sieve"] * (1 + 1e-12)
    for other in ("no_exp", "all_exp", "pimoe"):
        assert tpot["sieve"] <= tpot[other] * (1 + 1e-12)


def test_the_same_decisions_give_the_same_numbers():
    load = load_of(QWEN, 16)
    setup = Setup(QWEN, PLATFORM)
    everything = Policy("named", choose=lambda problem: Decision(np.ones(problem.experts, dtype=np.bool_)))
    assert (
        decode(setup, load, everything).step_s.tolist()
        == decode(setup, load, Policy("no_exp")).step_s.tolist()
    )


def test_all_experts_on_pim_stop_scaling():
    """PIM reads weights for every token: eight times the tokens take about eight times as long."""
    setup = Setup(QWEN, PLATFORM, timing="estimate", context=1)
    few, many = (decode(setup, load_of(QWEN, batch), Policy("all_exp")) for batch in (32, 256))
    assert many.tokens_per_s_per_gpu == pytest.approx(few.tokens_per_s_per_gpu, rel=0.05)


def test_every_token_is_computed_once_and_sent_bytes_arrive():
    model, gpus = load_model("gpt-oss-120b"), 4
    load = load_of(model, 32)
    chosen = load.experts[0, :, 0]
    routed = busiest_gpu(chosen, model, PLATFORM, gpus)
    counts = np.bincount(chosen.ravel(), minlength=model.experts).reshape(gpus, -1)
    assert routed.tokens.tolist() == counts[counts.sum(axis=1).argmax()].tolist()
    layer = partition_layer(model, PLATFORM, experts=routed.experts.size)
    problem = layer.problem(routed.tokens, batch=routed.batch)
    work = layer_work(layer, problem, routed, solve(problem, "sieve").decision.on_gpu)
    once = np.sort(np.concatenate([work.gpu.ids, work.pim.ids]))
    assert once.tolist() == routed.experts[routed.tokens > 0].tolist()
    # What GPUs send to each other in dispatch comes back in combine.
    assert routed.exchange.dispatch_s == routed.exchange.combine_s


def test_no_resource_does_two_things_at_once():
    load = load_of(QWEN, 64)
    routed = busiest_gpu(load.experts[0, :, 0], QWEN, PLATFORM, 1)
    layer = partition_layer(QWEN, PLATFORM)
    problem = layer.problem(routed.tokens, attention_s=1e-5)
    graph = layer_graph(layer_work(layer, problem, routed, solve(problem, "sieve").decision.on_gpu))
    done = list_schedule(graph)
    assert MEMORY in graph.resources
    for resource in range(len(graph.resources)):
        tasks = [t for t in range(graph.tasks) if resource in graph.holds[t] and graph.duration_s[t] > 0]
        tasks.sort(key=lambda t: done.start_s[t])
        for earlier, later in itertools.pairwise(tasks):
            assert done.end_s[earlier] <= done.start_s[later] + 1e-15


def test_prompts_cost_their_attention_by_hand():
    """One prompt of three tokens attends to 1 + 2 + 3 positions: 4 x heads x width FLOP each, on the GPU."""
    model = dataclasses.replace(QWEN, layers=1, moe_layers=(0,))
    load = load_of(QWEN, 8, steps=1)
    setup = Setup(model, PLATFORM, timing="estimate", prefill=Prefill(1, 3))
    seen = []

    def choose(problem):
        seen.append(problem)
        return Decision(np.ones(problem.experts, dtype=np.bool_))

    decode(setup, load, Policy("all", choose=choose))
    (problem,) = seen
    assert problem.tokens.sum() == (8 + 3) * QWEN.top_k
    gpu = PLATFORM.gpu
    attention_s = 6 * 4 * 32 * 128 / (gpu.peak("bf16") * gpu.compute_efficiency)
    plain = partition_layer(model, PLATFORM).problem(problem.tokens, batch=11).coefficients
    assert problem.coefficients[3] - plain[3] == pytest.approx(attention_s)


def test_tensor_parallel_attention_reads_less_and_adds_up():
    model = load_model("gpt-oss-120b")
    load = load_of(model, 32, steps=1)
    seen = {}
    for t in (1, 4):

        def choose(problem, t=t):
            seen.setdefault(t, problem)
            return Decision(np.ones(problem.experts, dtype=np.bool_))

        decode(
            Setup(model, PLATFORM, gpus=4, tensor_parallel=t, timing="estimate"),
            load,
            Policy("all", choose=choose),
        )
    gpu, weights = PLATFORM.gpu, 2 * (2880 * 64 * 64 * 2 + 2 * 2880 * 8 * 64)
    saved_s = 0.75 * weights / (gpu.memory_bandwidth_bytes_per_s * gpu.memory_efficiency)
    assert seen[1].coefficients[2] - seen[4].coefficients[2] == pytest.approx(saved_s, rel=1e-6)
    all_reduce_s = gpu.kernel_s + 2 * 0.75 * 32 * 2880 * 2 / gpu.nvlink_bytes_per_s
    assert seen[4].comm_s - seen[1].comm_s == pytest.approx(all_reduce_s)


def test_context_grows_with_the_steps():
    load = load_of(QWEN, 16, steps=4)
    same = Load(
        np.repeat(load.experts[:1], 4, axis=0), load.layers, load.num_experts, load.model, 16, True, ""
    )
    done = decode(Setup(QWEN, PLATFORM, timing="estimate", context=4096), same, Policy("all_exp"))
    assert (np.diff(done.step_s) > 0).all()


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match="grouped by 3"):
        Setup(QWEN, PLATFORM, gpus=4, tensor_parallel=3)
    with pytest.raises(BadInput, match="both GPU and PIM"):
        Setup(QWEN, load_platform("h100"))
    with pytest.raises(BadInput, match="top-8 of 128"):
        decode(Setup(load_model("gpt-oss-120b"), PLATFORM), load_of(QWEN, 8), Policy("sieve"))
    with pytest.raises(UsageError, match="split evenly"):
        decode(
            Setup(load_model("gpt-oss-120b"), PLATFORM, gpus=4),
            load_of(load_model("gpt-oss-120b"), 6),
            POLICIES[0],
        )
    with pytest.raises(UsageError, match="prompts"):
        decode(Setup(QWEN, PLATFORM, gpus=4, prefill=Prefill(1, 3)), load_of(QWEN, 8), POLICIES[0])
