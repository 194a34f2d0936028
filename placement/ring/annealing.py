"""Simulated annealing on the order, towards a cell of load and hops that would beat the best ring."""

from __future__ import annotations

from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..control import Claim, Control
from ..result import Stop
from ..search.cooling import temperatures
from ..search.random import seeded
from .anneal_kernel import anneal, sample
from .local import nearest_neighbour, two_opt
from .problem import Measure, RingOrder, RingProblem, problem_of
from .thresholds import Limits, open_cells

_NEAR = 8  # neighbours that a move may bring a core to
_WEIGHT = 2  # hops that a hop or a transfer beyond its limit counts for, beside itself
_SAMPLE = 256
_FIRST_MOVES, _MOST_MOVES = 2_000, 100_000
_LARGE = 64  # cores from which on moves take longer in proportion


class Annealer:
    """The arrays of a problem that its kernel works on, and one random generator for all runs."""

    def __init__(self, control: Control[RingOrder]) -> None:
        self.control = control
        self.problem = problem_of(control)
        hops = self.problem.hops
        far = hops + np.diag(np.full(len(hops), hops.max() + 1))
        nearest = np.argsort(far, axis=1, kind="stable")[:, : min(_NEAR, len(hops) - 1)]
        self._near = np.ascontiguousarray(nearest.astype(np.int32))
        self._hops = np.ascontiguousarray(hops.ravel())
        self._rng = seeded(control.seed)
        self.run(Limits(None, int(hops.max())), goal=0, moves=0, order=self.start())
        control.restart_clock()  # the run without moves compiled the kernels

    def start(self) -> NDArray[np.int32]:
        """Return positions `[n]` of a short ring: nearest neighbour from the lowest core, then 2-opt."""
        order = np.empty(self.problem.n, dtype=np.int32)
        nearest_neighbour(self.problem.hops, 0, order)
        two_opt(self.problem.hops, order)
        return order

    def run(self, limits: Limits, goal: int, moves: int, order: NDArray[np.int32]) -> RingOrder | None:
        """Cool once over `moves` from `order`, which is changed; return the best ring if it keeps the limits.

        Ends at the first one of at most `goal` hops in total. Moves count as iterations, and no more are made
        than are left.
        """
        left = self.control.iterations_left()
        moves = moves if left is None else min(moves, left)
        price = (self._hops + _WEIGHT * np.maximum(0, self._hops - limits.hops)).astype(np.int32)
        load = np.zeros(self.problem.topology.links, dtype=np.int32)
        most = -1 if limits.load is None else limits.load
        network = (self._hops, price, self._near, *self._arcs(limits), load, most, _WEIGHT)
        deltas, best = np.empty(_SAMPLE), np.empty_like(order)
        sample(*network, order, self._rng, deltas)
        hot, cold = temperatures(deltas[np.isfinite(deltas)])
        excess, made = anneal(*network, order, self._rng, goal, moves, hot, cold, best)
        self.control.iterations += made
        return self.problem.at(best.tolist()) if excess == 0 else None

    def _arcs(self, limits: Limits) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Routes of the arcs; none where the load does not matter."""
        if limits.load is None:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        arcs = self.problem.arcs
        return arcs.start, arcs.links


def annealing(control: Control[RingOrder]) -> Claim:
    """Cool again and again from the best ring, longer each time, towards every cell that would beat it.

    Begins at `control.start`, or at nearest neighbour with 2-opt. An iteration is a proposed move.
    """
    problem, annealer = problem_of(control), Annealer(control)
    if control.best is None:
        control.offer(problem.at(annealer.start().tolist()))
    most_moves = _MOST_MOVES * _LARGE // max(_LARGE, problem.n)
    for turn in count():
        if (stop := control.should_stop()) is not None:
            return Claim(stop)
        assert control.best is not None
        targets = _targets(problem, problem.measure(control.best))
        if not targets:
            return Claim(Stop.CONVERGED)
        limits, goal = targets[turn % len(targets)]
        moves = min(most_moves, _FIRST_MOVES << turn // len(targets))
        found = annealer.run(limits, goal, moves, problem.positions(control.best))
        if found is not None:
            control.offer(found)
        else:
            control.tick()
    raise AssertionError("count() has no end")


def _targets(problem: RingProblem, best: Measure) -> list[tuple[Limits, int]]:
    """Return cells of better rings, with the total that is good enough in them."""
    anything = problem.n * problem.diameter
    cells = [(highest, anything) for _, highest in open_cells(problem, best)]
    if problem.objective == "load,hops,total":
        cells.append((Limits(best.link_load, best.bottleneck_hops), best.total_hops - 1))
    return cells
