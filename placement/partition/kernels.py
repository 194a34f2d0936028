"""Cost of a GPU/PIM partition and its grouping into classes of equal experts (numba).

Experts of equal token count on the same home are interchangeable. A class is such a set: `number` tokens,
`copies` experts, `seconds` on PIM. What a partition decides is how many of each class go to the GPU.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel

#: Places of the GPU coefficients, in seconds; see `costs.GpuCosts`.
FIXED, FIRST, MEMORY, COMPUTE, EXPERT, TOKEN, FLOP = range(7)


@kernel
def gpu_s(c: NDArray[np.float64], experts: float, tokens: float) -> float:
    """Return T_gpu of `experts` routed experts with `tokens` tokens (Sieve section 5, timing models)."""
    memory_s = c[MEMORY] + c[EXPERT] * experts + c[TOKEN] * tokens
    first_s = c[FIRST] if experts > 0 else 0.0
    return float(c[FIXED] + first_s + max(memory_s, c[COMPUTE] + c[FLOP] * tokens))


@kernel
def table_s(table: NDArray[np.float64], n: int) -> float:
    """Return PIM seconds of `n` tokens; beyond the table its last entry grows in proportion."""
    last = len(table) - 1
    return float(table[n]) if n <= last else float(table[last]) * (n / last)


@kernel
def count_classes(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    histogram: NDArray[np.int64],
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
) -> int:
    """Write the classes of one home, most tokens first, and return how many there are; -1: a negative count.

    `histogram` is all zero before and after. Counts beyond it are sorted instead of counted.
    """
    most = 0
    for n in tokens:
        if n < 0:
            return -1
        most = max(most, n)
    found = 0
    if most < len(histogram):
        for n in tokens:
            histogram[n] += 1
        for n in range(most, 0, -1):
            if histogram[n] > 0:
                number[found], copies[found] = n, histogram[n]
                found += 1
                histogram[n] = 0
        histogram[0] = 0
    else:
        for n in np.sort(tokens)[::-1]:
            if n == 0:
                break
            if found > 0 and number[found - 1] == n:
                copies[found - 1] += 1
            else:
                number[found], copies[found] = n, 1
                found += 1
    for d in range(found):
        seconds[d] = table_s(table, number[d])
    return found


@kernel
def write_mask(
    tokens: NDArray[np.int64],
    histogram: NDArray[np.int64],
    number: NDArray[np.int64],
    chosen: NDArray[np.int64],
    classes: int,
    mask: NDArray[np.bool_],
) -> None:
    """Put the first `chosen[d]` experts of every class on the GPU; `histogram` is zero before and after."""
    if classes > 0 and number[0] >= len(histogram):
        for d in range(classes):
            left = chosen[d]
            for e in range(len(tokens)):
                if tokens[e] == number[d]:
                    mask[e] = left > 0
                    left -= 1
        for e in range(len(tokens)):
            mask[e] = mask[e] and tokens[e] > 0
        return
    for d in range(classes):
        histogram[number[d]] = chosen[d]
    for e in range(len(tokens)):
        n = tokens[e]
        mask[e] = histogram[n] > 0
        if mask[e]:
            histogram[n] -= 1
    for d in range(classes):
        histogram[number[d]] = 0
