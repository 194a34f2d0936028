"""The proven optimum against brute force, integer programs, and the published heuristics."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.hardware.platform import load_platform
from moeplan.placement.partition import Decision, PartitionProblem, partition_layer
from moeplan.placement.partition.ours import FAST_NODES
from moeplan.placement.partition.workspace import Workspace
from moeplan.placement.result import Budget, Stop
from moeplan.placement.solve import solve
from moeplan.placement.testing import check_solver
from moeplan.workload.model import load_model

from .instances import brute_force_s, instance, irregular_table

INSTANCES, LAYERS = 10_000, 30
POLICIES = ("auto", "no_exp", "all_exp", "pimoe", "sieve", "fast", "exact", "annealing", "ilp", "cpsat")


@pytest.mark.parametrize("layout", ["tp", "ep"])
def test_exact_is_the_optimum_of_brute_force(layout):
    rng = np.random.default_rng(3 if layout == "tp" else 4)
    for _ in range(INSTANCES // 2):
        # Half of the instances have up to 9 experts, so that the whole test stays short.
        most = 14 if rng.random() < 0.1 else 9
        problem = instance(rng, most, homes=1 if layout == "tp" else None)
        best_s = brute_force_s(problem)
        exact_s, proven_s = split_s(problem, effort=1_000_000)
        assert exact_s == pytest.approx(best_s, rel=1e-9, abs=1e-15)
        assert proven_s == pytest.approx(best_s, rel=1e-9, abs=1e-15)
        fast_s, bound_s = split_s(problem, effort=FAST_NODES if layout == "tp" else 0)
        assert fast_s >= best_s * (1 - 1e-9)
        assert bound_s <= best_s * (1 + 1e-9)
        assert problem.lower_bound().value_s <= best_s * (1 + 1e-9)


def split_s(problem: PartitionProblem, effort: int) -> tuple[float, float]:
    """Measured T_total and claimed bound of one call of the kernels."""
    p, mask = problem, np.zeros(problem.experts, dtype=bool)
    answer = Workspace(p.home, p.homes).split(
        p.tokens, p.table, p.coefficients, p.attention_s, p.comm_s, effort, mask
    )
    total_s = p.times(Decision(mask)).total_s
    assert answer.total_s == pytest.approx(total_s, rel=1e-9, abs=1e-15)
    return total_s, answer.bound_s


def layer(rng: np.random.Generator) -> PartitionProblem:
    """A layer of 64 to 512 experts in proportions of a real one, with a noisy or proportional table."""
    experts = int(rng.choice([64, 128, 256, 512]))
    popularity = np.exp(rng.normal(0.0, rng.choice([0.5, 1.0, 1.5]), experts))
    tokens = rng.multinomial(int(rng.choice([64, 512, 2560])), popularity / popularity.sum())
    rate_s = 1.5e-6
    table = np.arange(tokens.max() + 1) * rate_s
    if rng.random() < 0.5:
        table[1:] *= np.exp(rng.choice([0.05, 0.5]) * rng.standard_normal(len(table) - 1))
    coefficients = np.array([3e-6, 0.0, 8e-6, 1e-6, 2e-6, 1e-9, rng.choice([3e-8, 1e-6])])
    homes = int(rng.choice([1, 1, 64, 128]))
    home = np.arange(experts) * homes // experts
    attention_s, comm_s = rng.choice([0.0, 5e-5]), rng.choice([0.0, 1e-4])
    return PartitionProblem(tokens, table, coefficients, float(attention_s), float(comm_s), home, homes)


@pytest.mark.parametrize("solver", ["ilp", "cpsat"])
def test_exact_equals_integer_programs(solver):
    rng = np.random.default_rng(5)
    compared = 0
    for _ in range(LAYERS):
        problem = layer(rng)
        exact = solve(problem, "exact")
        assert exact.stop is Stop.OPTIMAL
        other = solve(problem, solver, budget=Budget(time_s=1.0))
        assert other.bound.value_s <= exact.cost.total_s * (1 + 1e-9)
        assert other.cost.total_s >= exact.cost.total_s * (1 - 1e-9)
        if other.stop in (Stop.CONVERGED, Stop.OPTIMAL):
            compared += 1
            assert other.cost.total_s == pytest.approx(exact.cost.total_s, rel=2e-6)
    assert compared >= 0.75 * LAYERS  # the rest took the integer program longer than a second


def test_nothing_beats_exact_on_layers():
    rng = np.random.default_rng(6)
    for _ in range(200):
        problem = layer(rng)
        exact = solve(problem, "exact")
        assert exact.stop is Stop.OPTIMAL
        for name in (*problem.baselines, "fast"):
            assert solve(problem, name).cost.total_s >= exact.cost.total_s * (1 - 1e-12)


@pytest.mark.parametrize("homes", [1, 3])
@pytest.mark.parametrize("name", POLICIES)
def test_contract(name, homes):
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, 9, 24)
    coefficients = np.array([1.0, 0.5, 1.0, 0.5, 1.0, 0.05, 0.1])
    home = np.arange(24) % homes
    table = irregular_table(np.random.default_rng(1), 9)
    check_solver("partition", name, PartitionProblem(tokens, table, coefficients, 0.5, 1.0, home, homes))


@pytest.mark.parametrize("layout", ["tp", "ep"])
@pytest.mark.parametrize(
    "tokens",
    [
        [0] * 8,
        [10**6] * 8,
        [10**6, 0, 0, 0, 0, 0, 0, 0],
        [10**6, 999_999, 5, 4, 3, 2, 1, 0],
        [1, 0, 0, 0, 0, 0, 0, 0],
    ],
)
def test_extreme_counts(layout, tokens):
    posed = partition_layer(load_model("mixtral-8x7b"), load_platform("b200-hbmpim"), layout=layout)
    problem = posed.problem(tokens, attention_s=1e-5, batch=64)
    exact = solve(problem, "exact")
    masks = (np.array([bits >> e & 1 for e in range(8)], dtype=bool) for bits in range(256))
    best_s = min(problem.evaluate(Decision(mask)).total_s for mask in masks)
    assert exact.stop is Stop.OPTIMAL
    assert exact.cost.total_s == pytest.approx(best_s, rel=1e-9)


@pytest.mark.parametrize("homes", [1, 4])
def test_one_expert_and_none(homes):
    coefficients = np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0])
    table = np.array([0.0, 4.0])
    one = PartitionProblem(np.array([1]), table, coefficients, 0.0, 0.0, np.array([0]), homes)
    # GPU: constant 1 + weights 2 = 3, PIM: 4.
    assert solve(one, "exact").cost.total_s == 3.0
    none = PartitionProblem(
        np.empty(0, dtype=np.int64), table, coefficients, 0.25, 0.0, np.empty(0, dtype=np.int64), homes
    )
    assert solve(none, "exact").cost.total_s == 0.25


def test_many_distinct_counts_are_proven():
    rng = np.random.default_rng(8)
    tokens = rng.permutation(np.arange(1, 513)) * 100
    table = 1e-6 * np.sqrt(np.arange(tokens.max() + 1)) * np.exp(0.1 * rng.standard_normal(tokens.max() + 1))
    coefficients = np.array([3e-6, 0.0, 8e-6, 1e-6, 3e-4, 1e-10, 1e-12])
    problem = PartitionProblem(tokens, table, coefficients, 0.0, 0.0, np.zeros(512, dtype=np.int64), 1)
    exact = solve(problem, "exact", budget=Budget(time_s=30.0))
    assert exact.stop is Stop.OPTIMAL


def test_homes_without_a_proof_are_looked_at_once():
    # Bound 1 and best 2 of the smallest float: the middle rounds to 2, so halving comes to no end. Attention
    # takes 1, an expert 1 on its channel and 1 on the GPU: every partition takes 2.
    least_s = 5e-324
    coefficients = np.array([0.0, 0.0, 0.0, 0.0, least_s, 0.0, 0.0])
    table = np.array([0.0, least_s])
    problem = PartitionProblem(np.array([1, 1]), table, coefficients, least_s, 0.0, np.array([0, 1]), 2)
    result = solve(problem, "exact", budget=Budget(time_s=None, iterations=100_000))
    assert result.cost.total_s == 2 * least_s
    assert result.stop is Stop.CONVERGED
    assert result.iterations < 1000
