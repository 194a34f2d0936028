"""The search as a whole: where it begins, when it ends, what it repeats."""

from __future__ import annotations

import dataclasses

import numpy as np

from moeplan.placement import Budget, Stop, solve
from moeplan.placement.channels.annealing import constructions
from moeplan.placement.channels.greedy import lpt_placement, recorded_s
from moeplan.placement.channels.kernels import evaluate_steps
from moeplan.placement.channels.problem import draw_steps

from .instances import grid, problem, random_tokens


def drawn_problem(seed: int = 3):
    tokens = random_tokens(seed, 6, 12, 16, 2, sigma=1.5)
    posed = problem(tokens, grid(2, 4), 16)
    return dataclasses.replace(posed, drawn=draw_steps(posed.tables, tokens, 3, 0), fingerprint="drawn")


def test_auto_ends_by_itself_and_then_repeats_itself_whatever_the_clock():
    posed = drawn_problem()
    one, two = (solve(posed, "auto", budget=Budget(time_s=limit), seed=1) for limit in (50.0, 60.0))
    assert one.stop is two.stop is Stop.CONVERGED
    assert one.decision == two.decision
    assert one.iterations == two.iterations


def test_the_search_minimises_the_drawn_steps_too():
    """What it offers is scored on all steps, and better there than the construction that it began at."""
    posed = drawn_problem()
    result = solve(posed, "annealing", budget=Budget(time_s=None, iterations=8000), seed=1)
    every = evaluate_steps(posed.drawn, result.decision.group_of).parts.sum(axis=1)
    assert len(every) == 24
    np.testing.assert_allclose(result.cost.objective_s, every.mean(), rtol=1e-12)
    assert result.cost.objective_s < result.anytime[0].best_s


def test_constructions_are_lpt_at_the_best_factors():
    posed = drawn_problem()
    cost_s = {factor: recorded_s(posed, lpt_placement(posed, factor)) for factor in posed.groups.factors}
    made = constructions(posed)
    assert recorded_s(posed, made[0]) == min(cost_s.values())
    assert len(made) == sum(value <= 1.05 * min(cost_s.values()) for value in cost_s.values())


def test_a_budget_below_a_pass_is_kept_and_cooled_over():
    posed = drawn_problem()
    result = solve(posed, "auto", budget=Budget(time_s=None, iterations=700), seed=1)
    assert result.iterations == 700
    assert result.stop is Stop.ITERATION_LIMIT
