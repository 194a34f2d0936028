"""What a solve is allowed to spend, and what it hands back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic

from ..common.errors import UsageError
from .problem import SAME_COST, Bound, Cost, DecisionT


class Stop(StrEnum):
    """Why a solve ended."""

    OPTIMAL = "optimal"  # the bound meets the cost
    CONVERGED = "converged"  # the method has nothing more to try
    TIME_LIMIT = "time_limit"
    ITERATION_LIMIT = "iteration_limit"
    GAP_REACHED = "gap_reached"
    INTERRUPTED = "interrupted"  # the best so far is kept
    INFEASIBLE = "infeasible"  # proven: there is no decision


@dataclass(frozen=True)
class Budget:
    """When to stop: after `time_s` seconds, `iterations`, or at a relative `gap`; whatever comes first.

    An iteration is a proposed move of a search, or a node of an exact solver. Results under an
    iteration budget are the same on every run. Raises UsageError where a limit is not positive.
    """

    time_s: float | None = 2.0
    iterations: int | None = None
    gap: float = 0.0

    def __post_init__(self) -> None:
        if self.time_s is not None and not (self.time_s > 0 and math.isfinite(self.time_s)):
            raise UsageError(f"a time budget must be positive, not {self.time_s!r} s", fix="for example 2s")
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(
                f"an iteration budget must be at least 1, not {self.iterations}", fix="for example 10000it"
            )
        if self.time_s is None and self.iterations is None:
            raise UsageError("a budget needs a limit", allowed="time_s, iterations, or both")
        if not 0.0 <= self.gap < 1.0:
            raise UsageError(f"a gap to stop at lies in [0, 1), not {self.gap!r}", fix="for example 0.01")


@dataclass(frozen=True)
class Progress:
    """A point of the anytime curve: the best objective known after so many iterations."""

    iterations: int
    elapsed_s: float
    best_s: float


@dataclass(frozen=True)
class Result(Generic[DecisionT]):
    """The measured outcome of one solve.

    `cost`, `held_out` and `bound` are what `solve()` measured, never what the solver said. Where no
    decision was found, `decision` is None and the costs are infinite.
    """

    decision: DecisionT | None
    cost: Cost
    held_out: Cost | None
    bound: Bound
    stop: Stop
    solver: str
    seed: int
    iterations: int
    elapsed_s: float
    anytime: tuple[Progress, ...]
    problem: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """(objective - bound) / objective: 0.0 is proven optimal, 1.0 says that nothing is proven."""
        if math.isinf(self.cost.objective_s):
            return 1.0
        if self.cost.objective_s <= 0.0:
            return 0.0
        gap = 1.0 - self.bound.value_s / self.cost.objective_s
        return gap if gap > SAME_COST else 0.0
