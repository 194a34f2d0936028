"""Exact search by yes/no questions: whether a ring has at most so much load and at most such hops.

Every objective of the family rises with the load and with the hops, so all rings that beat the best one known
lie in a few cells "load at most l, hops at most h". A method that decides one cell (`Oracle`) is thereby
exact for the objective: cells are asked until each is proven empty or holds the best. Among rings of equal
load and hops the default objective then asks for the fewest hops in total. For the largest hop alone this is
how Carpaneto, Martello and Toth 1984, doi 10.1287/opre.32.2.380, solve the bottleneck travelling salesman.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from ..control import Claim, Control
from ..problem import SAME_COST, Bound, strongest
from ..result import Stop
from .problem import Measure, RingOrder, RingProblem, problem_of

#: Share of a budget after which a solver that gives up has reached its limit.
_ALL_BUT_SPENT = 0.9
#: Arcs and link uses of the largest model that is written down: building it takes about a second.
_LARGEST_MODEL = 400_000


class Limits(NamedTuple):
    """A cell: what a ring is to keep. The load is None where any will do."""

    load: int | None
    hops: int

    def cover(self, other: Limits) -> bool:
        """Tell whether every ring inside `other` is inside this cell as well."""
        if other.load is None or self.load is None:
            return self.load is None and self.hops >= other.hops
        return self.load >= other.load and self.hops >= other.hops


class Answer(NamedTuple):
    """What an oracle says of a cell: a ring inside it, and whether it decided the question."""

    ring: RingOrder | None
    proven: bool


class Shortest(NamedTuple):
    """The shortest ring that an oracle found in a cell, if any, and a total that none in it falls below."""

    ring: RingOrder | None
    least: int


class Oracle(Protocol):
    """A method that decides cells, as far as the budget reaches."""

    name: str

    def find(self, limits: Limits) -> Answer:
        """Return a ring inside the limits; without one, `proven` says that there is none."""

    def shorten(self, limits: Limits, ring: RingOrder, least: int) -> Shortest:
        """Look for a ring inside the limits with fewer hops in total than `ring`, which lies inside.

        `least` is a total that no such ring falls below.
        """


def search(control: Control[RingOrder], oracle: Oracle) -> Claim:
    """Ask cells, best first, until the best ring is proven or the budget is spent.

    `control` must hold a ring already. `control.floor` rises with every cell that is proven empty.
    """
    problem, by = problem_of(control), f"threshold search ({oracle.name})"
    least_total = cache(problem.least_total)  # of few limits, each of them asked for at many turns
    empty: list[Limits] = []
    while True:
        best = _best(control)
        cells = list(open_cells(problem, best, empty))
        _raise_floor(control, [lowest for lowest, _ in cells] or [Limits(*best[:2])], least_total, by)
        if (stop := control.should_stop()) is not None:
            return Claim(stop)
        if not cells:
            break
        lowest, highest = cells[0]
        question = lowest if lowest.load in (None, best.link_load) else highest
        answer = oracle.find(question)
        if answer.ring is not None:
            control.offer(answer.ring)
        elif answer.proven:
            empty.append(question)
        else:
            return Claim(_gave_up(control))
    return _shorten(control, oracle, least_total, by)


def open_cells(
    problem: RingProblem, best: Measure, empty: Sequence[Limits] = ()
) -> Iterator[tuple[Limits, Limits]]:
    """Yield the smallest and the largest cell that could hold a better ring than `best`, for every load.

    Better in load and hops, that is. Cells inside `empty` ones are left out. Loads ascend.
    """
    levels = [hops for hops in np.unique(problem.hops).tolist() if hops >= problem.floor.counts[1]]
    limit = _rank(problem, Limits(*best[:2])) * (1.0 - SAME_COST)
    loads = [None] if problem.objective == "hops" else count(problem.floor.counts[0])
    for load in loads:
        better = [Limits(load, hops) for hops in levels if _rank(problem, Limits(load, hops)) < limit]
        if not better:
            return
        unknown = [cell for cell in better if not any(seen.cover(cell) for seen in empty)]
        if unknown:
            yield unknown[0], better[-1]


def fits_a_model(problem: RingProblem, limits: Limits) -> bool:
    """Tell whether a cell is small enough to be handed to a solver."""
    allowed = problem.hops[problem.hops <= limits.hops]
    return bool(allowed.size + (0 if limits.load is None else allowed.sum()) <= _LARGEST_MODEL)


def crowded_links(
    problem: RingProblem, arcs: Sequence[tuple[int, int]], limit: int | None
) -> list[list[tuple[int, int]]]:
    """Return, for every link that could carry more than `limit` transfers, the arcs that put one on it.

    An arc that uses a link twice (a pair of rings on half-duplex links) is listed twice.
    """
    if limit is None:
        return []
    users: dict[int, list[tuple[int, int]]] = {}
    start, links = problem.arcs
    for i, j in arcs:
        arc = i * problem.n + j
        for link in links[start[arc] : start[arc + 1]].tolist():
            users.setdefault(link, []).append((i, j))
    return [crowd for crowd in users.values() if len(crowd) > limit]


def _shorten(
    control: Control[RingOrder], oracle: Oracle, least_total: Callable[[int], int], by: str
) -> Claim:
    """Prove the total of the best ring, whose load and hops are proven, where the objective asks for it."""
    problem = problem_of(control)
    if problem.objective != "load,hops,total":
        return Claim(Stop.CONVERGED)
    best, ring = _best(control), control.best
    assert ring is not None
    least = least_total(best.bottleneck_hops)
    if least < best.total_hops:
        found = oracle.shorten(Limits(*best[:2]), ring, least)
        least = found.least
        if found.ring is not None:
            control.offer(found.ring)
    control.floor = strongest(control.floor, Bound(problem.value(best._replace(total_hops=least)), by))
    return Claim(_gave_up(control) if _best(control).total_hops > least else Stop.CONVERGED)


def _gave_up(control: Control[RingOrder]) -> Stop:
    """Why an oracle did not decide: the budget, of which solvers leave a little, or the size of the cell."""
    stop = control.should_stop()
    if stop is not None or control.progress() < _ALL_BUT_SPENT:
        return stop or Stop.CONVERGED
    return Stop.TIME_LIMIT if control.budget.iterations is None else Stop.ITERATION_LIMIT


def _raise_floor(
    control: Control[RingOrder], cells: list[Limits], least_total: Callable[[int], int], by: str
) -> None:
    """Every ring that is not in an empty cell is in one of `cells`, or is worse than one that is."""
    problem = problem_of(control)
    load, hops = min(cells, key=lambda cell: _rank(problem, cell))
    value = problem.value(Measure(load or 0, hops, least_total(hops)))
    control.floor = strongest(control.floor, Bound(value, by))


def _rank(problem: RingProblem, cell: Limits) -> float:
    """Order cells as the objective does rings of one total."""
    return problem.value(Measure(cell.load or 0, cell.hops, 0))


def _best(control: Control[RingOrder]) -> Measure:
    assert control.best is not None
    return problem_of(control).measure(control.best)
