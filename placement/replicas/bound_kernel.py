"""Bounds on the largest rank load of a pool that hold for every choice of replica counts and packing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .cost_kernel import HASH
from .rates import Rates


@kernel
def largest_replica(weight: NDArray[np.float64], spare: int, most: int) -> float:
    """Smallest possible largest load of a single replica, with `spare` replicas beyond one each.

    Every spare replica goes to what is largest then, which is optimal: another choice leaves that as it is.
    """
    count = np.ones(len(weight), dtype=np.int64)
    each = weight.copy()
    for _ in range(spare):
        hot = each.argmax()
        if count[hot] >= most:
            break
        count[hot] += 1
        each[hot] = weight[hot] / count[hot]
    return float(each.max())


@kernel
def largest_replica_s(rates: Rates, split: int, weight: NDArray[np.float64], spare: int, most: int) -> float:
    """The same for the time of a rank that holds a single replica, which falls with the replicas too."""
    experts = len(weight)
    count = np.ones(experts, dtype=np.int64)
    each = np.empty(experts)
    for e in range(experts):
        each[e] = _replica_s(rates, split, weight[e], 1)
    for _ in range(spare):
        hot = each.argmax()
        if count[hot] >= most:
            break
        count[hot] += 1
        each[hot] = _replica_s(rates, split, weight[hot], count[hot])
    return float(each.max())


@kernel
def _replica_s(rates: Rates, split: int, n: float, count: int) -> float:
    """Least time of the rank with the largest replica of n tokens: at least n / count of them are there."""
    if n == 0.0:
        return 0.0
    active = 1.0 - (1.0 - 1.0 / count) ** n if split == HASH else min(1.0, n / count)
    return max(active * rates.expert_s + n / count * rates.token_memory_s, n / count * rates.token_compute_s)


@kernel
def cardinality(weight: NDArray[np.float64], ranks: int) -> float:
    """Bound for as many slots as experts, equal on all ranks: no rank may hold less than its slots.

    Of the k G + 1 largest experts some rank holds at least k + 1, hence at least the smallest k + 1 of them,
    and fills its other slots with at least the smallest of all.
    """
    experts = len(weight)
    room = experts // ranks
    order = np.sort(weight)
    lightest = np.zeros(room + 1)
    for k in range(room):
        lightest[k + 1] = lightest[k] + order[k]
    best = 0.0
    for k in range(room):
        together = 0.0
        for i in range(k + 1):
            together += order[experts - 1 - (k * ranks - i)]
        best = max(best, together + lightest[room - k - 1])
    return best


@kernel
def pool_bound(
    weight: NDArray[np.float64], room: NDArray[np.int64], speed: NDArray[np.float64], most: int, equal: bool
) -> float:
    """Best of all bounds of a pool, in tokens at speed 1; `equal`: replicas share their load equally."""
    ranks, slots, experts = len(room), room.sum(), len(weight)
    fastest = speed.max()
    cap = ranks * most
    best = weight.sum() / speed.sum()
    best = max(best, largest_replica(weight, slots - experts, cap) / fastest)
    even = room.min() == room.max() and speed.min() == fastest
    if even and equal and slots == experts:
        best = max(best, cardinality(weight, ranks) / fastest)
    return float(best)


@kernel
def subset_bounds(
    weight: NDArray[np.float64], subsets: NDArray[np.int64], size: int, room: NDArray[np.int64],
    speed: NDArray[np.float64], per_node: int, most: int, equal: bool,
) -> NDArray[np.float64]:  # fmt: skip
    """Bound of every set of groups on every node, `[U, N]`; alike nodes are worked out once."""
    nodes = len(room) // per_node
    values = np.empty((len(subsets), nodes))
    pool = np.empty(subsets.shape[1] * size)
    for u in range(len(subsets)):
        for k in range(subsets.shape[1]):
            first = subsets[u, k] * size
            pool[k * size : (k + 1) * size] = weight[first : first + size]
        for n in range(nodes):
            own_room, own_speed = (
                room[n * per_node : (n + 1) * per_node],
                speed[n * per_node : (n + 1) * per_node],
            )
            if n and (own_room == room[:per_node]).all() and (own_speed == speed[:per_node]).all():
                values[u, n] = values[u, 0]
            else:
                values[u, n] = pool_bound(pool, own_room, own_speed, most, equal)
    return values
