"""Loads: decode steps, the form of routing that planners eat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import fingerprint


@dataclass(frozen=True, eq=False)
class Load:
    """S decode steps of B batch slots.

    - `experts` int16 [S, B, L, K]: logical expert ids that slot b chose at step s.
    - `layers`: absolute ids of axis L; `num_experts`: E; `model`: name of the model.
    - `requests`: distinct requests that the steps were made from.
    - `repeated`: True where a request runs in several slots at once, or a token is used twice.
    - `note`: one sentence for people on how the steps were made.

    Raises BadInput on a shape that does not fit; the array is read-only.
    """

    experts: NDArray[np.int16]
    layers: tuple[int, ...]
    num_experts: int
    model: str
    requests: int
    repeated: bool
    note: str

    def __post_init__(self) -> None:
        shape = self.experts.shape
        if len(shape) != 4 or 0 in shape or shape[2] != len(self.layers):
            raise BadInput(f"a load needs [steps, slots, {len(self.layers)} layers, top-k], not {shape}")
        array = np.ascontiguousarray(self.experts, dtype=np.int16).view()
        array.flags.writeable = False
        object.__setattr__(self, "experts", array)

    @property
    def steps(self) -> int:
        """S, the number of decode steps."""
        return int(self.experts.shape[0])

    @property
    def batch(self) -> int:
        """B, the number of slots."""
        return int(self.experts.shape[1])

    @property
    def top_k(self) -> int:
        """K, experts per token."""
        return int(self.experts.shape[3])

    def counts(self) -> NDArray[np.int32]:
        """Tokens of every expert at every step, int32 [S, L, E]; each [s, l] sums to B * K."""
        return count_experts(self.experts, self.num_experts)

    def pair_counts(self) -> NDArray[np.int64]:
        """Tokens that chose experts i and j together, int64 [L, E, E] (see `count_pairs`)."""
        steps, batch, layers, top_k = self.experts.shape
        return count_pairs(self.experts.reshape(steps * batch, layers, top_k), self.num_experts)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the choices, layers, expert count and the model's name."""
        return fingerprint(self.model, self.layers, self.num_experts, self.experts)


def count_experts(experts: NDArray[Any], num_experts: int) -> NDArray[np.int32]:
    """Count choices [S, B, L, K] into int32 [S, L, E]."""
    steps, _, layers, _ = experts.shape
    bins = np.arange(steps * layers, dtype=np.int64).reshape(steps, 1, layers, 1) * num_experts
    flat = np.bincount((bins + experts).ravel(), minlength=steps * layers * num_experts)
    return flat.reshape(steps, layers, num_experts).astype(np.int32)


def count_pairs(experts: NDArray[Any], num_experts: int) -> NDArray[np.int64]:
    """Count co-activation in choices [T, L, K] into int64 [L, E, E].

    Entry [l, i, j] is the number of tokens that chose both i and j in layer l; the matrix is
    symmetric, and its diagonal [l, i, i] is the number of tokens that chose i.
    """
    _, layers, top_k = experts.shape
    pairs = np.zeros((layers, num_experts * num_experts), dtype=np.int64)
    for layer in range(layers):
        ids = experts[:, layer].astype(np.int64)
        for first in range(top_k):
            for second in range(first, top_k):
                flat = ids[:, first] * num_experts + ids[:, second]
                pairs[layer] += np.bincount(flat, minlength=num_experts * num_experts)
    upper = pairs.reshape(layers, num_experts, num_experts)
    both = upper + upper.transpose(0, 2, 1)
    diagonal = np.arange(num_experts)
    both[:, diagonal, diagonal] = upper[:, diagonal, diagonal]
    return both
