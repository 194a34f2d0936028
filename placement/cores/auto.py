"""The family's own choice."""

from __future__ import annotations

from ..control import Claim, Control
from .annealing import annealing
from .cpsat import cpsat
from .problem import Decision, problem_of

#: Coefficients of the whole model up to which it is solved to the end.
_SMALL = 2_000


def auto(control: Control[Decision]) -> Claim:
    """Prove the optimum where the instance is small; anneal otherwise."""
    problem = problem_of(control)
    return cpsat(control) if problem.jobs.size * problem.layout.places <= _SMALL else annealing(control)
