"""A problem is a question: what may be decided, what a decision costs, and what nothing can beat."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar, runtime_checkable

DecisionT = TypeVar("DecisionT")

#: Relative tolerance under which two costs that were added up in another order are the same.
SAME_COST = 1e-9


@dataclass(frozen=True)
class Cost:
    """What a decision costs on one load.

    `objective_s` is what solvers minimise and what bounds and gaps speak of; `total_s` is the mean
    time of a decode step, which equals the objective unless the problem asks for more than the mean.
    `parts` splits `total_s` by name (names end in `_s`); they add up to it. `tie` decides between equal
    objectives, the lower the better; bounds and gaps do not know it.
    """

    total_s: float
    objective_s: float
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    tie: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def __reduce__(self) -> tuple[object, ...]:
        return Cost, (self.total_s, self.objective_s, dict(self.parts), self.tie)

    @property
    def rank(self) -> tuple[float, float]:
        """What decisions are compared by."""
        return self.objective_s, self.tie


@dataclass(frozen=True)
class Bound:
    """A value in seconds that no decision's objective can fall below, and the argument that proves it."""

    value_s: float
    by: str

    def __post_init__(self) -> None:
        if not self.value_s >= 0.0 or math.isinf(self.value_s):
            raise ValueError(
                f"a bound is a finite time of at least 0 s, not {self.value_s!r} (by {self.by!r})"
            )


def strongest(*bounds: Bound | None) -> Bound:
    """Return the largest of the bounds; the trivial one where there is none."""
    return max((b for b in bounds if b is not None), key=lambda b: b.value_s, default=Bound(0.0, "trivial"))


@runtime_checkable
class Problem(Protocol[DecisionT]):
    """What `solve()` and every solver may rely on. One class a family implements it."""

    @property
    def family(self) -> str:
        """Name under which the family's solvers are registered."""

    @property
    def fingerprint(self) -> str:
        """Hash over everything that the cost depends on."""

    @property
    def held_out(self) -> Problem[DecisionT] | None:
        """The same question on traffic that no solver sees; None where there is none."""

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the published heuristics that every answer is compared with."""

    def evaluate(self, decision: DecisionT) -> Cost:
        """Return the cost of a feasible decision: the only scorer there is."""

    def lower_bound(self) -> Bound:
        """Return a bound that is cheap to prove, whatever the decision."""

    def check(self, decision: DecisionT) -> str | None:
        """Return why the decision is not feasible, or None where it is."""

    def infeasible(self) -> str | None:
        """Return a proof that no decision is feasible, or None where there is none at hand."""
