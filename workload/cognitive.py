"""Cognitive experts (SPIMOE 3.2.1): those that fire on the tokens where reasoning turns.

Found offline. Which tokens count is a rule, since recordings rarely hold the text: a phase, a range of
positions, or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput, UsageError
from .load import count_experts
from .trace import PHASES, RoutingTrace


@dataclass(frozen=True)
class TokenRule:
    """Tokens of `phase` (None: any) whose position in their request lies in `first` to `last`, both included.

    `last` None: to the end. Raises UsageError on an unknown phase or an empty range.
    """

    phase: Literal["prefill", "think", "answer"] | None = None
    first: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        if self.phase is not None and self.phase not in PHASES:
            raise UsageError(f"unknown phase {self.phase!r}", allowed=", ".join(PHASES))
        if self.first < 0 or (self.last is not None and self.last < self.first):
            raise UsageError(
                f"positions {self.first} to {self.last} hold no token", allowed="0 <= first <= last"
            )

    def marks(self, trace: RoutingTrace) -> NDArray[np.bool_]:
        """Which tokens the rule marks, bool [T].

        Raises BadInput where it asks for a phase that the trace does not tell, or marks none.
        """
        marked = trace.position >= self.first
        if self.last is not None:
            marked &= trace.position <= self.last
        if self.phase is not None:
            if trace.phase is None:
                raise BadInput(
                    f"the rule asks for the phase {self.phase!r}, and the trace does not tell phases",
                    where=trace.source,
                    fix="mark tokens by position, or assume phases (with_phase, --think-share)",
                )
            marked &= trace.phase == PHASES.index(self.phase)
        if not marked.any():
            raise BadInput("the rule marks no token of the trace", where=str(self), fix="widen the rule")
        return marked


def cognitive_experts(
    trace: RoutingTrace,
    count: int,
    marked: NDArray[np.bool_],
    *,
    by: Literal["frequency", "lift"] = "frequency",
) -> NDArray[np.bool_]:
    """The `count` cognitive experts of every layer, bool [L, E]; `marked` bool [T] from a `TokenRule`.

    By "frequency": activations on marked tokens over their number, as SPIMOE's "normalized activation
    frequency" reads. By "lift": that over the frequency on all tokens, which prefers experts that are
    particular to marked tokens to those that are popular everywhere. Ties go to the lower id. Raises
    UsageError on a count that the layer does not have, BadInput where no token is marked.
    """
    if not 0 <= count <= trace.num_experts:
        raise UsageError(
            f"{count} cognitive experts of {trace.num_experts} are not possible",
            allowed=f"0 to {trace.num_experts}",
        )
    if by not in ("frequency", "lift"):
        raise UsageError(f"unknown measure {by!r}", allowed="frequency, lift")
    tokens = int(marked.sum())
    if tokens == 0:
        raise BadInput("no token is marked", fix="widen the rule")
    score = count_experts(trace.experts[marked][None], trace.num_experts)[0] / tokens
    if by == "lift":
        overall = count_experts(trace.experts[None], trace.num_experts)[0] / trace.tokens
        score = np.divide(score, overall, out=np.zeros_like(score), where=overall > 0)
    chosen = np.argsort(-score, axis=1, kind="stable")[:, :count]
    found = np.zeros(score.shape, dtype=np.bool_)
    np.put_along_axis(found, chosen, True, axis=1)
    return found
