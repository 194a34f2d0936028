"""A lower bound on the total hops of a ring: minimum 1-trees under node prices (numba).

Held and Karp 1970, doi 10.1287/opre.18.6.1138: a ring is a spanning tree over all cores but one, plus two
edges at that one, in which every core has two edges. Whatever is charged per edge of a core and paid back
twice, the cheapest such 1-tree costs no more than the cheapest ring; subgradient steps raise the charges of
cores with too many edges (Held, Wolfe and Crowder 1974, doi 10.1007/BF01580223).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .bounds import round_up, total_floor
from .local import nearest_neighbour, two_opt

_STALLED_ROUNDS = 12  # rounds without a better bound after which steps are halved
_SHORTEST_STEP = 1e-3
_ROUNDS, _EDGES = 300, 20_000_000  # most rounds, and most edges looked at
_ROUNDING = 1e-6  # a sum of a thousand prices is exact to less


def least_total(hops: NDArray[np.int32], limit: int) -> int:
    """Return a total that no ring with hops up to `limit` falls below, in a graph that is biconnected."""
    simple = total_floor(hops)
    if len(hops) < 3:
        return simple
    order = np.empty(len(hops), dtype=np.int32)
    nearest_neighbour(hops, 0, order)
    two_opt(hops, order)
    known = int(hops[order, np.roll(order, -1)].sum())
    rounds = max(10, min(_ROUNDS, _EDGES // len(hops) ** 2))
    bound = ascend(hops, limit, known, rounds)
    # Where there is no ring at all, prices rise without end.
    return max(simple, round_up(math.ceil(min(bound, len(hops) * limit) - _ROUNDING), hops))


@kernel
def one_tree(
    hops: NDArray[np.int32], limit: int, price: NDArray[np.float64], degree: NDArray[np.int64]
) -> float:
    """Return the cost of a minimum 1-tree over hops [n, n] up to `limit`, and leave its degrees [n].

    The special core is 0; the others are joined by Prim's algorithm. Infinite where they are not connected.
    """
    n = len(hops)
    degree[:] = 0
    distance, parent = np.full(n, np.inf), np.full(n, -1)
    distance[1] = 0.0
    done = np.zeros(n, dtype=np.bool_)
    cost = 0.0
    for _ in range(n - 1):
        nearest = -1
        for core in range(1, n):
            if not done[core] and (nearest < 0 or distance[core] < distance[nearest]):
                nearest = core
        if np.isinf(distance[nearest]):
            return np.inf
        done[nearest] = True
        cost += distance[nearest]
        if parent[nearest] >= 0:
            degree[nearest] += 1
            degree[parent[nearest]] += 1
        for core in range(1, n):
            edge = hops[nearest, core] + price[nearest] + price[core]
            if not done[core] and hops[nearest, core] <= limit and edge < distance[core]:
                distance[core], parent[core] = edge, nearest
    first, second = -1, -1
    for core in range(1, n):
        if hops[0, core] > limit:
            continue
        edge = hops[0, core] + price[core]
        if first < 0 or edge < hops[0, first] + price[first]:
            first, second = core, first
        elif second < 0 or edge < hops[0, second] + price[second]:
            second = core
    if second < 0:
        return np.inf
    degree[0], degree[first], degree[second] = 2, degree[first] + 1, degree[second] + 1
    at_first = float(hops[0, first] + price[first] + hops[0, second] + price[second])
    return float(cost + at_first + 2.0 * price[0])


@kernel
def ascend(hops: NDArray[np.int32], limit: int, known: int, rounds: int) -> float:
    """Return a lower bound on the total hops of a ring with hops up to `limit`, n >= 3.

    `known` is the total of some ring, with larger hops or not, which sets the length of the steps.
    """
    n = len(hops)
    price, degree = np.zeros(n), np.empty(n, dtype=np.int64)
    bound, step, stalled = 0.0, 1.0, 0
    for _ in range(rounds):
        value = one_tree(hops, limit, price, degree) - 2.0 * price.sum()
        if value > bound + 1e-9:
            bound, stalled = value, 0
        else:
            stalled += 1
        if stalled == _STALLED_ROUNDS:
            step, stalled = step / 2.0, 0
        uneven = ((degree - 2) ** 2).sum()
        if uneven == 0 or step < _SHORTEST_STEP:
            break
        price += step * max(1.0, known - value) / uneven * (degree - 2)
    return bound
