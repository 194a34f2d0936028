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

from ..search.jit import kernel
from ..search.random import below, uniform

_LONGEST_SEGMENT = 3


@kernel
def add(load: NDArray[np.int32], start: NDArray[np.int64], links: NDArray[np.int32], arc: int, limit: int) -> int:
    """Put the transfers of an arc on its links; return how many more are beyond the limit."""
    more = 0
    for k in range(start[arc], start[arc + 1]):
        load[links[k]] += 1
        more += load[links[k]] > limit
    return more


@kernel
def remove(load: NDArray[np.int32], start: NDArray[np.int64], links: NDArray[np.int32], arc: int, limit: int) -> int:
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
    """Move the transfers of order[low : high + 1], which is about to be reversed; return the change beyond the limit."""
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
def anneal(
    hops: NDArray[np.int32],
    price: NDArray[np.int32],
    near: NDArray[np.int32],
    start: NDArray[np.int64],
    links: NDArray[np.int32],
    load: NDArray[np.int32],
    limit: int,
    weight: int,
    goal: int,
    order: NDArray[np.int32],
    best: NDArray[np.int32],
    rng: NDArray[np.uint64],
    moves: int,
    hot: float,
    cold: float,
    deltas: NDArray[np.float64],
) -> tuple[int, int, int]:
    """Propose `moves` while cooling geometrically; return (excess, total hops) of the best, and moves made.

    `price` [n, n] is hops plus the weighted hops beyond their limit; `near` [n, k] the cores that moves bring
    together; `load` [M] room for link loads, `limit` the load that is not to be exceeded, -1 for none. Ends
    early with a ring inside both limits that takes at most `goal` hops. The best ring of the call is left in
    `best`. With `deltas` [moves] given, changes of energy are written to it (NaN for void moves) and nothing is
    accepted: the sample for the temperatures.
    """
    n, sampling = len(order), len(deltas) > 0
    place = np.empty(n, dtype=np.int32)
    gone, come = np.empty(3, dtype=np.int64), np.empty(3, dtype=np.int64)
    load[:] = 0
    total, priced, overload = 0, 0, 0
    for i in range(n):
        a, b = order[i], order[(i + 1) % n]
        place[a] = i
        total += hops[a, b]
        priced += price[a, b]
        if limit >= 0:
            overload += add(load, start, links, a * n + b, limit)
    excess = (priced - total) // weight + overload
    best[:] = order
    best_excess, best_total = excess, total
    factor = (cold / hot) ** (1.0 / moves) if hot > 0.0 else 1.0
    temperature = hot
    for move in range(moves):
        if best_excess == 0 and best_total <= goal:
            return best_excess, best_total, move
        temperature *= factor
        threshold = -temperature * math.log(1.0 - uniform(rng))
        if sampling:
            deltas[move] = np.nan
        i = below(rng, n)
        j = place[near[order[i], below(rng, near.shape[1])]]
        length = below(rng, 2 * _LONGEST_SEGMENT) + 1
        turn = length > _LONGEST_SEGMENT
        if turn:
            low, high = min(i, j) + 1, max(i, j)
            a, b, c, d = order[low - 1], order[low], order[high], order[(high + 1) % n]
            if low == high:
                continue
            longer = hops[a, c] + hops[b, d] - hops[a, b] - hops[c, d]
            dearer = price[a, c] + price[b, d] - price[a, b] - price[c, d]
        else:
            if j + length > n or (i >= j - 1 and i < j + length) or (j == 0 and i == n - 1):
                continue
            a, b, c, d = order[j - 1], order[j], order[j + length - 1], order[(j + length) % n]
            e, f = order[i], order[(i + 1) % n]
            longer = hops[a, d] + hops[e, b] + hops[c, f] - hops[a, b] - hops[c, d] - hops[e, f]
            dearer = price[a, d] + price[e, b] + price[c, f] - price[a, b] - price[c, d] - price[e, f]
            gone[0], gone[1], gone[2] = a * n + b, c * n + d, e * n + f
            come[0], come[1], come[2] = a * n + d, e * n + b, c * n + f
        if not sampling and dearer - weight * overload > threshold:
            continue
        change = 0
        if limit >= 0:
            if turn:
                change = reverse_loads(load, start, links, limit, order, low, high)
            else:
                change = shift_loads(load, start, links, limit, gone, come)
        if sampling:
            deltas[move] = dearer + weight * change
        accepted = not sampling and dearer + weight * change <= threshold
        if accepted:
            if turn:
                reverse(order, place, low, high)
            else:
                shift(order, place, j, length, i)
            ...
