"""The two greedies of the published EPLB, in the single precision that it computes in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel


@kernel
def pack(
    weight: NDArray[np.float32], order: NDArray[np.int64], packs: int, pack_of: NDArray[np.int64],
    place_of: NDArray[np.int64],
) -> None:  # fmt: skip
    """Give items `[n]`, in `order`, to the lightest pack that has room for n / packs; ties to the lowest.

    Writes the pack of every item and its place there, in order of arrival. Loads add up in float32.
    """
    room = len(weight) // packs
    load = np.zeros(packs, dtype=np.float32)
    held = np.zeros(packs, dtype=np.int64)
    for item in order:
        best = -1
        for one in range(packs):
            if held[one] < room and (best < 0 or load[one] < load[best]):
                best = one
        pack_of[item] = best
        place_of[item] = held[best]
        held[best] += 1
        load[best] += weight[item]


@kernel
def replicate(weight: NDArray[np.float32], slots: int, expert_of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return replica counts `[n]`: every spare slot to the largest load per replica, ties to the first.

    Writes the expert of every slot: originals first, then replicas in the order in which they are added.
    """
    experts = len(weight)
    count = np.ones(experts, dtype=np.int64)
    each = weight.copy()
    for expert in range(experts):
        expert_of[expert] = expert
    for slot in range(experts, slots):
        hot = 0
        for expert in range(1, experts):
            if each[expert] > each[hot]:
                hot = expert
        expert_of[slot] = hot
        count[hot] += 1
        each[hot] = weight[hot] / np.float32(count[hot])
    return count
