"""From a placement that is there already, with a limit on the slots that may change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from ..search.random import seeded
from ..solve import solve
from .nearest import fill_nearest
from .pools import Part, parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..result import Budget, Result
    from .pool_kernel import Pool, Question
    from .problem import Decision, ReplicaProblem

#: Portions in which the limit is handed to the busiest node.
_PORTIONS = 8


def limited(
    problem: ReplicaProblem, weight: NDArray[np.float64], seed: int, limit: int, tolerance: float, effort: int
) -> Iterator[NDArray[np.int32]]:
    """Yield placements that differ from the current one in at most `limit` slots, better and better.

    First come the moves without which a rule stays broken: experts without a slot, duplicates, groups on
    several nodes (see `nearest`). Groups then stay on their nodes; of several nodes, the busiest gets the
    next portion of the limit until another is busier.
    """
    from .bound_kernel import pool_bound
    from .problem import Decision

    assert problem.current is not None
    if problem.nearest.enough > limit:
        return
    now = problem.has(Decision(problem.current))
    parts = parts_of(problem, problem.nearest.node_of)
    questions = [part.question(problem, weight, now, limit) for part in parts]
    floors = [pool_bound(q.weight, q.room, q.speed, q.most, True) for q in questions]
    target = max(floors) * (1.0 + tolerance)
    pools = [_repaired(question) for question in questions]
    spent = np.array([int(pool.moved[0]) for pool in pools])
    budget, stuck = spent.copy(), np.zeros(len(parts), dtype=bool)
    portion = limit if len(parts) == 1 else max(1, limit // _PORTIONS)
    while (left := limit - int(budget.sum())) >= 0 and not stuck.all():
        tops = [float(pool.load.max()) for pool in pools]
        if max(tops) <= target:
            break
        busy = int(np.argmax(np.where(stuck, -np.inf, tops)))
        budget[busy] += min(portion, left)
        pools[busy] = _improved(questions[busy], pools[busy], int(budget[busy]), seed, target, effort)
        stuck[busy] = left == 0 or float(pools[busy].load.max()) >= tops[busy]
        yield _slots(problem, parts, pools)
    yield _slots(problem, parts, pools)


def migration_curve(
    problem: ReplicaProblem,
    limits: Sequence[int],
    solver: str = "joint",
    budget: Budget | None = None,
    seed: int = 0,
) -> list[Result[Decision]]:
    """Solve for rising limits on the moved slots, each from the answer before; objectives never rise.

    Raises UsageError where the problem has no current placement.
    """
    curve: list[Result[Decision]] = []
    for limit in sorted(limits):
        settings = dataclasses.replace(problem.settings, max_moves=limit)
        asked = dataclasses.replace(problem, settings=settings)
        if problem.current is None:
            raise UsageError("a migration begins at a current placement", fix="give one")
        start = curve[-1].decision if curve else None
        curve.append(solve(asked, solver, budget=budget, seed=seed, start=start))
    return curve


def _improved(question: Question, pool: Pool, moves: int, seed: int, target: float, effort: int) -> Pool:
    """Search on from `pool`, and from the counts of an unlimited search with all in place that may stay."""
    from .pool_kernel import copy_pool, empty_pool, keep_in_place, pack_counts
    from .search_kernel import improve, solve_pool

    asked = question._replace(moves=moves)
    improve(asked, pool, seeded(seed, moves), target, effort)
    if pool.load.max() <= target:
        return pool
    free = question._replace(current=np.zeros((0, 0), np.int16))
    ideal, other = empty_pool(free), empty_pool(asked)
    if not solve_pool(free, ideal, seeded(seed), target, effort)[0]:
        return pool
    other.copies[:] = ideal.copies
    if pack_counts(asked, other, keep_in_place(asked, other.copies)) and other.moved[0] <= moves:
        improve(asked, other, seeded(seed, moves), target, effort)
        if other.load.max() < pool.load.max():
            copy_pool(other, pool)
    return pool


def _repaired(question: Question) -> Pool:
    from .pool_kernel import empty_pool

    pool = empty_pool(question)
    fill_nearest(question, pool)
    return pool


def _slots(problem: ReplicaProblem, parts: list[Part], pools: list[Pool]) -> NDArray[np.int32]:
    slots = np.empty(problem.ranks.slots, dtype=np.int32)
    for part, pool in zip(parts, pools, strict=True):
        part.write(problem, pool, slots)
    return slots
