"""A pool of ranks: who holds what, replica counts, and packing.

A pool is the ranks that may hold the experts: all of them, or those of a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel


class Question(NamedTuple):
    """What a pool search is asked: loads, ranks and rules."""

    weight: NDArray[np.float64]  # [E]
    speed: NDArray[np.float64]  # [G] relative
    room: NDArray[np.int64]  # [G] slots
    most: int  # replicas of an expert on one rank: 1, or the largest room
    current: NDArray[np.int16]  # [E, G] replicas in place; empty first axis: none
    moves: int  # slots that may differ from it


class Pool(NamedTuple):
    """Who holds what."""

    copies: NDArray[np.int64]  # [E] replicas
    slot: NDArray[np.int64]  # [G, C] experts; only the first room[g] count
    has: NDArray[np.int16]  # [E, G] replicas of an expert on a rank
    load: NDArray[np.float64]  # [G] time: load over speed
    moved: NDArray[np.int64]  # [1] slots that differ from the current placement


@kernel
def empty_pool(q: Question) -> Pool:
    """Return a pool without any expert."""
    experts, ranks = len(q.weight), len(q.speed)
    return Pool(
        np.zeros(experts, dtype=np.int64),
        np.zeros((ranks, q.room.max()), dtype=np.int64),
        np.zeros((experts, ranks), dtype=np.int16),
        np.zeros(ranks),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def copy_pool(source: Pool, target: Pool) -> None:
    """Overwrite `target`."""
    target.copies[:] = source.copies
    target.slot[:] = source.slot
    target.has[:] = source.has
    target.load[:] = source.load
    target.moved[:] = source.moved


@kernel
def reload(q: Question, pool: Pool) -> None:
    """Recompute counts, holdings, loads and moves from the slots."""
    pool.copies[:] = 0
    pool.has[:] = 0
    pool.load[:] = 0.0
    pool.moved[0] = 0
    for g in range(len(q.room)):
        for i in range(q.room[g]):
            pool.copies[pool.slot[g, i]] += 1
            pool.has[pool.slot[g, i], g] += 1
    for g in range(len(q.room)):
        for i in range(q.room[g]):
            e = pool.slot[g, i]
            pool.load[g] += q.weight[e] / pool.copies[e] / q.speed[g]
    if len(q.current):
        for g in range(len(q.room)):
            for e in range(len(q.weight)):
                pool.moved[0] += max(0, pool.has[e, g] - q.current[e, g])


@kernel
def greedy_counts(q: Question, count: NDArray[np.int64]) -> None:
    """One replica each, then every spare slot to the largest load per replica that may still have one."""
    experts = len(q.weight)
    count[:] = 1
    most = q.most * len(q.room)
    each = q.weight.copy()
    for _ in range(q.room.sum() - experts):
        hot = -1
        for e in range(experts):
            if count[e] < most and (hot < 0 or each[e] > each[hot]):
                hot = e
        count[hot] += 1
        each[hot] = q.weight[hot] / count[hot]


@kernel
def pack_counts(q: Question, pool: Pool, kept: NDArray[np.int16]) -> bool:
    """Pack `pool.copies` replicas, largest first, each on the rank that it leaves least loaded.

    Replicas `kept` `[E, G]` (empty first axis: none) are where they are already. Where only ranks that hold
    an expert have room, another expert steps aside; False where none can.
    """
    experts, ranks = len(q.weight), len(q.room)
    each = q.weight / pool.copies
    order = np.argsort(-each)
    pool.has[:] = 0
    pool.load[:] = 0.0
    held = np.zeros(ranks, dtype=np.int64)
    for e in range(len(kept)):
        for g in range(ranks):
            for _ in range(kept[e, g]):
                _give(q, pool, held, e, g, each[e])
    for k in range(experts):
        e = order[k]
        for _ in range(pool.copies[e] - pool.has[e].sum()):
            best, least = -1, np.inf
            for g in range(ranks):
                if held[g] < q.room[g] and pool.has[e, g] < q.most:
                    then = pool.load[g] + each[e] / q.speed[g]
                    if then < least:
                        best, least = g, then
            if best >= 0:
                _give(q, pool, held, e, best, each[e])
            elif not _make_room(q, pool, held, e):
                return False
    reload(q, pool)
    return True


@kernel
def _give(q: Question, pool: Pool, held: NDArray[np.int64], e: int, g: int, weight: float) -> None:
    pool.slot[g, held[g]] = e
    pool.has[e, g] += 1
    pool.load[g] += weight / q.speed[g]
    held[g] += 1


@kernel
def keep_in_place(q: Question, copies: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return which replicas of the current placement stay, `[E, G]`, where expert e has `copies[e]`.

    Too many of an expert leave the highest ranks; a rank keeps at most `most` of them.
    """
    kept = np.zeros_like(q.current)
    for e in range(len(copies)):
        left = copies[e]
        for g in range(len(q.room)):
            kept[e, g] = min(left, q.current[e, g], q.most)
            left -= kept[e, g]
    return kept


@kernel
def _make_room(q: Question, pool: Pool, held: NDArray[np.int64], e: int) -> bool:
    """Place e where only ranks that hold it have room: another rank's expert steps aside."""
    for g in range(len(q.room)):
        if held[g] >= q.room[g]:
            continue
        for r in range(len(q.room)):
            if r == g or pool.has[e, r] >= q.most:
                continue
            for i in range(held[r]):
                f = pool.slot[r, i]
                if pool.has[f, g] < q.most:
                    pool.slot[g, held[g]] = f
                    held[g] += 1
                    pool.has[f, g] += 1
                    pool.has[f, r] -= 1
                    pool.slot[r, i] = e
                    pool.has[e, r] += 1
                    pool.load[g] += q.weight[f] / pool.copies[f] / q.speed[g]
                    pool.load[r] += (q.weight[e] / pool.copies[e] - q.weight[f] / pool.copies[f]) / q.speed[r]
                    return True
    return False


@kernel
def level_counts(q: Question, count: NDArray[np.int64], level: float) -> bool:
    """Just the replicas that bring an expert to `level`, the rest of the slots to the largest of the others.

    False where the slots do not suffice.
    """
    count[:] = 1
    most = q.most * len(q.room)
    left = q.room.sum() - len(q.weight)
    each = q.weight.copy()
    for e in range(len(q.weight)):
        if q.weight[e] > level:
            count[e] = min(most, int(np.ceil(q.weight[e] / level)))
            left -= count[e] - 1
            each[e] = 0.0
    for _ in range(left):
        hot = -1
        for e in range(len(q.weight)):
            if count[e] < most and (hot < 0 or each[e] > each[hot]):
                hot = e
        count[hot] += 1
        each[hot] = q.weight[hot] / count[hot] if each[hot] > 0.0 else 0.0
    return bool(left >= 0)
