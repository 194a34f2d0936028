"""From what engines count and choose, physical slots, to what planners know, logical experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput


def check_map(physical_to_logical: NDArray[Any], experts: int, where: str) -> None:
    """Check a map [L, R] of slots to experts 0 to E - 1. Raises BadInput that names layer row and slot."""
    if physical_to_logical.ndim != 2 or physical_to_logical.dtype.kind not in "iu":
        raise BadInput(
            f"the map of physical to logical experts must hold whole numbers [layers, slots], "
            f"not {physical_to_logical.dtype} of shape {physical_to_logical.shape}",
            where=where,
        )
    wrong = (physical_to_logical < 0) | (physical_to_logical >= experts)
    if wrong.any():
        row, slot = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise BadInput(
            f"slot {slot} holds expert {physical_to_logical[row, slot]}",
            where=f"{where}, row {row} of the map",
            allowed=f"0 to {experts - 1}",
        )


def fold_counts(
    physical: NDArray[Any], physical_to_logical: NDArray[Any], experts: int
) -> NDArray[np.float64]:
    """Add the counts of slots [S, L, R] up to those of experts [S, L, E], by one map [L, R]."""
    windows, layers, slots = physical.shape
    folded = np.empty((windows, layers, experts))
    for layer in range(layers):
        holds = np.zeros((slots, experts))
        holds[np.arange(slots), physical_to_logical[layer]] = 1.0
        folded[:, layer] = physical[:, layer] @ holds
    return folded


def logical_choices(
    physical: NDArray[Any], physical_to_logical: NDArray[Any], where: str
) -> NDArray[np.int64]:
    """Map slots [T, L, K] to experts, by one map [L, R]. Raises BadInput for a slot that is not there."""
    slots = physical_to_logical.shape[1]
    wrong = (physical < 0) | (physical >= slots)
    if wrong.any():
        token, layer, place = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise BadInput(
            f"a token chose slot {physical[token, layer, place]}",
            where=f"{where}, token {token}, row {layer} of the MoE layers",
            allowed=f"0 to {slots - 1}",
            fix="record without fused shared experts, which are counted as one more slot",
        )
    rows = np.arange(physical_to_logical.shape[0])[:, None]
    chosen: NDArray[np.int64] = physical_to_logical.astype(np.int64)[rows, physical]
    return chosen
