"""Joint search of replica counts, packing and swaps, with groups paired to nodes by bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from ..control import Claim, Control
from ..result import Stop
from ..search.random import seeded
from .layout import aligned
from .nearest import fill_nearest
from .pools import Part, best_pairings, parts_of
from .problem import Decision, ReplicaProblem, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..problem import Cost
    from .pool_kernel import Pool

#: Relative distance to the bound at which a pool is good enough, and pairs of replicas that its search may
#: look at: some milliseconds.
TOLERANCE, _EFFORT = 3e-4, 600_000
_MOST_PAIRINGS_TRIED = 8


def joint(control: Control[Decision]) -> Claim:
    """Balance the mean load; with a limit on moves, from the current placement.

    Ends when every pool is within `tolerance` (option) of the bound, or has had its `effort` (option): pairs
    of replicas looked at, of which an iteration is 1000.
    """
    joint_search(control)
    return Claim(_conclude(control))


def auto(control: Control[Decision]) -> Claim:
    """Balance the mean load; anneal from there where that is not near the bound of all that counts."""
    problem = problem_of(control)
    joint_search(control)
    near = control.best_cost is not None and control.best_cost.objective_s <= control.floor.value_s * (
        1.0 + TOLERANCE
    )
    if near or (problem.mean_decides and problem.settings.max_moves is None):
        return Claim(_conclude(control))
    from .annealing import annealing

    return annealing(control)


def joint_search(control: Control[Decision]) -> None:
    """Run the search and offer what it finds; a current placement that is good enough already stays."""
    problem = problem_of(control)
    tolerance, effort = _options(control)
    left = control.iterations_left()
    if left is not None:
        effort = min(effort, 1000 * left)
    if control.interrupt.is_set() and control.best is not None:
        return
    control.iterations += 1
    if problem.current is not None:
        cost = _offer(control, problem.current)
        if cost is not None and cost.objective_s <= control.floor.value_s * (1.0 + tolerance):
            return
    slots, work = balanced(problem, problem.weight, control.seed, tolerance, effort)
    control.iterations += work // 1000
    limit = problem.settings.max_moves
    if slots is not None:
        slots = aligned(problem, slots)
        _offer(control, slots)
    if limit is not None and (slots is None or problem.moved(Decision(slots)) > limit):
        from .migration import limited

        for answer in limited(problem, problem.weight, control.seed, limit, tolerance, effort):
            control.iterations += 1
            _offer(control, aligned(problem, answer))


def balanced(
    problem: ReplicaProblem, weight: NDArray[np.float64], seed: int, tolerance: float, effort: int
) -> tuple[NDArray[np.int32] | None, int]:
    """Return the experts of all slots for the mean load `[E]` (None: no packing found), and the work done."""
    search = _Pools(problem, weight, seed, effort)
    average = float(weight.sum() / sum(problem.ranks.speed))
    if problem.nodes == 1:
        target = max(_pool_floor(problem, weight), average) * (1.0 + tolerance)
        _, slots = search.solve(parts_of(problem, None), target, np.inf)
        return slots, search.work
    best, best_slots = np.inf, None
    for tried, (bound, node_of, _) in enumerate(best_pairings(problem, weight)):
        target = max(bound, average) * (1.0 + tolerance)
        if tried == _MOST_PAIRINGS_TRIED or best <= target:
            break
        top, slots = search.solve(parts_of(problem, node_of), target, best)
        if slots is not None and top < best:
            best, best_slots = top, slots
    return best_slots, search.work


def _pool_floor(problem: ReplicaProblem, weight: NDArray[np.float64]) -> float:
    from .bound_kernel import pool_bound

    room, speed = np.array(problem.ranks.room), np.array(problem.ranks.speed, dtype=np.float64)
    return float(pool_bound(np.ascontiguousarray(weight), room, speed, problem.most, True))


class _Pools:
    """Searches of pools, each remembered: a set of groups is met in many pairings."""

    def __init__(self, problem: ReplicaProblem, weight: NDArray[np.float64], seed: int, effort: int) -> None:
        self.work = 0
        self._problem, self._weight, self._seed, self._effort = problem, weight, seed, effort
        self._known: dict[tuple[bytes, int], tuple[Pool, float]] = {}

    def solve(self, parts: list[Part], target: float, best: float) -> tuple[float, NDArray[np.int32] | None]:
        """Search every part, the heaviest first; give up where one is no better than `best`.

        What one part cannot get below, the others need not either: the target rises to it.
        """
        slots = np.empty(self._problem.ranks.slots, dtype=np.int32)
        top, done = 0.0, []
        for part in sorted(parts, key=lambda p: -float(self._weight[p.experts].sum())):
            pool = self._pool(part, max(target, top))
            if pool.load.max() >= best:
                return np.inf, None
            top = max(top, float(pool.load.max()))
            done.append((part, pool))
        for part, pool in done:
            part.write(self._problem, pool, slots)
        return top, slots

    def _pool(self, part: Part, target: float) -> Pool:
        from .pool_kernel import empty_pool
        from .search_kernel import improve, solve_pool

        ranks = self._problem.ranks
        key = (part.experts.tobytes(), 0 if ranks.uniform else part.ranks.start)
        if key in self._known:
            pool, aimed = self._known[key]
            # One that ended at its target may get lower; one that did not reach it has had its effort.
            if pool.load.max() <= target or pool.load.max() > aimed:
                return pool
        question = part.question(self._problem, self._weight)
        pool, rng = empty_pool(question), seeded(self._seed, part.ranks.start)
        found, spent = solve_pool(question, pool, rng, target, self._effort)
        if not found:
            fill_nearest(question, pool)
            spent += improve(question, pool, rng, target, self._effort)
        self.work += spent
        self._known[key] = (pool, target)
        return pool


def _offer(control: Control[Decision], slots: NDArray[np.int32]) -> Cost | None:
    decision = Decision(slots)
    return control.offer(decision) if problem_of(control).check(decision) is None else None


def _conclude(control: Control[Decision]) -> Stop:
    return Stop.INTERRUPTED if control.interrupt.is_set() else Stop.CONVERGED


def _options(control: Control[Decision]) -> tuple[float, int]:
    tolerance, effort = control.options.get("tolerance", TOLERANCE), control.options.get("effort", _EFFORT)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0.0 <= tolerance < 1.0:
        raise UsageError(f"tolerance {tolerance!r} is not possible", allowed="a number from 0 up to 1")
    if isinstance(effort, bool) or not isinstance(effort, int) or not 0 < effort <= 10**12:
        raise UsageError(f"effort {effort!r} is not possible", allowed="a positive whole number")
    return float(tolerance), effort
