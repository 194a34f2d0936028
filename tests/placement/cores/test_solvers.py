"""Every solver of the family keeps the contract; bounds and optima against every placement there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.placement import solve, solvers_of
from moeplan.placement.cores.problem import Decision
from moeplan.placement.cores.published import token_pairs
from moeplan.placement.result import Budget
from moeplan.placement.testing import check_solver

from .instances import best_of_all, layout, posed, random_tokens


@pytest.mark.parametrize("risk", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(solvers_of("cores")))
def test_contract(name, risk):
    die = layout(3, 2, width=2, room=4)
    held_out = posed(random_tokens(12, 4, 8, 8, 2), 8, die)
    problem = posed(random_tokens(11, 4, 8, 8, 2), 8, die, risk=risk, resample=2, held_out=held_out)
    infeasible = posed(random_tokens(11, 4, 8, 8, 2), 8, layout(3, 2, width=2, room=2), risk=risk)
    check_solver("cores", name, problem, infeasible)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["broadcast", "direct"])
def test_bounds_and_optima_against_brute_force(seed, mode):
    die = layout(3, 2, width=1, room=3) if mode == "broadcast" else layout(3, 2, mode="direct", width=1)
    experts = 7 if mode == "broadcast" else 5
    problem = posed(random_tokens(seed, 3, 6, experts, 2, sigma=1.5), experts, die)
    best_s = best_of_all(problem)
    assert problem.lower_bound().value_s <= best_s + 1e-9
    for name in ("cpsat", "ilp"):
        result = solve(problem, name, budget=Budget(time_s=20.0))
        assert result.bound.value_s <= best_s + 1e-9
        # The whole instance is in the model: the optimum, proven.
        assert result.cost.objective_s == pytest.approx(best_s)
        assert result.stop == "optimal"
    assert solve(problem, "annealing", budget=Budget(time_s=None, iterations=20_000)).cost.objective_s == (
        pytest.approx(best_s)
    )


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_part_of_the_steps_hold(seed):
    die = layout(2, 2, width=1, room=4)
    problem = posed(random_tokens(seed, 6, 5, 6, 2, sigma=1.5), 6, die, risk=0.5)
    best_s = best_of_all(problem)
    for name in ("cpsat", "ilp"):
        result = solve(problem, name, budget=Budget(time_s=20.0), options={"steps": 2})
        assert result.bound.value_s <= best_s + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_a_start_at_the_bound_is_left_for_one_with_less_to_do(seed):
    # Rounds of one: whatever fits meets the bound, but the fullest core may have up to eight jobs.
    problem = posed(random_tokens(seed, 3, 8, 8, 2), 8, layout(4, 8, width=1, room=4))
    crowded = Decision(np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int32))
    everything = (Decision(np.array(cores)) for cores in itertools.product(range(4), repeat=8))
    least = min(problem.evaluate(d).rank for d in everything if problem.check(d) is None)
    found = solve(problem, "annealing", budget=Budget(time_s=None, iterations=4_000), start=crowded)
    assert found.stop == "optimal"
    assert found.cost.rank == pytest.approx(least)
    assert found.cost.tie < problem.evaluate(crowded).tie


def test_coactivation_parts_experts_that_fire_together():
    # Experts 0, 1 always fire together, and so do 2, 3; all have the same load. By load alone, 0 and 2 are
    # on core 0 ... 1 and 3 on core 1; the pairs must be parted whatever the order.
    tokens = np.array([[[0, 1], [2, 3]]] * 4, dtype=np.int16)
    result = solve(posed(tokens, 4, layout(2, 2, width=1)), "coactivation")
    place_of = result.decision.place_of
    assert place_of[0] != place_of[1]
    assert place_of[2] != place_of[3]


def test_pairs_by_hand():
    tokens = np.array([[[0, 1, -1], [1, 0, 2]]], dtype=np.int16)
    assert token_pairs(tokens, 3).tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 1]]


def test_lpt_by_hand():
    # Tokens 5, 4, 3, 3 on two cores of two: 5 | 4, then 3 joins 4 (7), the last 3 joins 5 (8).
    tokens = np.repeat([0, 1, 2, 3], [5, 4, 3, 3]).reshape(1, 15, 1).astype(np.int16)
    result = solve(posed(tokens, 4, layout(2, 2, width=1)), "lpt")
    assert result.decision.place_of.tolist() == [0, 1, 1, 0]
    # ceil(8 / 2) rounds.
    assert result.cost.total_s == 4.0


def test_contiguous_by_hand():
    # Six experts on four cores: floor(4 e / 6).
    tokens = np.arange(6, dtype=np.int16).reshape(1, 6, 1)
    result = solve(posed(tokens, 6, layout(4, 2)), "contiguous")
    assert result.decision.place_of.tolist() == [0, 0, 1, 2, 2, 3]


def test_options_are_checked():
    problem = posed(random_tokens(1, 2, 4, 6, 2), 6, layout(3, 2))
    with pytest.raises(UsageError, match="steps must be"):
        solve(problem, "cpsat", options={"steps": 0})


@pytest.mark.parametrize("seed", range(8))
def test_auto_knows_risk_on_small_instances_too(seed):
    problem = posed(random_tokens(seed, 8, 6, 6, 2, sigma=1.5), 6, layout(3, 2, width=1, room=3), risk=2.0)
    assert solve(problem, "auto").cost.objective_s == pytest.approx(best_of_all(problem))
