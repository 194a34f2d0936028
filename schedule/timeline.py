"""Tasks with durations, dependencies and the resources they hold: who runs when, and how long it all takes.

A resource serves one task at a time, a task holds all of its resources from start to end, and nothing is
interrupted. An order decides which of two tasks that need the same resource goes first; `execute` turns an
order into times, `list_order` makes a good one.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import NDArray

    Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """T tasks in a topological order, on R resources. Made by `task_graph`.

    Raises UsageError on a duration that is negative or not finite; the array is read-only.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """What sort of work each task is; for pictures and sums."""
    duration_s: NDArray[np.float64]
    """[T]"""
    holds: tuple[Ids, ...]
    """[T] resources that each task needs, ascending; () for a task that waits for no resource."""
    before: tuple[Ids, ...]
    """[T] tasks that must have ended."""
    resources: tuple[str, ...]

    def __post_init__(self) -> None:
        duration_s = np.array(self.duration_s, dtype=np.float64)
        wrong = np.flatnonzero(~(np.isfinite(duration_s) & (duration_s >= 0.0)))
        if wrong.size:
            raise UsageError(
                f"task {self.names[wrong[0]]!r} takes {duration_s[wrong[0]]} s",
                allowed="a finite time of at least 0 s",
            )
        duration_s.flags.writeable = False
        object.__setattr__(self, "duration_s", duration_s)

    @property
    def tasks(self) -> int:
        """T."""
        return len(self.names)

    @cached_property
    def after(self) -> tuple[Ids, ...]:
        """[T] tasks that wait for each task; the reverse of `before`."""
        found: list[list[int]] = [[] for _ in self.names]
        for task, earlier in enumerate(self.before):
            for other in earlier:
                found[other].append(task)
        return tuple(tuple(tasks) for tasks in found)

    @cached_property
    def head_s(self) -> NDArray[np.float64]:
        """[T] longest chain of tasks that must end before each task starts."""
        heads = [0.0] * self.tasks
        durations = self.duration_s.tolist()
        for task, earlier in enumerate(self.before):
            heads[task] = max((heads[other] + durations[other] for other in earlier), default=0.0)
        return np.array(heads)

    @cached_property
    def tail_s(self) -> NDArray[np.float64]:
        """[T] longest chain of tasks that can only start when each task has ended."""
        tails = [0.0] * self.tasks
        durations = self.duration_s.tolist()
        for task in reversed(range(self.tasks)):
            tails[task] = max((durations[other] + tails[other] for other in self.after[task]), default=0.0)
        return np.array(tails)

    @cached_property
    def longest_chain_s(self) -> float:
        """Time that dependencies alone ask for: the makespan on unlimited resources."""
        return float((self.head_s + self.duration_s).max(initial=0.0))

    @cached_property
    def busy_s(self) -> NDArray[np.float64]:
        """[R] time for which each resource is held."""
        return self.busy_with(self.kinds)

    def busy_with(self, kinds: Sequence[str]) -> NDArray[np.float64]:
        """Return float64 [R] the time for which each resource is held by tasks of some kinds."""
        busy_s = np.zeros(len(self.resources))
        for task, held in enumerate(self.holds):
            if self.kinds[task] in kinds:
                busy_s[list(held)] += self.duration_s[task]
        return busy_s

    def backwards(self) -> TaskGraph:
        """Return the graph as it looks when time runs backwards: task i becomes task T - 1 - i."""
        last = self.tasks - 1
        return TaskGraph(
            names=self.names[::-1],
            kinds=self.kinds[::-1],
            duration_s=self.duration_s[::-1],
            holds=self.holds[::-1],
            before=tuple(tuple(last - task for task in reversed(later)) for later in reversed(self.after)),
            resources=self.resources,
        )

    def on_devices(self, device_of: Mapping[str, str]) -> TaskGraph:
        """Return the same tasks on coarser devices, each of which does one thing at a time.

        Resources that `device_of` does not name stay as they are.
        """
        devices = tuple(dict.fromkeys(device_of.get(name, name) for name in self.resources))
        index = [devices.index(device_of.get(name, name)) for name in self.resources]
        holds = tuple(tuple(sorted({index[resource] for resource in held})) for held in self.holds)
        return replace(self, holds=holds, resources=devices)


def task_graph(graph: nx.DiGraph[Any], resources: Sequence[str]) -> TaskGraph:
    """Flatten a DiGraph whose edges say what comes first.

    Nodes are the tasks, with the attributes `duration_s`, `kind` (a word), and `resources` (names out of
    `resources`; may be empty). Ties of the topological order go to the node that was added first. Raises
    UsageError on a cycle and on a resource that there is not.
    """
    import networkx as nx

    added = {node: position for position, node in enumerate(graph)}
    try:
        order = list(nx.lexicographical_topological_sort(graph, key=added.__getitem__))
    except nx.NetworkXUnfeasible as error:
        cycle = " -> ".join(str(edge[0]) for edge in nx.find_cycle(graph))
        raise UsageError(f"tasks wait for each other: {cycle}") from error
    position = {node: index for index, node in enumerate(order)}
    known = {name: index for index, name in enumerate(resources)}
    return TaskGraph(
        names=tuple(str(node) for node in order),
        kinds=tuple(str(graph.nodes[node]["kind"]) for node in order),
        duration_s=np.array([graph.nodes[node]["duration_s"] for node in order], dtype=np.float64),
        holds=tuple(_held(graph, node, known) for node in order),
        before=tuple(tuple(sorted(position[other] for other in graph.predecessors(node))) for node in order),
        resources=tuple(resources),
    )


def _held(graph: nx.DiGraph[Any], node: Hashable, known: Mapping[str, int]) -> Ids:
    wanted = set(graph.nodes[node]["resources"])
    if strangers := sorted(wanted - known.keys()):
        raise UsageError(
            f"task {str(node)!r} needs {strangers[0]!r}, which is no resource", allowed=", ".join(known)
        )
    return tuple(sorted(known[name] for name in wanted))


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every task of `graph` runs. Arrays are read-only."""

    graph: TaskGraph
    order: Ids
    """Tasks in the order in which they were started."""
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    """[T]"""
    waited_for: Ids
    """[T] task at whose end each task started: one it depends on, or that held its resource; -1 for none."""

    @property
    def makespan_s(self) -> float:
        """When the last task ends."""
        return float(self.end_s.max(initial=0.0))

    @property
    def busy_share(self) -> Mapping[str, float]:
        """Share of the makespan for which each resource is held."""
        whole_s = self.makespan_s or 1.0
        return dict(zip(self.graph.resources, (self.graph.busy_s / whole_s).tolist(), strict=True))

    @cached_property
    def critical_path(self) -> Ids:
        """Tasks from time 0 to the makespan, each of which starts when the one before ends.

        Their durations add up to the makespan: shortening any other task alone, in this order of
        execution, shortens nothing.
        """
        if not self.graph.tasks:
            return ()
        path = [int(self.end_s.argmax())]
        while self.waited_for[path[-1]] >= 0:
            path.append(self.waited_for[path[-1]])
        return tuple(reversed(path))


def execute(graph: TaskGraph, order: Sequence[int]) -> Timeline:
    """Run every task as early as the order on each resource allows.

    Raises UsageError where `order` is no permutation of the tasks, or runs a task before one that it
    depends on.
    """
    if sorted(order) != list(range(graph.tasks)):
        raise UsageError(f"an order names each of the {graph.tasks} tasks once")
    durations = graph.duration_s.tolist()
    starts, ends = [0.0] * graph.tasks, [-1.0] * graph.tasks
    waited_for = [-1] * graph.tasks
    last_on = [-1] * len(graph.resources)
    for task in order:
        start_s = 0.0
        for other in (*graph.before[task], *(last_on[resource] for resource in graph.holds[task])):
            if other < 0:
                continue
            if ends[other] < 0.0:
                raise UsageError(
                    f"the order runs {graph.names[task]!r} before {graph.names[other]!r}, which it waits for"
                )
            if ends[other] > start_s:
                start_s, waited_for[task] = ends[other], other
        starts[task], ends[task] = start_s, start_s + durations[task]
        for resource in graph.holds[task]:
            last_on[resource] = task
    start, end = np.array(starts), np.array(ends)
    start.flags.writeable = end.flags.writeable = False
    return Timeline(graph, tuple(order), start, end, tuple(waited_for))


def list_order(graph: TaskGraph, priority: Sequence[float] | None = None) -> Ids:
    """Return the order of a list schedule: whenever resources are free, the most urgent ready task starts.

    `priority` [T] is larger for what is more urgent; by default the longest chain from the start of a task
    to the end of everything. Ties go to the task that comes first in the graph.
    """
    urgency = graph.duration_s + graph.tail_s if priority is None else np.asarray(priority)
    rank = np.empty(graph.tasks, dtype=np.int64)
    rank[np.argsort(-urgency, kind="stable")] = np.arange(graph.tasks)
    return _ListScheduler(graph, rank.tolist()).run()


def list_schedule(graph: TaskGraph, priority: Sequence[float] | None = None) -> Timeline:
    """Execute `list_order`."""
    return execute(graph, list_order(graph, priority))


class _ListScheduler:
    """The state between two events: an event is the end of one or more tasks."""

    def __init__(self, graph: TaskGraph, rank: list[int]) -> None:
        self.graph = graph
        self.rank = rank
        self.durations = graph.duration_s.tolist()
        self.missing = [len(earlier) for earlier in graph.before]
        self.free = [True] * len(graph.resources)
        self.ready: dict[Ids, list[tuple[int, int]]] = {}  # by what they hold: heaps of (rank, task)
        self.running: list[tuple[float, int]] = []  # heap of (end, task)
        self.order: list[int] = []

    def run(self) -> Ids:
        """Return the tasks in the order in which they start."""
        for task, missing in enumerate(self.missing):
            if not missing:
                self._becomes_ready(task)
        now_s = 0.0
        while True:
            while (urgent := self._most_urgent()) is not None:
                self._start(urgent, now_s)
            if not self.running:
                return tuple(self.order)
            now_s = self.running[0][0]
            while self.running and self.running[0][0] == now_s:
                self._end(heapq.heappop(self.running)[1])

    def _becomes_ready(self, task: int) -> None:
        heapq.heappush(self.ready.setdefault(self.graph.holds[task], []), (self.rank[task], task))

    def _most_urgent(self) -> int | None:
        """Take the ready task of the lowest rank whose resources are all free."""
        startable = [
            held for held, waiting in self.ready.items() if waiting and all(self.free[r] for r in held)
        ]
        if not startable:
            return None
        return heapq.heappop(self.ready[min(startable, key=lambda held: self.ready[held][0])])[1]

    def _start(self, task: int, now_s: float) -> None:
        self.order.append(task)
        for resource in self.graph.holds[task]:
            self.free[resource] = False
        heapq.heappush(self.running, (now_s + self.durations[task], task))

    def _end(self, task: int) -> None:
        for resource in self.graph.holds[task]:
            self.free[resource] = True
        for later in self.graph.after[task]:
            self.missing[later] -= 1
            if not self.missing[later]:
                self._becomes_ready(later)
