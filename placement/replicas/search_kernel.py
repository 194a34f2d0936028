"""Joint search of replica counts, packing and swaps for one pool of ranks, on one load per expert.

A move is undone by copying a pool, which is small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ..search.random import below
from .pool_kernel import (
    Pool,
    Question,
    copy_pool,
    empty_pool,
    greedy_counts,
    level_counts,
    pack_counts,
    reload,
)

#: Relative difference below which two loads are the same.
TINY = 1e-12
#: Non-improving count moves that are tried with repair, count moves of one random kick, and other counts
#: that a search begins from.
_TRIALS, _KICKS, _LEVELS = 8, 2, 5


@kernel
def _more_moves(q: Question, pool: Pool, g: int, out: int, into: int) -> int:
    """Slots by which the moves grow when rank g drops one `out` and takes one `into`."""
    if len(q.current) == 0 or out == into:
        return 0
    grow = 1 if pool.has[into, g] >= q.current[into, g] else 0
    return grow - (1 if pool.has[out, g] > q.current[out, g] else 0)


@kernel
def swap_down(q: Question, pool: Pool, target: float) -> int:
    """Swap replicas of the busiest rank with others' as long as that helps; return the pairs looked at."""
    looked = 0
    while True:
        h = int(pool.load.argmax())
        top = pool.load[h]
        if top <= target:
            return looked
        best, at_i, at_g, at_j = top * (1.0 - TINY), -1, -1, -1
        for i in range(q.room[h]):
            e = pool.slot[h, i]
            x = q.weight[e] / pool.copies[e]
            for g in range(len(q.room)):
                if g == h or pool.has[e, g] >= q.most:
                    continue
                looked += q.room[g]
                # What h loses at least, and what g may take at most, to be better than the best so far.
                for j in range(q.room[g]):
                    f = pool.slot[g, j]
                    d = x - q.weight[f] / pool.copies[f]
                    if d <= 0.0 or pool.has[f, h] >= q.most:
                        continue
                    worst = max(top - d / q.speed[h], pool.load[g] + d / q.speed[g])
                    if worst < best and _swap_allowed(q, pool, h, e, g, f):
                        best, at_i, at_g, at_j = worst, i, g, j
        if at_i < 0:
            return looked
        _swap(q, pool, h, at_i, at_g, at_j)


@kernel
def _swap_allowed(q: Question, pool: Pool, h: int, e: int, g: int, f: int) -> bool:
    if len(q.current) == 0:
        return True
    more = _more_moves(q, pool, h, e, f) + _more_moves(q, pool, g, f, e)
    return more <= 0 or pool.moved[0] + more <= q.moves


@kernel
def _swap(q: Question, pool: Pool, h: int, i: int, g: int, j: int) -> None:
    e, f = pool.slot[h, i], pool.slot[g, j]
    pool.moved[0] += _more_moves(q, pool, h, e, f) + _more_moves(q, pool, g, f, e)
    d = q.weight[e] / pool.copies[e] - q.weight[f] / pool.copies[f]
    pool.load[h] -= d / q.speed[h]
    pool.load[g] += d / q.speed[g]
    pool.slot[h, i], pool.slot[g, j] = f, e
    pool.has[e, h] -= 1
    pool.has[f, h] += 1
    pool.has[f, g] -= 1
    pool.has[e, g] += 1


@kernel
def _transfer_worst(q: Question, pool: Pool, g: int, a: int, b: int, limit: float) -> float:
    """Largest load when a replica of a on rank g becomes one of b; gives up above `limit`."""
    count_a, count_b = pool.copies[a], pool.copies[b]
    was_a, now_a = q.weight[a] / count_a, q.weight[a] / (count_a - 1)
    was_b, now_b = q.weight[b] / count_b, q.weight[b] / (count_b + 1)
    worst = pool.load[g] + (
        (pool.has[a, g] - 1) * now_a - pool.has[a, g] * was_a
        + (pool.has[b, g] + 1) * now_b - pool.has[b, g] * was_b
    ) / q.speed[g]  # fmt: skip
    for r in range(len(q.room)):
        if worst > limit:
            return float(worst)
        if r != g:
            change = pool.has[a, r] * (now_a - was_a) + pool.has[b, r] * (now_b - was_b)
            worst = max(worst, pool.load[r] + change / q.speed[r])
    return float(worst)


@kernel
def _transfer(q: Question, pool: Pool, g: int, i: int, b: int) -> None:
    a = pool.slot[g, i]
    pool.moved[0] += _more_moves(q, pool, g, a, b)
    now_a = q.weight[a] / (pool.copies[a] - 1) - q.weight[a] / pool.copies[a]
    now_b = q.weight[b] / (pool.copies[b] + 1) - q.weight[b] / pool.copies[b]
    pool.load[g] += (q.weight[b] / pool.copies[b] - q.weight[a] / pool.copies[a]) / q.speed[g]
    pool.slot[g, i] = b
    pool.has[a, g] -= 1
    pool.has[b, g] += 1
    pool.copies[a] -= 1
    pool.copies[b] += 1
    for r in range(len(q.room)):
        pool.load[r] += (pool.has[a, r] * now_a + pool.has[b, r] * now_b) / q.speed[r]


@kernel
def _may_transfer(q: Question, pool: Pool, g: int, a: int, b: int) -> bool:
    if a == b or pool.copies[a] < 2 or pool.has[b, g] >= q.most:
        return False
    more = _more_moves(q, pool, g, a, b)
    return more <= 0 or pool.moved[0] + more <= q.moves


@kernel
def _offer_transfer(
    scores: NDArray[np.float64], moves: NDArray[np.int64], worst: float, g: int, i: int, b: int
) -> None:
    """Keep the best transfers, sorted."""
    k = len(scores) - 1
    if worst >= scores[k]:
        return
    while k > 0 and scores[k - 1] > worst:
        scores[k] = scores[k - 1]
        moves[k] = moves[k - 1]
        k -= 1
    scores[k] = worst
    moves[k, 0], moves[k, 1], moves[k, 2] = g, i, b


@kernel
def best_transfers(q: Question, pool: Pool, scores: NDArray[np.float64], moves: NDArray[np.int64]) -> int:
    """Collect the best count moves that relieve the busiest rank; return how many were looked at.

    Either an expert of that rank gets one more replica elsewhere, or one of its replicas goes to the others
    and its slot takes a replica of a lighter one.
    """
    h = int(pool.load.argmax())
    scores[:] = np.inf
    looked = 0
    for g in range(len(q.room)):
        for i in range(q.room[g]):
            a = pool.slot[g, i]
            if pool.copies[a] < 2:
                continue
            for k in range(q.room[h]):
                b = pool.slot[h, k]
                if _may_transfer(q, pool, g, a, b):
                    looked += 1
                    worst = _transfer_worst(q, pool, g, a, b, scores[len(scores) - 1])
                    _offer_transfer(scores, moves, worst, g, i, b)
    for i in range(q.room[h]):
        a = pool.slot[h, i]
        if pool.copies[a] < 2:
            continue
        for b in range(len(q.weight)):
            if pool.has[b, h] == 0 and _may_transfer(q, pool, h, a, b):
                looked += 1
                if q.weight[b] / (pool.copies[b] + 1) < q.weight[a] / pool.copies[a]:
                    worst = _transfer_worst(q, pool, h, a, b, scores[len(scores) - 1])
                    _offer_transfer(scores, moves, worst, h, i, b)
    return looked


@kernel
def descend(q: Question, pool: Pool, spare: Pool, target: float, work: int) -> int:
    """Swaps, then count moves, each with the swaps that follow from it; return the work done.

    Ends at a local optimum, below `target`, or after `work` looks.
    """
    scores, moves = np.empty(_TRIALS), np.empty((_TRIALS, 3), dtype=np.int64)
    done = swap_down(q, pool, target)
    while done < work:
        top = pool.load.max()
        if top <= target:
            break
        done += best_transfers(q, pool, scores, moves) * 4
        better = False
        for k in range(_TRIALS):
            if scores[k] == np.inf or done >= work:
                break
            copy_pool(pool, spare)
            _transfer(q, spare, moves[k, 0], moves[k, 1], moves[k, 2])
            done += swap_down(q, spare, target) + 64
            if spare.load.max() < top * (1.0 - TINY):
                copy_pool(spare, pool)
                better = True
                break
        if not better:
            break
    return done


@kernel
def kick(q: Question, pool: Pool, rng: NDArray[np.uint64]) -> None:
    """Move a few replicas between experts at random."""
    done = 0
    for _ in range(20):
        g = below(rng, len(q.room))
        if q.room[g] == 0:
            continue
        i = below(rng, q.room[g])
        h = int(pool.load.argmax())
        b = pool.slot[h, below(rng, q.room[h])] if below(rng, 2) else below(rng, len(q.weight))
        a = pool.slot[g, i]
        if _may_transfer(q, pool, g, a, b):
            _transfer(q, pool, g, i, b)
            done += 1
            if done == _KICKS:
                return
            continue
        if g != h and q.room[h]:
            k = below(rng, q.room[h])
            e = pool.slot[h, k]
            if pool.has[e, g] < q.most and pool.has[a, h] < q.most and _swap_allowed(q, pool, h, e, g, a):
                _swap(q, pool, h, k, g, i)


@kernel
def improve(q: Question, pool: Pool, rng: NDArray[np.uint64], target: float, work: int) -> int:
    """Iterated descent from `pool`, which becomes the best that was found; return the work done."""
    spare, trial = empty_pool(q), empty_pool(q)
    done = descend(q, pool, spare, target, work)
    while done < work and pool.load.max() > target:
        copy_pool(pool, trial)
        kick(q, trial, rng)
        done += descend(q, trial, spare, target, work - done) + 64
        if trial.load.max() <= pool.load.max():
            copy_pool(trial, pool)
    reload(q, pool)
    return done


@kernel
def solve_pool(
    q: Question, pool: Pool, rng: NDArray[np.uint64], target: float, work: int
) -> tuple[bool, int]:
    """Greedy counts, packing, and the joint search, then the same from other counts.

    Greedy counts make the largest replica small, though its rank holds other experts too. Where the search
    does not reach the target from there, it begins again from counts that bring no replica below a share of
    it, and goes on from the best. Returns whether a packing was found, and the work done.
    """
    nothing = np.zeros((0, 0), dtype=np.int16)
    greedy_counts(q, pool.copies)
    found = pack_counts(q, pool, nothing)
    share, done = work // 8, 0
    if found:
        done = improve(q, pool, rng, target, share)
    trial = empty_pool(q)
    for k in range(_LEVELS):
        if (found and pool.load.max() <= target) or done >= work:
            return found, done
        level = target * (1.0 - (k + 0.5) / (_LEVELS + 2))
        if level <= 0.0 or not level_counts(q, trial.copies, level) or not pack_counts(q, trial, nothing):
            continue
        done += improve(q, trial, rng, target, share)
        if not found or trial.load.max() < pool.load.max():
            copy_pool(trial, pool)
            found = True
    if found and done < work and pool.load.max() > target:
        done += improve(q, pool, rng, target, work - done)
    return found, done
