"""The proven best ring: bounds first, then a short annealing, then dynamic programming or CP-SAT."""

from __future__ import annotations

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from .annealing import Annealer
from .construct import row_major, snake
from .cpsat import CpSat
from .problem import RingOrder, problem_of
from .reach import MOST_CORES, hamiltonian_cycle
from .thresholds import Answer, Limits, Shortest, search

#: Moves after which a ring is more likely to be found, or excluded, by a solver.
_WITNESS_MOVES = 20_000
_SHORTENING_MOVES = 40_000


def exact(control: Control[RingOrder]) -> Claim:
    """Find the best ring and prove it.

    Row-major and snake come first: on rectangles they meet the bound. Then cells of load and hops are asked
    (`thresholds.search`), each of a short annealing that may find a ring at once, and of a solver that also
    proves where there is none. An iteration is a move of the annealing, or a millionth of a unit of CP-SAT's
    deterministic time.
    """
    problem = problem_of(control)
    control.iterations += 1
    control.offer(RingOrder(row_major(problem.cores)))
    if problem.n <= 3:
        cost = control.offer(RingOrder(problem.cores).reversed())
        least = min(cost.objective_s, problem.evaluate(RingOrder(problem.cores)).objective_s)
        return Claim(Stop.CONVERGED, Bound(least, "both directions of the only ring"))
    control.offer(RingOrder(snake(problem.topology, problem.cores)))
    return search(control, _WitnessThenProof(control))


class _WitnessThenProof:
    """Annealing finds most rings that there are; the rest is for dynamic programming or CP-SAT."""

    name = CpSat.name

    def __init__(self, control: Control[RingOrder]) -> None:
        self.control = control
        self.problem = problem_of(control)
        self.proof = CpSat(control)
        self.annealer = Annealer(control)

    def find(self, limits: Limits) -> Answer:
        """Decide the cell."""
        problem = self.problem
        ring = self.annealer.run(limits, problem.n * problem.diameter, _WITNESS_MOVES, self.annealer.start())
        if ring is not None or self.control.should_stop():
            return Answer(ring, proven=False)
        if limits.load is None and problem.n <= MOST_CORES:
            order = hamiltonian_cycle(problem.hops <= limits.hops)
            return Answer(None if order is None else problem.at(order.tolist()), proven=True)
        return self.proof.find(limits)

    def shorten(self, limits: Limits, ring: RingOrder, least: int) -> Shortest:
        """Anneal from `ring`, and prove the total unless `least` is reached."""
        shorter = self.annealer.run(limits, least, _SHORTENING_MOVES, self.problem.positions(ring))
        if shorter is not None:
            self.control.offer(shorter)
            ring = shorter
        if self.problem.measure(ring).total_hops <= least or self.control.should_stop():
            return Shortest(ring, least)
        return self.proof.shorten(limits, ring, least)


def auto(control: Control[RingOrder]) -> Claim:
    """The family's own choice: `exact`, which is anytime."""
    return exact(control)
