"""From holdings to slots, and where to put them when a placement is there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problem import ReplicaProblem
    from .ranks import Ranks


def slots_of(
    has: NDArray[np.int16], ranks: Ranks, current: NDArray[np.int32] | None = None
) -> NDArray[np.int32]:
    """Return the expert of every slot `[R]` for replicas by rank `[E, G]`.

    What a rank holds already keeps its slot of `current`; the rest follows in ascending order.
    """
    if current is None:
        ids = np.tile(np.arange(len(has), dtype=np.int32), ranks.ranks)
        return np.repeat(ids, has.T.ravel())
    slots = np.empty(ranks.slots, dtype=np.int32)
    for g in range(ranks.ranks):
        left = has[:, g].astype(np.int64)
        first, last = int(ranks.start[g]), int(ranks.start[g + 1])
        free = []
        for slot in range(first, last):
            e = int(current[slot])
            if left[e] > 0:
                slots[slot] = e
                left[e] -= 1
            else:
                free.append(slot)
        slots[free] = np.repeat(np.arange(len(left)), left)
    return slots


def aligned(problem: ReplicaProblem, slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rename ranks of the same kind so that the fewest slots differ from the current placement.

    Where the cost depends on which rank of a kind holds what (links, sources), ranks keep their names and
    only the slots inside them are ordered. Nodes are matched first, by what their best matching saves.
    """
    from .problem import Decision

    has = problem.has(Decision(slots))
    if problem.current is None:
        return slots_of(has, problem.ranks)
    before = problem.has(Decision(problem.current))
    if problem.plain:
        has = has[:, _renamed(problem, has, before)]
    return slots_of(has, problem.ranks, problem.current)


def _renamed(problem: ReplicaProblem, has: NDArray[np.int16], before: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return for every rank the rank of `has` that takes its place."""
    stay = np.minimum(before[:, :, None], has[:, None, :]).sum(axis=0).astype(np.float64)  # [old, new]
    kinds = list(zip(problem.ranks.room, problem.ranks.speed, strict=True))
    stay[np.array([[a != b for b in kinds] for a in kinds])] = -1e6
    if problem.nodes == 1:
        return _matching(stay)
    per, nodes = problem.ranks.per_node, problem.nodes
    block = stay.reshape(nodes, per, nodes, per).transpose(0, 2, 1, 3)
    inner = [[_matching(block[old, new]) for new in range(nodes)] for old in range(nodes)]
    saved = np.array(
        [
            [block[old, new][np.arange(per), inner[old][new]].sum() for new in range(nodes)]
            for old in range(nodes)
        ]
    )
    took = _matching(saved)
    return np.concatenate([took[old] * per + inner[old][took[old]] for old in range(nodes)])


def _matching(gain: NDArray[np.float64]) -> NDArray[np.int64]:
    from scipy.optimize import linear_sum_assignment

    _, columns = linear_sum_assignment(-gain)
    return np.asarray(columns, dtype=np.int64)
