"""The searches: optimal on small instances, near the bound on large ones, incremental sums as whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.placement import solve
from moeplan.placement.registry import solvers_of
from moeplan.placement.replicas.anneal_kernel import anneal, new_walk, value
from moeplan.placement.replicas.annealing import _rules
from moeplan.placement.replicas.pool_kernel import Question, empty_pool, pack_counts, reload
from moeplan.placement.replicas.problem import Decision
from moeplan.placement.replicas.search_kernel import improve, solve_pool
from moeplan.placement.result import Budget
from moeplan.placement.search.random import seeded
from moeplan.placement.testing import check_solver

from .instances import TIMED, optimum, problem, zipf
from .test_eplb import ASCEND

NONE = np.zeros((0, 0), np.int16)


@pytest.mark.parametrize("seed", range(12))
def test_joint_finds_the_optimum_of_small_instances(seed):
    rng = np.random.default_rng(seed)
    room, nodes, groups = [((2, 2, 2), 1, 1), ((3, 2, 1), 1, 1), ((2, 1, 2, 1), 2, 2)][seed % 3]
    posed = problem(np.round(rng.gamma(0.6, 30.0, 4)) + 1, nodes, room, groups=groups)
    found = solve(posed, "joint")
    assert found.cost.objective_s == pytest.approx(optimum(posed))


@pytest.mark.parametrize("settings", [{"groups": 8}, {}])
@pytest.mark.parametrize(("skew", "limit"), [(0.8, 1.001), (1.2, 1.012)])
def test_close_to_the_bound_without_duplicates(settings, skew, limit):
    posed = [problem(load, 4, (9,) * 32, **settings) for load in zipf(4, 256, skew, 5)]
    found = [solve(p) for p in posed]
    assert np.mean([r.cost.objective_s / r.bound.value_s for r in found]) <= limit
    assert all(p.duplicates(r.decision) == 0 for p, r in zip(posed, found, strict=True))


def test_no_redundancy_is_packed_to_the_bound():
    for load in zipf(3, 384, 0.3, 6):
        found = solve(problem(load, 4, (12,) * 32))
        assert found.cost.objective_s <= 1.001 * found.bound.value_s


def test_the_example_that_greedy_counts_fail():
    posed = problem(ASCEND, 1, (2,) * 8)
    assert solve(posed).cost.total_s <= 205.0 < 232.0


@pytest.mark.parametrize("duplicates", [False, True])
def test_pools_keep_their_books(duplicates):
    weight = zipf(1, 40, 1.0, 3)[0]
    most = 6 if duplicates else 1
    q = Question(weight, np.linspace(0.5, 1.5, 8), np.full(8, 6), most, NONE, 0)
    pool, fresh = empty_pool(q), empty_pool(q)
    found, work = solve_pool(q, pool, seeded(4), 0.0, 60_000)
    assert found
    assert work >= 60_000
    fresh.slot[:] = pool.slot
    reload(q, fresh)
    for mine, again in zip(pool, fresh, strict=True):
        assert np.allclose(mine, again, rtol=1e-9)
    assert pool.has.max() <= most
    assert (pool.copies >= 1).all()
    assert pool.has.sum(axis=0).tolist() == [6] * 8


def test_moves_are_counted_and_limited():
    weight = zipf(1, 30, 1.0, 3)[0]
    current = np.zeros((30, 6), np.int16)
    for slot in range(36):
        current[slot % 30, slot // 6] += 1
    q = Question(weight, np.ones(6), np.full(6, 6), 1, current, 7)
    pool = empty_pool(q)
    for g in range(6):
        pool.slot[g] = np.flatnonzero(current[:, g])
    reload(q, pool)
    before = pool.load.max()
    improve(q, pool, seeded(1), 0.0, 50_000)
    assert np.maximum(pool.has - current, 0).sum() == pool.moved[0] <= 7
    assert pool.load.max() < before


def test_packing_moves_others_aside_where_only_holders_have_room():
    # Expert 2 is lightest and comes last: the room that is left is on a rank that has it already.
    q = Question(np.array([9.0, 8.0, 2.0]), np.ones(2), np.array([2, 3]), 1, NONE, 0)
    pool = empty_pool(q)
    pool.copies[:] = (2, 1, 2)
    assert pack_counts(q, pool, NONE)
    assert pool.has.max() == 1
    assert pool.has.sum(axis=1).tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"drift": 0.3, "risk": 0.5},
        {"groups": 2},
        {"rates": TIMED, "split": "nearest", "traffic_weight": 0.4},
        {"rates": TIMED, "split": "hash", "tile": 4},
        {"duplicates": True, "split": "fixed"},
        {"speed": (1.0, 0.8, 1.2, 1.0)},
    ],
)
def test_incremental_sums_are_those_of_the_whole(settings):
    counts = np.random.default_rng(2).integers(0, 60, (3, 8))
    posed = problem(counts, 2, (3, 3, 3, 3), **settings)
    begun = solve(posed, "linear").decision
    assert begun is not None
    rules, load, rates = _rules(posed), posed.load(posed.tokens), posed.planned_rates
    walk = new_walk(rates, load, rules, begun.expert_of.copy())
    now = value(rates, load, rules, walk)
    assert now == pytest.approx(posed.evaluate(begun).objective_s)
    best = begun.expert_of.copy()
    # Hot enough that nearly every move is taken.
    now, _ = anneal(rates, load, rules, walk, seeded(3), 300, 1e3, 1e3, now, now, best, np.empty(0))
    here = Decision(walk.slots)
    assert here != begun
    assert posed.check(here) is None
    assert now == pytest.approx(posed.evaluate(here).objective_s, rel=1e-9)
    assert np.array_equal(walk.has, posed.has(here))


def test_annealing_lowers_the_mean_of_many_steps():
    counts = np.random.default_rng(7).gamma(0.5, 20.0, (12, 16))
    posed = problem(counts, 1, (5,) * 4)
    mean_only, whole = solve(posed, "joint"), solve(posed, "auto", budget=Budget(None, 20_000), seed=1)
    assert whole.cost.objective_s < mean_only.cost.objective_s


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"duplicates": True}, {"groups": 2}, {"rates": TIMED, "tile": 4},
     {"max_moves": 2, "current": [0, 1, 2, 3, 0, 1]}],
)  # fmt: skip
def test_models_prove_the_optimum(name, settings):
    counts = np.array([[50.0, 9.0, 30.0, 4.0], [20.0, 30.0, 8.0, 5.0]])
    room, nodes = ((2, 1, 2, 1), 2) if "groups" in settings else ((2, 2, 2), 1)
    posed = problem(counts, nodes, room, **settings)
    found = solve(posed, name, budget=Budget(time_s=20.0))
    best = optimum(posed)
    flows_s = 2 * posed.evaluate(found.decision).parts["dispatch_s"]  # type: ignore[arg-type]
    assert found.cost.objective_s <= best * (1.0 + 1e-6) or "rates" in settings
    assert best * (1.0 - 2e-5) - flows_s <= found.bound.value_s <= best * (1.0 + 1e-9)


def test_models_refuse_what_is_too_large():
    with pytest.raises(UsageError, match="variables"):
        solve(problem(zipf(1, 256, 1.0, 1)[0], 4, (9,) * 32), "cpsat")


CASES = {
    "plain": {},
    "groups": {"groups": 4},
    "risk": {"risk": 1.0, "drift": 0.3},
    "timed": {"rates": TIMED, "split": "nearest", "traffic_weight": 0.5},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", sorted(solvers_of("replicas")))
def test_contract(name, case):
    counts = np.random.default_rng(3).integers(0, 100, (3, 8))
    posed = problem(counts, 2, (3, 3, 3, 3), held_out=counts[::-1], **CASES[case])
    hopeless = problem(counts, 2, (9, 9, 9, 9), groups=CASES[case].get("groups", 1))
    check_solver("replicas", name, posed, hopeless)
