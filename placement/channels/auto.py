"""The family's own choice."""

from __future__ import annotations

from ..control import Claim, Control
from .annealing import annealing
from .exact import exact
from .problem import Decision, problem_of

#: Full placements up to which the tree is searched whole.
_SMALL = 100_000.0


def auto(control: Control[Decision]) -> Claim:
    """Prove the optimum where the instance is small; anneal otherwise."""
    problem = problem_of(control)
    small = float(len(problem.groups)) ** problem.experts <= _SMALL
    return exact(control) if small else annealing(control)
