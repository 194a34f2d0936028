"""Moves of the ring annealing and their incremental cost (numba).

The energy counts hops: the total, plus `weight` for every hop and every transfer beyond the limits that
the ring is wanted to keep. Moves bring a core behind one of its near neighbours, by reversing what lies
between (2-opt) or by taking one to three cores along (Or-opt, Or 1976). One random threshold is drawn
before a move is priced, so that most moves are refused on their two or three changed hops alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ..search.random import below, uniform

_LONGEST_SEGMENT = 3


@kernel
def add(
    load: NDArray[np.int32], start: NDArray[np.int64], links: NDArray[np.int32], arc: int, limit: int
) -> int:
    """Put the transfers of an arc on its links; return how many more are beyond the limit."""
    more = 0
    for k in range(start[arc], start[arc + 1]):
        load[links[k]] += 1
        more += load[links[k]] > limit
    return more


@kernel
def remove(
    load: NDArray[np.int32], start: NDArray[np.int64], links: NDArray[np.int32], arc: int, limit: int
) -> int:
    """Take the transfers of an arc off its links; return how many fewer are beyond the limit."""
    fewer = 0
    for k in range(start[arc], start[arc + 1]):
        fewer += load[links[k]] > limit
        load[links[k]] -= 1
    return fewer


@kernel
def reverse_loads(
    load: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    limit: int,
    order: NDArray[np.int32],
    low: int,
    high: int,
) -> int:
    """Move the transfers of order[low : high + 1] for its reversal; return the change beyond the limit."""
    n = len(order)
    change = 0
    for i in range(low - 1, high + 1):
        change -= remove(load, start, links, order[i] * n + order[(i + 1) % n], limit)
    change += add(load, start, links, order[low - 1] * n + order[high], limit)
    for i in range(low, high):
        change += add(load, start, links, order[i + 1] * n + order[i], limit)
    return change + add(load, start, links, order[low] * n + order[(high + 1) % n], limit)


@kernel
def shift_loads(
    load: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    limit: int,
    gone: NDArray[np.int64],
    come: NDArray[np.int64],
) -> int:
    """Exchange three arcs for three others; return the change beyond the limit."""
    change = 0
    for arc in gone:
        change -= remove(load, start, links, arc, limit)
    for arc in come:
        change += add(load, start, links, arc, limit)
    return change


@kernel
def reverse(order: NDArray[np.int32], place: NDArray[np.int32], low: int, high: int) -> None:
    """Reverse order[low : high + 1]."""
    while low < high:
        order[low], order[high] = order[high], order[low]
        place[order[low]], place[order[high]] = low, high
        low += 1
        high -= 1


@kernel
def shift(order: NDArray[np.int32], place: NDArray[np.int32], first: int, length: int, target: int) -> None:
    """Move order[first : first + length] behind the position `target`, which lies outside of it."""
    segment = order[first : first + length].copy()
    if target < first:
        to = target + 1
        for i in range(first - 1, target, -1):
            order[i + length] = order[i]
    else:
        to = target - length + 1
        for i in range(first + length, target + 1):
            order[i - length] = order[i]
    order[to : to + length] = segment
    for i in range(min(first, to), max(first, to) + length):
        place[order[i]] = i


@kernel
def propose(
    order: NDArray[np.int32],
    place: NDArray[np.int32],
    near: NDArray[np.int32],
    rng: NDArray[np.uint64],
    move: NDArray[np.int64],
) -> bool:
    """Write a move: (0, low, high) reverses, (length, first, target) shifts; False where it is void."""
    n = len(order)
    i = below(rng, n)
    j = place[near[order[i], below(rng, near.shape[1])]]
    length = below(rng, 2 * _LONGEST_SEGMENT) - _LONGEST_SEGMENT + 1
    if length <= 0:
        move[0], move[1], move[2] = 0, min(i, j) + 1, max(i, j)
        return bool(move[1] < move[2])
    move[0], move[1], move[2] = length, j, i
    outside = i < j - 1 or i >= j + length
    return bool(outside and j + length <= n and not (j == 0 and i == n - 1))


@kernel
def exchanged_arcs(
    order: NDArray[np.int32], move: NDArray[np.int64], gone: NDArray[np.int64], come: NDArray[np.int64]
) -> None:
    """Write the arcs i * n + j that a move exchanges: three, or two and the empty arc 0 -> 0 twice.

    Arcs inside a reversed segment are left out: they change their direction, not their hops.
    """
    n = len(order)
    last = move[1] + move[0] - 1 if move[0] > 0 else move[2]
    a, b, c, d = order[move[1] - 1], order[move[1]], order[last], order[(last + 1) % n]
    gone[0], gone[1], gone[2] = a * n + b, c * n + d, 0
    come[0], come[1], come[2] = a * n + c, b * n + d, 0
    if move[0] > 0:
        e, f = order[move[2]], order[(move[2] + 1) % n]
        gone[2] = e * n + f
        come[0], come[1], come[2] = a * n + d, e * n + b, c * n + f


@kernel
def change_loads(
    load: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    limit: int,
    order: NDArray[np.int32],
    move: NDArray[np.int64],
    gone: NDArray[np.int64],
    come: NDArray[np.int64],
) -> int:
    """Move the transfers as a move that is still to be made will; return the change beyond the limit."""
    if move[0] == 0:
        return reverse_loads(load, start, links, limit, order, move[1], move[2])
    return shift_loads(load, start, links, limit, gone, come)


@kernel
def apply(order: NDArray[np.int32], place: NDArray[np.int32], move: NDArray[np.int64]) -> None:
    """Make a move."""
    if move[0] == 0:
        reverse(order, place, move[1], move[2])
    else:
        shift(order, place, move[1], move[0], move[2])


@kernel
def undo_loads(
    load: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    limit: int,
    order: NDArray[np.int32],
    place: NDArray[np.int32],
    move: NDArray[np.int64],
    gone: NDArray[np.int64],
    come: NDArray[np.int64],
) -> None:
    """Take `change_loads` back."""
    if move[0] == 0:
        reverse(order, place, move[1], move[2])
        reverse_loads(load, start, links, limit, order, move[1], move[2])
        reverse(order, place, move[1], move[2])
    else:
        shift_loads(load, start, links, limit, come, gone)


@kernel
def difference(values: NDArray[np.int32], gone: NDArray[np.int64], come: NDArray[np.int64]) -> int:
    """Return what three arcs add to a sum over arcs [n * n] when they take the place of three others."""
    change: int = 0
    for k in range(3):
        change += values[come[k]] - values[gone[k]]
    return change


@kernel
def tally(
    hops: NDArray[np.int32],
    price: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    load: NDArray[np.int32],
    limit: int,
    order: NDArray[np.int32],
    place: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Write the place of every core and all link loads; return hops and price in total, and the overload."""
    n = len(order)
    total, priced, overload = 0, 0, 0
    load[:] = 0
    for i in range(n):
        arc = order[i] * n + order[(i + 1) % n]
        place[order[i]] = i
        total += hops[arc]
        priced += price[arc]
        if limit >= 0:
            overload += add(load, start, links, arc, limit)
    return total, priced, overload


@kernel
def sample(
    hops: NDArray[np.int32],
    price: NDArray[np.int32],
    near: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    load: NDArray[np.int32],
    limit: int,
    weight: int,
    order: NDArray[np.int32],
    rng: NDArray[np.uint64],
    deltas: NDArray[np.float64],
) -> None:
    """Write what proposed moves would change the energy of `order` by; NaN for void ones."""
    place, move = np.empty(len(order), dtype=np.int32), np.empty(3, dtype=np.int64)
    gone, come = np.empty(3, dtype=np.int64), np.empty(3, dtype=np.int64)
    tally(hops, price, start, links, load, limit, order, place)
    for step in range(len(deltas)):
        deltas[step] = np.nan
        if not propose(order, place, near, rng, move):
            continue
        exchanged_arcs(order, move, gone, come)
        deltas[step] = difference(price, gone, come)
        if limit >= 0:
            deltas[step] += weight * change_loads(load, start, links, limit, order, move, gone, come)
            undo_loads(load, start, links, limit, order, place, move, gone, come)


@kernel
def anneal(
    hops: NDArray[np.int32],
    price: NDArray[np.int32],
    near: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    load: NDArray[np.int32],
    limit: int,
    weight: int,
    order: NDArray[np.int32],
    rng: NDArray[np.uint64],
    goal: int,
    moves: int,
    hot: float,
    cold: float,
    best: NDArray[np.int32],
) -> tuple[int, int]:
    """Propose `moves` while cooling geometrically; return the excess of the best ring, and the moves made.

    `hops` and `price` are [n * n], the latter with the weighted hops beyond their limit; `near` [n, k] names
    the cores that moves bring together; `load` [M] is room for the link loads, `limit` the largest that is
    wanted, -1 for any. The excess is what lies beyond both limits. Ends early with a ring inside them that
    takes at most `goal` hops. The best ring of the call, by excess and total, is left in `best`.
    """
    n = len(order)
    place, move = np.empty(n, dtype=np.int32), np.empty(3, dtype=np.int64)
    gone, come = np.empty(3, dtype=np.int64), np.empty(3, dtype=np.int64)
    total, priced, overload = tally(hops, price, start, links, load, limit, order, place)
    best[:] = order
    best_excess, best_total = (priced - total) // weight + overload, total
    factor = (cold / hot) ** (1.0 / moves) if hot > 0.0 and moves > 0 else 1.0
    temperature = hot
    for step in range(moves):
        if best_excess == 0 and best_total <= goal:
            return best_excess, step
        temperature *= factor
        if not propose(order, place, near, rng, move):
            continue
        exchanged_arcs(order, move, gone, come)
        dearer = difference(price, gone, come)
        threshold = -temperature * math.log(1.0 - uniform(rng))
        if dearer - weight * overload > threshold:
            continue
        more = change_loads(load, start, links, limit, order, move, gone, come) if limit >= 0 else 0
        if dearer + weight * more > threshold:  # only ever where loads count
            undo_loads(load, start, links, limit, order, place, move, gone, come)
            continue
        total += difference(hops, gone, come)
        priced += dearer
        overload += more
        apply(order, place, move)
        excess = (priced - total) // weight + overload
        if excess < best_excess or (excess == best_excess and total < best_total):
            best_excess, best_total = excess, total
            best[:] = order
    return best_excess, moves
