"""The optimum with its proof (`exact`, `auto`), and what fits on the critical path (`fast`)."""

from __future__ import annotations

import numpy as np

from ..control import Claim, Control
from ..problem import SAME_COST, Bound
from ..result import Stop
from .problem import Decision, problem_of
from .published import pimoe, sieve
from .workspace import Workspace

#: Nodes that `fast` and the online API may search: tens of microseconds at most.
FAST_NODES = 1024
_FIRST_CHUNK = 1 << 14


def fast(control: Control[Decision]) -> Claim:
    """Round the relaxation and search near it, for as long as a scheduler can wait; with a bound."""
    return _attempt(control, FAST_NODES, exactly=False)


def exact(control: Control[Decision]) -> Claim:
    """Search until the optimum is proven. An iteration is a node, or with homes a partition.

    With homes, an instance with more choices than can be listed is left with heuristics and a bound, and one
    that halving does not prove with what it found: looking longer would find the same again.
    """
    nodes = _FIRST_CHUNK
    while True:
        left = control.iterations_left()
        claim = _attempt(control, nodes if left is None else max(1, min(nodes, left)), exactly=True)
        if claim.stop is not Stop.ITERATION_LIMIT:
            return claim
        if (stop := control.should_stop()) is not None:
            return Claim(stop, claim.bound)
        nodes *= 4


def _attempt(control: Control[Decision], nodes: int, *, exactly: bool) -> Claim:
    p = problem_of(control)
    mask = np.zeros(p.experts, dtype=np.bool_)
    effort = nodes if p.homes == 1 or exactly else 0
    answer = Workspace(p.home, p.homes).split(
        p.tokens, p.table, p.coefficients, p.attention_s, p.comm_s, effort, mask
    )
    if answer.looked < 0:
        sieve(control)
        pimoe(control)
        return Claim(Stop.CONVERGED)
    control.iterations += max(1, answer.looked)
    control.offer(Decision(mask))
    bound = Bound(answer.bound_s * (1.0 - 0.5 * SAME_COST), "relaxation and search around it")
    if answer.bound_s >= answer.total_s:
        return Claim(Stop.OPTIMAL, bound)
    return Claim(Stop.ITERATION_LIMIT if exactly and p.homes == 1 else Stop.CONVERGED, bound)
