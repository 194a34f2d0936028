"""Rings that are written down or descended to at once: what exact answers are compared with."""

from __future__ import annotations

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from . import construct
from .problem import RingOrder, problem_of


def row_major(control: Control[RingOrder]) -> Claim:
    """Offer the cores by id."""
    return _offer(control, construct.row_major(problem_of(control).cores))


def snake(control: Control[RingOrder]) -> Claim:
    """Offer the closed tour of a rectangle, or rows in alternating direction (SPIMOE 3.3.2)."""
    problem = problem_of(control)
    return _offer(control, construct.snake(problem.topology, problem.cores))


def nn_2opt(control: Control[RingOrder]) -> Claim:
    """Nearest neighbour from the lowest core, 2-opt while the largest hop gets smaller (SPIMOE 3.3.2)."""
    from .local import nearest_neighbour, two_opt_largest

    problem = problem_of(control)
    order = np.empty(problem.n, dtype=np.int32)
    nearest_neighbour(problem.hops, 0, order)
    two_opt_largest(problem.hops, order)
    return _offer(control, problem.at(order.tolist()).order)


def multistart_2opt(control: Control[RingOrder]) -> Claim:
    """Nearest neighbour from every core, each with a 2-opt on the changed hops; both directions of each ring.

    An iteration is a start.
    """
    from .local import nearest_neighbour, two_opt

    problem = problem_of(control)
    order = np.empty(problem.n, dtype=np.int32)
    for first in range(problem.n):
        nearest_neighbour(problem.hops, first, order)
        two_opt(problem.hops, order)
        ring = problem.at(order.tolist())
        control.iterations += 1
        control.offer(ring)
        control.offer(ring.reversed())
        if (stop := control.should_stop()) is not None:
            return Claim(stop)
    return Claim(Stop.CONVERGED)


def _offer(control: Control[RingOrder], order: tuple[int, ...]) -> Claim:
    control.iterations += 1
    control.offer(RingOrder(order))
    return Claim(Stop.CONVERGED)
