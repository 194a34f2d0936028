"""The family's own choice."""

from __future__ import annotations

import math

from ..control import Claim, Control
from .annealing import annealing
from .exact import exact
from .problem import Decision, problem_of

#: Full placements up to which the tree is searched whole.
_SMALL = 100_000


def auto(control: Control[Decision]) -> Claim:
    """Prove the optimum where the instance is small; anneal otherwise."""
    problem = problem_of(control)
    small = problem.experts * math.log(len(problem.groups)) <= math.log(_SMALL)
    return exact(control) if small else annealing(control)
