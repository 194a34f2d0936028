"""The optimal partition of an order into sub-batches, by dynamic programming (numba)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.jit import kernel


@kernel
def best_chain(attention: NDArray[np.float64], moe: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    """Boundaries [n + 1] of the best partition, and its time; both tables `[L, B + 1, B + 1]`.

    One sub-batch takes the serial time. For two or more, `best[i, j]` is the least time from the end of
    startup until sub-batch (i, j) has left attention in all layers, over partitions of tokens 0 to j - 1 that
    end with it. Between layers the last sub-batch's experts run beside the first one's attention; so where
    there are several layers the first sub-batch is fixed in turn.
    """
    layers, size = len(attention), attention.shape[1]
    end = size - 1
    best_total = 0.0
    for layer in range(layers):
        best_total += attention[layer, 0, end] + moe[layer, 0, end]
    best_last = 0
    pairs = np.empty((size, size, size)) if layers > 1 else np.empty((1, 1, 1))
    if layers > 1:
        _fill_pairs(attention, moe, pairs)
    best = np.empty((size, size))
    origin = np.empty((size, size), dtype=np.int64)
    kept_origin = np.empty((size, size), dtype=np.int64)
    for first in range(1, end):
        if layers == 1 and first > 1:
            break
        _fill(attention[0], moe[0], pairs, layers > 1, first, best, origin)
        for begin in range(first if layers > 1 else 1, end):
            # With one layer `best` already holds the startup of whatever came first.
            total = best[begin, end] + moe[layers - 1, begin, end]
            if layers > 1:
                total += attention[0, 0, first]
                for layer in range(layers - 1):
                    total += max(attention[layer + 1, 0, first], moe[layer, begin, end])
            if total < best_total:
                best_total, best_last = total, begin
                kept_origin[:] = origin
    return _boundaries(kept_origin, best_last, end), best_total


@kernel
def _fill_pairs(attention: NDArray[np.float64], moe: NDArray[np.float64], pairs: NDArray[np.float64]) -> None:
    """`pairs[k, i, j]`: sum over layers of max(attention of (i, j), experts of (k, i))."""
    size = attention.shape[1]
    pairs[:] = 0.0
    for layer in range(len(attention)):
        for k in range(size):
            for i in range(k + 1, size):
                experts = moe[layer, k, i]
                for j in range(i + 1, size):
                    pairs[k, i, j] += max(attention[layer, i, j], experts)


@kernel
def _fill(
    attention: NDArray[np.float64],
    moe: NDArray[np.float64],
    pairs: NDArray[np.float64],
    chained: bool,
    first: int,
    best: NDArray[np.float64],
    origin: NDArray[np.int64],
) -> None:
    """Fill `best` and `origin` (the begin of the sub-batch before).

    Chained: only partitions whose first sub-batch ends at `first`, whose own attention is left out. Else
    any, with it.
    """
    size = len(attention)
    best[:] = np.inf
    if chained:
        best[0, first] = 0.0
    else:
        for j in range(1, size):
            best[0, j] = attention[0, j]
    for i in range(first if chained else 1, size):
        for j in range(i + 1, size):
            for k in range(i):
                if best[k, i] == np.inf:
                    continue
                both = pairs[k, i, j] if chained else max(attention[i, j], moe[k, i])
                if best[k, i] + both < best[i, j]:
                    best[i, j] = best[k, i] + both
                    origin[i, j] = k


@kernel
def _boundaries(origin: NDArray[np.int64], begin: int, end: int) -> NDArray[np.int64]:
    found = np.zeros(end + 1, dtype=np.int64)
    n = 0
    found[0] = end
    i, j = begin, end
    while i > 0:
        n += 1
        found[n] = i
        i, j = origin[i, j], i
    n += 1
    found[n] = 0
    return found[: n + 1][::-1].copy()
