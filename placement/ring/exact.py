"""The proven best ring: bounds first, then a short annealing, then dynamic programming or CP-SAT."""

from __future__ import annotations

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from .annealing import Annealer, annealing
from .construct import row_major, snake
from .cpsat import CpSat
from .problem import RingOrder, problem_of
from .reach import MOST_CORES, hamiltonian_cycle
from .thresholds import Answer, Limits, Shortest, fits_a_model, search

#: Annealing moves per pair of cores, after which a solver is more likely to find a ring or to exclude it.
_WITNESS_MOVES, _SHORTENING_MOVES = 20, 40
_MOST_MOVES = 200_000


def exact(control: Control[RingOrder]) -> Claim:
    """Find the best ring and prove it.

    Row-major and snake come first: on rectangles they meet the bound. Then cells of load and hops are asked
    (`thresholds.search`), each of a short annealing that may find a ring at once, and of a solver that also
    proves where there is none. What is too large for that is annealed until the budget ends. An iteration is
    a move of the annealing, or a millionth of a unit of CP-SAT's deterministic time.
    """
    problem = problem_of(control)
    control.iterations += 1
    ring = RingOrder(row_major(problem.cores))
    cost = control.offer(ring)
    if problem.n <= 3:
        least = min(cost.objective_s, control.offer(ring.reversed()).objective_s)
        return Claim(Stop.CONVERGED, Bound(least, "both directions of the only ring"))
    control.offer(RingOrder(snake(problem.topology, problem.cores)))
    claim = search(control, _WitnessThenProof(control))
    return claim if control.should_stop() is not None else annealing(control)


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
        moves = min(_MOST_MOVES, _WITNESS_MOVES * problem.n**2)
        ring = self.annealer.run(limits, problem.n * problem.diameter, moves, self.annealer.start())
        if ring is not None or self.control.should_stop():
            return Answer(ring, proven=False)
        if limits.load is None and problem.n <= MOST_CORES:
            order = hamiltonian_cycle(problem.hops <= limits.hops)
            return Answer(None if order is None else problem.at(order.tolist()), proven=True)
        if not fits_a_model(problem, limits):
            return Answer(None, proven=False)
        return self.proof.find(limits)

    def shorten(self, limits: Limits, ring: RingOrder, least: int) -> Shortest:
        """Anneal from `ring`, and prove the total unless `least` is reached."""
        moves = min(_MOST_MOVES, _SHORTENING_MOVES * self.problem.n**2)
        shorter = self.annealer.run(limits, least, moves, self.problem.positions(ring))
        if shorter is not None:
            self.control.offer(shorter)
            ring = shorter
        short = self.problem.measure(ring).total_hops <= least
        if short or self.control.should_stop() or not fits_a_model(self.problem, limits):
            return Shortest(ring, least)
        return self.proof.shorten(limits, ring, least)


def auto(control: Control[RingOrder]) -> Claim:
    """The family's own choice: `exact`, which is anytime."""
    return exact(control)
