"""The family's own choice."""

from __future__ import annotations

from ..control import Claim, Control
from .annealing import anneal_at_most
from .cpsat import cpsat
from .problem import Decision, problem_of

#: Coefficients of the whole model up to which it is solved to the end.
_SMALL = 2_000
#: Moves per expert otherwise: four times as many gain some 3 % where the bound is far, for as much more time.
_MOVES = 1_000


def auto(control: Control[Decision]) -> Claim:
    """Prove the optimum where the instance is small and without risk, which CP-SAT's model leaves out.

    Otherwise anneal, so many moves an expert.
    """
    problem = problem_of(control)
    if problem.risk <= 0.0 and problem.jobs.size * problem.layout.places <= _SMALL:
        return cpsat(control)
    return anneal_at_most(control, _MOVES * problem.experts)
