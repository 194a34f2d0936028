"""From a placement that is there: limits, curves, and nothing to do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.placement import solve
from moeplan.placement.replicas.layout import aligned, slots_of
from moeplan.placement.replicas.migration import migration_curve
from moeplan.placement.replicas.problem import Decision

from .instances import optimum, problem, zipf


def there(groups: int) -> np.ndarray:
    if groups == 1:
        return np.arange(72) % 64
    return np.concatenate([node * 16 + np.arange(18) % 16 for node in range(4)])


@pytest.mark.parametrize("groups", [1, 8])
def test_more_moves_never_cost_more_and_all_is_no_limit(groups):
    load = zipf(1, 64, 1.0, 3)[0]
    posed = problem(load, 4, (9,) * 8, groups=groups, current=there(groups))
    curve = migration_curve(posed, [0, 4, 8, 16, 32, 72])
    costs = [result.cost.objective_s for result in curve]
    assert costs == sorted(costs, reverse=True)
    assert costs[1] < costs[0]
    for limit, result in zip((0, 4, 8, 16, 32, 72), curve, strict=True):
        assert result.decision is not None
        assert posed.moved(result.decision) <= limit
    assert np.array_equal(curve[0].decision.expert_of, there(groups))  # type: ignore[union-attr]
    free = solve(dataclasses.replace(posed, current=None), "joint")
    assert costs[-1] == pytest.approx(free.cost.objective_s, rel=4e-4)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_moves_are_used_as_well_as_possible(limit):
    posed = problem([50.0, 9.0, 30.0, 4.0], 1, (2, 2, 2), current=[0, 2, 1, 3, 1, 3], max_moves=limit)
    assert solve(posed, "joint").cost.objective_s == pytest.approx(optimum(posed))


def test_a_plan_that_is_there_already_moves_nothing():
    load = zipf(1, 64, 1.0, 4)[0]
    first = solve(problem(load, 4, (9,) * 8), "auto").decision
    assert first is not None
    again = problem(load, 4, (9,) * 8, current=first.expert_of)
    found = solve(again, "auto").decision
    assert found is not None
    assert again.moved(found) == 0
    assert np.array_equal(found.expert_of, first.expert_of)


def test_renamed_ranks_move_nothing():
    posed = problem(np.arange(1.0, 9.0), 1, (2, 2, 2, 2), current=[0, 7, 1, 6, 2, 5, 3, 4])
    other = np.array([3, 4, 2, 5, 0, 7, 1, 6], dtype=np.int32)
    assert aligned(posed, other).tolist() == [0, 7, 1, 6, 2, 5, 3, 4]
    tied = problem(np.arange(1.0, 9.0), 2, (2, 2, 2, 2), groups=2, current=[0, 1, 2, 3, 4, 5, 6, 7])
    assert aligned(tied, np.array([6, 7, 4, 5, 2, 3, 0, 1], dtype=np.int32)).tolist() == list(range(8))


def test_what_stays_keeps_its_slot():
    posed = problem([1.0, 2.0, 3.0, 4.0], 1, (3, 3))
    has = posed.has(Decision(np.array([0, 1, 2, 3, 2, 1])))
    assert slots_of(has, posed.ranks, np.array([2, 3, 0, 1, 1, 2])).tolist() == [2, 1, 0, 1, 3, 2]


def test_duplicates_that_are_there_are_moved_first():
    posed = problem([50.0, 9.0, 30.0, 4.0], 1, (2, 2, 2), current=[0, 0, 1, 2, 3, 3], max_moves=4)
    found = solve(posed, "joint").decision
    assert found is not None
    assert posed.duplicates(found) == 0
    assert posed.moved(found) <= 4


def test_a_curve_needs_a_placement():
    with pytest.raises(UsageError, match="current placement"):
        migration_curve(problem([1.0, 2.0], 1, (1, 1)), [1])
