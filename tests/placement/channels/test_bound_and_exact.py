"""Bounds never above any placement; exact solvers against brute force over every placement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.placement import Budget, Stop, solve
from moeplan.placement.channels.bound import spread_bounds
from moeplan.placement.channels.problem import Decision

from .instances import grid, hub, problem, random_groups, random_tokens

_KNOWN: dict[tuple[object, ...], float] = {}


def brute_force(posed):
    """Smallest objective over every feasible placement; the same instance is enumerated once."""
    t = posed.tables
    arrays = (posed.tokens, t.token_s, t.group_sites, t.route_links, t.ring_bytes)
    key = (*(array.tobytes() for array in arrays), t.noc, t.capacity_bytes, posed.risk)
    if key not in _KNOWN:
        best = np.inf
        for choice in itertools.product(range(len(posed.groups)), repeat=posed.experts):
            decision = Decision(np.array(choice))
            objective_s = posed.evaluate(decision).objective_s
            if objective_s < best and posed.check(decision) is None:
                best = objective_s
        _KNOWN[key] = best
    return _KNOWN[key]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10_000), overhead=st.sampled_from([0.0, 2e-7, 2e-6]), mesh=st.booleans())
def test_bound_is_below_every_placement(seed, overhead, mesh):
    tokens = random_tokens(seed, 3, 5, 7, 2, sigma=2.0)
    posed = problem(tokens, grid(2, 3) if mesh else hub(6), 7, overhead_s=overhead)
    bound = posed.lower_bound().value_s
    for k in range(8):
        assert bound <= posed.evaluate(Decision(random_groups(posed, seed + k))).objective_s * (1 + 1e-9)


def test_spread_bound_by_hand():
    """Four sites, one step. Expert 0 has 8 tokens, expert 1 has 1; a token costs 1.2 us unsplit, 0.7 us on
    each of two sites, 0.45 us on each of four.

    Unsplit, expert 0 takes 9.6 us on its site. On two sites it takes 5.6 us each; the busiest site cannot
    take less than m = 5.6 us unless expert 0 is on four: 3.6 us each, then the work is 8 * 1.8 + 1.2 = 15.6
    site-us on 4 sites, at least 3.9 us. Since 3.9 < 5.6, the bound is 3.9 us.
    """
    tokens = np.zeros((1, 9, 1), dtype=np.int16)
    tokens[0, 8, 0] = 1
    posed = problem(tokens, hub(4), 2)
    np.testing.assert_allclose(spread_bounds(posed.tables, posed.groups), [3.9e-6], rtol=1e-9)


CASES = [
    ("hub of 4, 5 experts", dict(topology=hub(4), experts=5, batch=6, top_k=2)),
    ("2x2 mesh, 5 experts", dict(topology=grid(2, 2), experts=5, batch=6, top_k=2)),
    ("1x3 mesh, 6 experts", dict(topology=grid(1, 3), experts=6, batch=5, top_k=2)),
    ("tight memory", dict(topology=grid(2, 2), experts=5, batch=6, top_k=2, room=1.25)),
    ("risk", dict(topology=grid(2, 2), experts=4, batch=6, top_k=2, risk=1.5)),
]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("solver", ["exact", "auto"])
def test_small_instances_are_proven_optimal(name, case, solver):
    tokens = random_tokens(3, 3, case["batch"], case["experts"], case["top_k"])
    keep = {k: v for k, v in case.items() if k in ("room", "risk")}
    posed = problem(tokens, case["topology"], case["experts"], **keep)
    result = solve(posed, solver, budget=Budget(time_s=60))
    assert result.stop is Stop.OPTIMAL
    assert result.cost.objective_s == pytest.approx(brute_force(posed), rel=1e-12)
    assert result.gap <= 1e-9


@pytest.mark.parametrize("solver", ["ilp", "cpsat"])
def test_linear_solvers_are_exact_where_the_cost_is_linear(solver):
    """Host-attached channels have J = J_dram, which the linear part holds whole."""
    tokens = random_tokens(5, 3, 6, 5, 2)
    posed = problem(tokens, hub(4), 5)
    result = solve(posed, solver, budget=Budget(time_s=60), options={"step_clusters": 3})
    best = brute_force(posed)
    assert result.cost.objective_s == pytest.approx(best, rel=1e-5)
    assert best * (1 - 1e-4) <= result.bound.value_s <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_a_bound_of_cbc_holds_where_it_stopped_early(seed):
    """One node of a tree: the bound is read from a log that rounds; the optimum lies close above it."""
    posed = problem(random_tokens(seed, 3, 10, 10, 2), hub(2), 10)
    best_s = solve(posed, "exact", budget=Budget(time_s=60)).cost.objective_s
    result = solve(posed, "ilp", budget=Budget(time_s=None, iterations=1), seed=seed)
    assert result.bound.value_s <= best_s * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["ilp", "cpsat", "exact", "annealing"])
def test_shards_that_no_whole_number_of_bytes_holds(solver):
    """Thirds of 1000 bytes on sites of 1666: five thirds are 1666.67 and do not fit, four do."""
    posed = problem(random_tokens(7, 3, 6, 8, 2), grid(2, 3), 8, room=1.666)
    result = solve(posed, solver, budget=Budget(time_s=None, iterations=3_000), seed=7)
    assert result.decision is None or posed.check(result.decision) is None


@pytest.mark.parametrize("over", [5e-10, 2e-9])
def test_every_question_about_room_has_the_same_answer(over):
    """Half an expert is larger than a site by half of the slack that rounding is given, or by twice of it."""
    posed = problem(random_tokens(1, 2, 4, 1, 1), hub(2), 1, room=0.5 / (1 + over))
    assert posed.groups.factors[-1] == 2
    halves, fits = Decision(np.array([len(posed.groups) - 1])), over < 1e-9
    assert (posed.check(halves) is None) == fits
    assert (posed.infeasible() is None) == fits
    assert (spread_bounds(posed.tables, posed.groups).max() > 0.0) == fits


@pytest.mark.parametrize("solver", ["ilp", "cpsat", "exact", "annealing"])
def test_a_step_whose_tokens_were_all_dropped(solver):
    tokens = random_tokens(2, 3, 4, 4, 2)
    tokens[1] = -1
    posed = problem(tokens, grid(2, 2), 4)
    result = solve(posed, solver, budget=Budget(time_s=None, iterations=2_000), seed=1)
    assert result.decision is not None


def test_a_met_bound_ends_the_search():
    """Four experts, a token each, on four sites: one a site meets the bound, whatever rounding says."""
    tokens = np.arange(4, dtype=np.int16).reshape(1, 4, 1)
    posed = problem(tokens, hub(4), 4, overhead_s=2e-6)
    result = solve(posed, "annealing", budget=Budget(time_s=None, iterations=100_000))
    assert result.stop is Stop.OPTIMAL
    assert result.iterations == 0


@pytest.mark.parametrize("solver", ["ilp", "cpsat"])
@pytest.mark.parametrize("clusters", [1, 2, 4])
def test_linear_bounds_hold_on_meshes_and_clusters(solver, clusters):
    tokens = random_tokens(6, 4, 6, 5, 2, sigma=1.5)
    posed = problem(tokens, grid(2, 2), 5)
    result = solve(posed, solver, budget=Budget(time_s=60), options={"step_clusters": clusters})
    assert result.bound.value_s <= brute_force(posed) * (1 + 1e-9)
    assert result.cost.objective_s >= brute_force(posed) * (1 - 1e-9)


def test_exact_says_infeasible_when_nothing_fits():
    """Three whole experts of 1000 bytes on two sites of 1400: 3000 > 2800 is proven without search."""
    posed = problem(random_tokens(1, 2, 4, 3, 1), hub(2), 3, room=1.4)
    result = solve(posed, "exact")
    assert result.stop is Stop.INFEASIBLE
    assert result.decision is None
    assert result.gap == 1.0


def test_one_site_is_a_trivial_question():
    posed = problem(random_tokens(1, 2, 4, 3, 1), grid(1, 1), 3)
    result = solve(posed, "auto")
    assert result.stop is Stop.OPTIMAL
    assert result.decision == Decision(np.zeros(3))


def test_auto_counts_large_spaces_without_overflow():
    """256 experts on 63 groups are 63^256 placements, beyond any float."""
    posed = problem(random_tokens(1, 2, 4, 256, 8), grid(4, 8), 256)
    result = solve(posed, "auto", budget=Budget(time_s=None, iterations=50))
    assert result.decision is not None
