"""The family's own choice."""

from __future__ import annotations

import math

from ..control import Claim, Control
from .annealing import anneal_passes
from .exact import exact
from .problem import Decision, problem_of

#: Full placements up to which the tree is searched whole.
_SMALL = 100_000


def auto(control: Control[Decision]) -> Claim:
    """Prove the optimum where the instance is small; otherwise anneal until a pass gains next to nothing."""
    problem = problem_of(control)
    small = problem.experts * math.log(len(problem.groups)) <= math.log(_SMALL)
    return exact(control) if small else anneal_passes(control, until_converged=True)
