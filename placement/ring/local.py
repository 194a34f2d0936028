"""Nearest neighbour and 2-opt on hops (numba). Orders are int32 [n] positions, hops int32 [n, n]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel


@kernel
def nearest_neighbour(hops: NDArray[np.int32], first: int, order: NDArray[np.int32]) -> None:
    """Write the order that goes from `first` to the nearest core left, the lowest one on ties."""
    n = len(hops)
    left = np.ones(n, dtype=np.bool_)
    order[0] = first
    left[first] = False
    for i in range(1, n):
        here, nearest = order[i - 1], -1
        for core in range(n):
            if left[core] and (nearest < 0 or hops[here, core] < hops[here, nearest]):
                nearest = core
        order[i] = nearest
        left[nearest] = False


@kernel
def _reverse(order: NDArray[np.int32], low: int, high: int) -> None:
    while low < high:
        order[low], order[high] = order[high], order[low]
        low += 1
        high -= 1


@kernel
def two_opt_largest(hops: NDArray[np.int32], order: NDArray[np.int32]) -> None:
    """Reverse segments as long as the largest hop of the whole ring gets smaller (SPIMOE 3.3.2).

    The largest gets smaller only if a move replaces all hops of that size; at most two can go.
    """
    n = len(order)
    improved = True
    while improved:
        improved = False
        largest, times = 0, 0
        for i in range(n):
            hop = hops[order[i], order[(i + 1) % n]]
            if hop > largest:
                largest, times = hop, 0
            times += hop == largest
        for i in range(n - 1):
            for j in range(i + 1, n):
                a, b, c, d = order[i], order[i + 1], order[j], order[(j + 1) % n]
                gone = (hops[a, b] == largest) + (hops[c, d] == largest)
                if gone == times and hops[a, c] < largest and hops[b, d] < largest:
                    _reverse(order, i + 1, j)
                    improved = True
                    break
            if improved:
                break


@kernel
def two_opt(hops: NDArray[np.int32], order: NDArray[np.int32]) -> None:
    """Reverse segments as long as the two hops that change get smaller: their larger one, then their sum."""
    n = len(order)
    improved = True
    while improved:
        improved = False
        for i in range(n - 1):
            for j in range(i + 1, n):
                a, b, c, d = order[i], order[i + 1], order[j], order[(j + 1) % n]
                was, now = max(hops[a, b], hops[c, d]), max(hops[a, c], hops[b, d])
                if now < was or (now == was and hops[a, c] + hops[b, d] < hops[a, b] + hops[c, d]):
                    _reverse(order, i + 1, j)
                    improved = True
