"""Classes of interchangeable experts for solvers that want whole numbers instead of single experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .problem import Decision, PartitionProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Classes:
    """D sets of experts with equal tokens and home; `home`, `number`, `copies`, `seconds` are [D]."""

    home: NDArray[np.int64]
    number: NDArray[np.int64]
    copies: NDArray[np.int64]
    seconds: NDArray[np.float64]
    member: NDArray[np.int64]
    """Class of every expert, [E]; -1 where it has no tokens."""

    def __len__(self) -> int:
        return len(self.number)

    def decision(self, chosen: NDArray[np.int64]) -> Decision:
        """Put `chosen[d]` experts of class d on the GPU, lowest ids first."""
        on_gpu = np.zeros(len(self.member), dtype=np.bool_)
        for d, k in enumerate(chosen):
            on_gpu[np.flatnonzero(self.member == d)[:k]] = True
        return Decision(on_gpu)

    def chosen(self, decision: Decision) -> NDArray[np.int64]:
        """Count the experts of every class on the GPU."""
        there = self.member[decision.on_gpu & (self.member >= 0)]
        return np.bincount(there, minlength=len(self)).astype(np.int64)


def classes_of(problem: PartitionProblem) -> Classes:
    """Group the experts that have tokens."""
    active = np.flatnonzero(problem.tokens)
    keys = np.stack([problem.home[active], problem.tokens[active]], axis=1)
    kinds, first, inverse, copies = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    member = np.full(problem.experts, -1, dtype=np.int64)
    member[active] = inverse.ravel()
    return Classes(kinds[:, 0], kinds[:, 1], copies, problem.seconds[active][first], member)
