"""What a placement costs: by hand, against a twin in plain Python, and against the collectives' model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.collectives import all_to_all
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition.costs import gpu_costs
from moeplan.placement.replicas.cluster import cluster_nodes, rates_of, resized
from moeplan.placement.replicas.inputs import largest_of_normals
from moeplan.placement.replicas.problem import Decision, Settings
from moeplan.placement.replicas.ranks import Ranks, even_ranks
from moeplan.placement.replicas.traffic import rank_traffic
from moeplan.workload.model import load_model

from .instances import TIMED, problem, twin_parts


def random_case(seed: int, sources: bool = False, **settings: object):
    rng = np.random.default_rng(seed)
    shape = (3, 4, 6) if sources else (3, 6)
    posed = problem(rng.integers(0, 40, shape), 2, (3, 2, 3, 2), rates=TIMED, duplicates=True, **settings)
    slots = np.concatenate([rng.permutation(6), rng.integers(0, 6, 4)])
    return posed, Decision(rng.permutation(slots))


def test_the_largest_rank_load_by_hand():
    # Rank 0 holds 0 and 1, rank 1 holds 0 and 2: 6 + 4 and 6 + 2 in the first step, 1 + 0 and 1 + 6.
    posed = problem([[12, 4, 2], [2, 0, 6]], 1, (2, 2))
    cost = posed.evaluate(Decision(np.array([0, 1, 0, 2])))
    assert cost.total_s == pytest.approx((10 + 7) / 2)
    assert posed.balancedness(Decision(np.array([0, 1, 0, 2]))) == pytest.approx((9 / 10 + 4 / 7) / 2)


def test_risk_speed_and_drift_by_hand():
    slots = Decision(np.array([0, 1, 0, 2]))
    risky = problem([[12, 4, 2], [2, 0, 6]], 1, (2, 2), risk=2.0)
    assert risky.evaluate(slots).objective_s == pytest.approx(8.5 + 2.0 * 1.5)
    slow = problem([12, 4, 2], 1, (2, 2), speed=(1.0, 0.5))
    assert slow.evaluate(slots).total_s == pytest.approx(8 / 0.5)
    # Two normal draws: the larger is 1 / sqrt(pi) in the mean. Rank 0: 10 + 0.5 / sqrt(pi) * sqrt(36 + 16).
    assert largest_of_normals(2) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-6)
    assert largest_of_normals(1) == pytest.approx(0.0, abs=1e-9)
    drifting = problem([12, 4, 2], 1, (2, 2), drift=0.5)
    assert drifting.evaluate(slots).total_s == 10.0
    assert drifting.evaluate(slots).objective_s == pytest.approx(10 + 0.5 / np.sqrt(np.pi) * np.sqrt(52))


@pytest.mark.parametrize("split", ["equal", "hash", "nearest", "fixed"])
@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("tile", [1, 8])
def test_costs_are_those_of_the_twin(split, sources, tile):
    for seed in range(4):
        posed, decision = random_case(seed, sources, split=split, tile=tile, traffic_weight=0.7)
        twin = twin_parts(posed, decision)
        cost = posed.evaluate(decision)
        mean = twin.mean(axis=0)
        assert cost.parts["compute_s"] == pytest.approx(mean[0])
        assert cost.parts["dispatch_s"] == pytest.approx(mean[1])
        assert cost.parts["combine_s"] == pytest.approx(mean[1])
        assert cost.total_s == pytest.approx(mean[0] + 2 * mean[1])
        assert cost.objective_s == pytest.approx(cost.total_s + 0.7 * mean[2] * TIMED.across_s)


@pytest.mark.parametrize(
    ("name", "params", "peak"),
    [
        # Four-bit weights are unpacked: bf16, not the four times faster FP4. One byte: FP8.
        ("gpt-oss-120b", 3 * 2880 * 2880, 2250e12),
        ("deepseek-v3", 3 * 7168 * 2048, 4500e12),
        ("qwen3-30b-a3b", 3 * 2048 * 768, 2250e12),
    ],
)
def test_a_token_is_computed_as_fast_as_in_other_families(name, params, peak):
    model, platform = load_model(name), load_platform("b200x8x4")
    rates = rates_of(model, platform)
    assert rates.token_compute_s == pytest.approx(2 * params / (peak * 0.8), rel=1e-12)
    assert rates.token_compute_s == gpu_costs(model, platform, model.moe_layers[0]).flop_s


@pytest.mark.parametrize("split", ["equal", "nearest", "fixed"])
def test_dispatch_takes_the_time_of_an_all_to_all(split):
    platform = resized(load_platform("h20x32"), nodes=2, ranks_per_node=2)
    model = load_model("deepseek-v2-lite")
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 50, (1, 4, 6))
    posed = problem(counts, 2, (2, 2, 2, 2), rates=rates_of(model, platform), split=split)
    decision = Decision(np.array([0, 1, 2, 3, 4, 5, 0, 3]))
    token_bytes = model.hidden_size * model.activation_bytes
    matrix = rank_traffic(posed, decision) * token_bytes
    assert matrix.sum() == pytest.approx(counts.sum() * token_bytes)
    parts = posed.evaluate(decision).parts
    assert parts["dispatch_s"] == pytest.approx(all_to_all(platform.topology, matrix).total_s)
    assert parts["combine_s"] == pytest.approx(all_to_all(platform.topology, matrix.T).total_s)


def test_compute_takes_the_time_of_the_grouped_kernel():
    platform, model = load_platform("h100x8"), load_model("deepseek-v2-lite")
    assert platform.gpu is not None
    counts = np.array([64.0, 3.0, 2.0, 1.0, 5.0, 7.0, 9.0, 4000.0])
    posed = problem(counts, 1, (1,) * 8, rates=rates_of(model, platform))
    slots = Decision(np.arange(8))
    alone = [
        platform.gpu.grouped_gemm_s(
            [n], model.hidden_size, model.expert_intermediate_size, matrices=3, weight_bytes=2.0,
            activation_bytes=2.0, dtype="bf16",
        )
        for n in counts
    ]  # fmt: skip
    assert posed.evaluate(slots).parts["compute_s"] == pytest.approx(max(alone))


def test_nearest_keeps_tokens_at_home():
    posed = problem(np.full((1, 2, 2), 8.0), 1, (2, 2), split="nearest")
    assert np.array_equal(rank_traffic(posed, Decision(np.array([0, 1, 0, 1]))), np.diag([16.0, 16.0]))


def test_what_is_not_feasible_is_named():
    posed = problem([4, 3, 2, 1], 2, (2, 2, 2, 2), groups=2, max_moves=3, current=[0, 1, 0, 1, 2, 3, 2, 3])
    faults = {
        (0, 1, 0, 1, 2, 3, 2): "7 slots are filled",
        (0, 1, 0, 1, 2, 3, 2, 4): "there is no expert 4",
        (0, 1, 0, 1, 2, 2, 2, 2): "expert 3 has no slot",
        (0, 0, 0, 1, 2, 3, 2, 3): "rank 0 holds expert 0 twice",
        (0, 2, 0, 1, 2, 3, 1, 3): "group 0 is on nodes 0, 1",
        (2, 3, 2, 3, 0, 1, 0, 1): "8 slots move, allowed are 3",
    }
    for slots, fault in faults.items():
        assert fault in (posed.check(Decision(np.array(slots))) or ""), slots
    assert posed.check(Decision(np.array([1, 0, 0, 1, 2, 3, 3, 2]))) is None
    assert posed.moved(Decision(np.array([2, 3, 2, 3, 0, 1, 0, 1]))) == 8
    assert posed.moved(Decision(np.array([1, 0, 1, 0, 2, 3, 3, 2]))) == 0


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([1.0, np.nan, 2.0, 1.0], "NaN"),
        ([1.0, -2.0, 2.0, 1.0], "negative"),
        ([0.0, 0.0, 0.0, 0.0], "all counts are zero"),
        ([[[1.0] * 4] * 3], r"counts of shape \(1, 3, 4\)"),
    ],
)
def test_bad_counts_are_refused(counts, words):
    with pytest.raises(BadInput, match=words):
        problem(counts, 1, (2, 2))


def test_bad_shapes_are_refused():
    with pytest.raises(UsageError, match="nearest: 256 or 288"):
        even_ranks(4, 32, 280)
    with pytest.raises(UsageError, match="do not divide by 3 nodes"):
        Ranks(3, (1, 1, 1, 1))
    with pytest.raises(UsageError, match="do not divide over 2 nodes"):
        problem([1, 2, 3], 2, (2, 2), groups=3)
    with pytest.raises(UsageError, match="current placement"):
        problem([1, 2, 3], 1, (2, 2), max_moves=1)
    with pytest.raises(UsageError, match="unknown split"):
        Settings(split="odd")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="does not fit 4 slots"):
        problem([1, 2, 3], 1, (2, 2), current=[0, 1, 2])


def test_what_cannot_exist_is_proven():
    assert "4 slots for 5 experts" in (problem([1] * 5, 1, (2, 2)).infeasible() or "")
    assert "fill at most 2 slots" in (problem([1, 2], 1, (3, 3)).infeasible() or "")
    assert problem([1, 2], 1, (3, 3), duplicates=True).infeasible() is None
    assert "node 0 has 2 slots" in (problem([1] * 6, 2, (1, 1, 3, 3), groups=2).infeasible() or "")


def test_clusters_by_options():
    base = load_platform("gpu-cluster")
    small = resized(base, nodes=2, ranks_per_node=3, inside_bytes_per_s=1e9, across_bytes_per_s=1e8)
    assert small.topology is not None
    assert (small.topology.sites, cluster_nodes(small.topology)) == (6, 2)
    assert sorted(set(small.topology.link_bandwidth_bytes_per_s.tolist())) == [1e8, 1e9]
    assert small.fingerprint != base.fingerprint
    assert resized(base) is base
    assert cluster_nodes(load_platform("gb200-nvl72").topology) == 1  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no GPU cluster"):
        resized(load_platform("h100"), nodes=2)
    with pytest.raises(UsageError, match="need a network"):
        resized(load_platform("h100x8"), nodes=2)


def test_slots_of_a_rank_are_a_set():
    posed = problem([5, 4, 3, 2], 1, (2, 2, 2))
    costs = {
        posed.evaluate(Decision(np.array([*a, *b, 0, 1]))).total_s
        for a, b in itertools.product(([0, 2], [2, 0]), ([1, 3], [3, 1]))
    }
    assert len(costs) == 1
