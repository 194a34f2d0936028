"""The best order of a task graph, and what no order can beat."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..placement.problem import SAME_COST, Bound, strongest
from ..placement.result import Budget, Stop
from ..placement.search.cpsat import new_solver, run_solver
from .timeline import TaskGraph, Timeline, execute, list_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

TICKS: Final = 10**8
"""Of the makespan to beat. Durations are rounded down, so that CP-SAT's bound stays sound."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best timeline known, the list schedule that it began from, and a bound on all."""

    timeline: Timeline
    listed: Timeline
    bound: Bound
    stop: Stop
    """OPTIMAL where the bound meets the makespan, within the rounding to ticks."""

    @property
    def gap(self) -> float:
        """(makespan - bound) / makespan of the best timeline: 0.0 is proven optimal."""
        return gap_to(self.bound, self.timeline)

    @property
    def list_gap(self) -> float:
        """The same of the list schedule: how much any order could save, at most."""
        return gap_to(self.bound, self.listed)


def gap_to(bound: Bound, timeline: Timeline) -> float:
    """Return (makespan - bound) / makespan, at least 0.0."""
    makespan_s = timeline.makespan_s
    return max(0.0, 1.0 - bound.value_s / makespan_s) if makespan_s else 0.0


def lower_bound(graph: TaskGraph) -> Bound:
    """Return the larger of the longest chain, and of what each resource needs for its tasks.

    A resource's tasks become ready after their longest chain before, and each leaves its longest chain
    after; the best schedule of one resource that may interrupt tasks is a bound (Jackson's preemptive
    schedule; Carlier 1982). It is never below the resource's busy time.
    """
    bounds = [Bound(graph.longest_chain_s, "longest chain of tasks")]
    for resource, name in enumerate(graph.resources):
        tasks = [task for task, held in enumerate(graph.holds) if resource in held]
        bounds.append(Bound(_one_resource_s(graph, tasks), f"work on {name}"))
    return strongest(*bounds)


def _one_resource_s(graph: TaskGraph, tasks: list[int]) -> float:
    """Run what has the longest tail, interrupting it when something with a longer tail becomes ready."""
    heads, tails = graph.head_s.tolist(), graph.tail_s.tolist()
    coming = sorted(tasks, key=heads.__getitem__, reverse=True)
    waiting: list[tuple[float, float]] = []  # heap of (-tail, remaining)
    now_s = latest_s = 0.0
    while coming or waiting:
        if not waiting:
            now_s = max(now_s, heads[coming[-1]])
        while coming and heads[coming[-1]] <= now_s:
            task = coming.pop()
            heapq.heappush(waiting, (-tails[task], float(graph.duration_s[task])))
        minus_tail_s, left_s = heapq.heappop(waiting)
        free_s = heads[coming[-1]] - now_s if coming else left_s
        if left_s <= free_s:
            now_s += left_s
            latest_s = max(latest_s, now_s - minus_tail_s)
        else:
            now_s = heads[coming[-1]]
            heapq.heappush(waiting, (minus_tail_s, left_s - free_s))
    return latest_s


def forth_and_back(timeline: Timeline) -> Timeline:
    """Improve a timeline by list schedules in alternating directions of time, until that gains nothing.

    What ended last in one direction is the most urgent in the other: unlike the longest chain, its place
    in a whole schedule tells how much work on busy resources stands behind a task (forward-backward
    improvement: Li and Willis 1992; Valls et al. 2005). Never longer than `timeline`.
    """
    graph, best = timeline.graph, timeline
    mirror = graph.backwards()
    while True:
        back = list_schedule(mirror, best.end_s[::-1].tolist())
        forth = list_schedule(graph, back.end_s[::-1].tolist())
        mirrored = execute(graph, [graph.tasks - 1 - task for task in reversed(back.order)])
        found = min(mirrored, forth, key=_makespan_s)
        if found.makespan_s >= best.makespan_s * (1.0 - SAME_COST):
            return best
        best = found


def optimal(graph: TaskGraph, *, budget: Budget | None = None, seed: int = 0) -> Optimum:
    """Search for the order of the smallest makespan by CP-SAT with one interval per task, one worker.

    Begins with the list schedule and `forth_and_back`, and ends at once where the bound meets it. An
    iteration budget is spent as deterministic time, 1000 iterations a unit, and gives the same answer on
    every run.
    """
    listed, bound = list_schedule(graph), lower_bound(graph)
    best = listed if _meets(bound, listed) else forth_and_back(listed)
    if _meets(bound, best):
        return Optimum(best, listed, bound, Stop.OPTIMAL)
    tick_s = best.makespan_s / TICKS
    found, value, stop = _solve(_in_ticks(graph, tick_s), best, budget or Budget(), seed)
    bound = strongest(bound, Bound(max(0.0, value) * tick_s, "CP-SAT"))
    best = min((best, *(execute(graph, order) for order in found)), key=_makespan_s)
    return Optimum(best, listed, bound, Stop.OPTIMAL if _meets(bound, best) else stop)


def _makespan_s(timeline: Timeline) -> float:
    return timeline.makespan_s


def _meets(bound: Bound, timeline: Timeline) -> bool:
    return bound.value_s >= timeline.makespan_s * (1.0 - SAME_COST)


def _in_ticks(graph: TaskGraph, tick_s: float) -> TaskGraph:
    """Round durations down to whole ticks: no order gets slower by it."""
    return replace(graph, duration_s=np.floor(graph.duration_s / tick_s * (1.0 - 1e-15)))


def _solve(
    graph: TaskGraph, start: Timeline, budget: Budget, seed: int
) -> tuple[list[tuple[int, ...]], float, Stop]:
    """Return the order found (none where CP-SAT had no time), the bound in ticks, and why it stopped."""
    from ortools.sat.python import cp_model

    model, starts = _model(graph, execute(graph, start.order))
    units = None if budget.iterations is None else budget.iterations / 1000.0
    solver = new_solver(seed, seconds=budget.time_s, units=units)
    solver.parameters.interleave_search = True  # neighbourhood search in turns with the proof, repeatable
    solver.parameters.relative_gap_limit = budget.gap
    status = run_solver(solver, model, threading.Event())
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [], solver.best_objective_bound, Stop.TIME_LIMIT
    begun = [solver.value(start) for start in starts]
    ended = [start + int(ticks) for start, ticks in zip(begun, graph.duration_s, strict=True)]
    order = tuple(sorted(range(graph.tasks), key=lambda task: (begun[task], ended[task], task)))
    return [order], solver.best_objective_bound, _why(status == cp_model.OPTIMAL, budget)


def _why(proven: bool, budget: Budget) -> Stop:
    if proven:
        return Stop.GAP_REACHED if budget.gap else Stop.CONVERGED
    return Stop.TIME_LIMIT if budget.iterations is None else Stop.ITERATION_LIMIT


def _model(graph: TaskGraph, hint: Timeline) -> tuple[Any, list[Any]]:
    """Return the model in ticks, which cannot take longer than the hint, and its start variables."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    horizon = int(hint.makespan_s)
    heads, durations, tails = (_ints(ticks) for ticks in (graph.head_s, graph.duration_s, graph.tail_s))
    makespan = model.new_int_var(int(np.ceil(lower_bound(graph).value_s)), horizon, "makespan")
    starts: list[Any] = []
    intervals: list[Any] = []
    for task, name in enumerate(graph.names):
        latest = horizon - tails[task] - durations[task]
        start = model.new_int_var(heads[task], latest, name)
        intervals.append(model.new_fixed_size_interval_var(start, durations[task], name))
        for other in graph.before[task]:
            model.add(start >= starts[other] + durations[other])
        if not graph.after[task]:
            model.add(makespan >= start + durations[task])
        model.add_hint(start, int(hint.start_s[task]))
        starts.append(start)
    for resource in range(len(graph.resources)):
        model.add_no_overlap([intervals[task] for task, held in enumerate(graph.holds) if resource in held])
    model.minimize(makespan)
    return model, starts


def _ints(ticks: NDArray[np.float64]) -> list[int]:
    return [int(value) for value in ticks]
