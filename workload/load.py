"""Loads: decode steps, the form of routing that planners eat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import fingerprint
from .checks import DROPPED


@dataclass(frozen=True, eq=False)
class Load:
    """S decode steps of B batch slots.

    - `experts` int16 [S, B, L, K]: logical expert ids that slot b chose at step s; -1 in the place of an
      expert that was dropped.
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

    def pruned(self, kept: NDArray[np.bool_], note: str) -> Load:
        """The same steps without the choices that `kept` bool [S, B, L, K] marks False; `note` is added.

        Raises BadInput on another shape.
        """
        if kept.shape != self.experts.shape:
            raise BadInput(f"'kept' must have the shape of the load, {self.experts.shape}, not {kept.shape}")
        experts = np.where(kept, self.experts, np.int16(DROPPED))
        return replace(self, experts=experts, note=f"{self.note} {note}".strip())

    def counts(self) -> NDArray[np.int32]:
        """Tokens of every expert at every step, int32 [S, L, E]; [s, l] sums to B * K less the dropped."""
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
    """Count choices [S, B, L, K] into int32 [S, L, E]; dropped ones (-1) do not count."""
    steps, _, layers, _ = experts.shape
    # One bin more in every row: there the dropped experts fall.
    width = num_experts + 1
    bins = np.arange(steps * layers, dtype=np.int64).reshape(steps, 1, layers, 1) * width + 1
    flat = np.bincount((bins + experts).ravel(), minlength=steps * layers * width)
    return flat.reshape(steps, layers, width)[..., 1:].astype(np.int32)


def count_pairs(experts: NDArray[Any], num_experts: int) -> NDArray[np.int64]:
    """Count co-activation in choices [T, L, K] into int64 [L, E, E]; dropped ones (-1) do not count.

    Entry [l, i, j] is the number of tokens that chose both i and j in layer l; the matrix is
    symmetric, and its diagonal [l, i, i] is the number of tokens that chose i.
    """
    _, layers, top_k = experts.shape
    width = num_experts + 1
    pairs = np.zeros((layers, width * width), dtype=np.int64)
    for layer in range(layers):
        ids = experts[:, layer].astype(np.int64) + 1
        for first in range(top_k):
            for second in range(first, top_k):
                flat = ids[:, first] * width + ids[:, second]
                pairs[layer] += np.bincount(flat, minlength=width * width)
    upper = pairs.reshape(layers, width, width)[:, 1:, 1:]
    both = upper + upper.transpose(0, 2, 1)
    diagonal = np.arange(num_experts)
    both[:, diagonal, diagonal] = upper[:, diagonal, diagonal]
    return both
