"""What integer programs look at: the steps whose rounds are in doubt, all others at their bound.

The mean over all steps is at least the mean in which some steps count their own lower bound only, so the
optimum of a model on few steps, and its dual bound, bound the whole from below. Standard deviations are
left out for the same reason: they are never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from ..control import Control
from ..problem import Bound
from .problem import CoreProblem, Decision, problem_of
from .published import lpt

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Coefficients that a model is kept under where the number of steps is not given.
_TERMS_BY_DEFAULT = 100_000


@dataclass(frozen=True, eq=False)
class Doubtful:
    """minimise sum over s of R_s, with R_s >= least[s] and every place's jobs in step s at most G * R_s.

    `jobs` [E, D] and `least` [D] of the doubtful steps; `others` is the sum of the other steps' bounds.
    `order` [E] are the experts, heaviest first: places are alike, so that expert `order[i]` need only be
    tried on places 0..i. `known` [E] is the best placement so far under that numbering.
    """

    jobs: NDArray[np.int64]
    least: NDArray[np.int64]
    others: int
    steps: int
    order: NDArray[np.int64]
    known: NDArray[np.int64]

    def allowed(self, places: int) -> dict[int, range]:
        """Places on which every expert is tried."""
        return {int(e): range(min(i + 1, places)) for i, e in enumerate(self.order)}

    def bound(self, value: float, round_s: float, by: str) -> Bound:
        """Return what a bound on the model's objective says of the whole."""
        return Bound(max(0.0, (value + self.others) / self.steps) * round_s, by)


def doubtful(control: Control[Decision]) -> Doubtful:
    """Take the steps in which the best placement so far (LPT where there is none) is above its bound.

    Option `steps`: at most so many; by default as many as keep the model small, filled up with other steps.
    Raises UsageError where it is not a whole number of at least 1.
    """
    problem = problem_of(control)
    if control.best is None:
        lpt(control)
        control.iterations = 0
    assert control.best is not None
    limit = _limit(control.options.get("steps"), problem)
    least = problem.least.astype(np.int64)
    over = problem.all_rounds(control.best) - least
    # Most in doubt first; of equal ones the earlier.
    chosen = np.sort(np.argsort(-over, kind="stable")[:limit])
    total = problem.jobs.sum(axis=0, dtype=np.int64)
    order = np.argsort(-total, kind="stable")
    return Doubtful(
        jobs=np.ascontiguousarray(problem.jobs[chosen].T, dtype=np.int64),
        least=least[chosen],
        others=int(least.sum() - least[chosen].sum()),
        steps=len(least),
        order=order,
        known=_renumbered(control.best.place_of, order),
    )


def _limit(given: object, problem: CoreProblem) -> int:
    if given is None:
        return max(1, _TERMS_BY_DEFAULT // (problem.experts * problem.layout.places))
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise UsageError(f"steps must be a whole number of at least 1, not {given!r}")
    return given


def _renumbered(place_of: NDArray[np.int32], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the places by the first expert in `order` that is on them."""
    name: dict[int, int] = {}
    known = np.zeros(len(place_of), dtype=np.int64)
    for expert in order:
        known[expert] = name.setdefault(int(place_of[expert]), len(name))
    return known
