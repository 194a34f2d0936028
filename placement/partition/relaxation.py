"""The linear relaxation of a partition over one pool of PIM channels, and its multipliers (numba).

T_total is the largest of linear forms in the number of experts that each class has on the GPU: memory
traffic, computation, PIM time, communication. Any weights that add up to one turn them into one form,
whose minimum over fractional numbers bounds T_total from below (Lagrangian relaxation). With the best
weights that is the linear program's value, which a scan by falling gain finds, as in fractional knapsacks
(Dantzig 1957, doi 10.1287/opre.5.2.266).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .kernels import COMPUTE, EXPERT, FIRST, FIXED, FLOP, MEMORY, TOKEN

_BISECTIONS = 12


@kernel
def step_s(c: NDArray[np.float64], theta: float, n: int) -> float:
    """Seconds that one expert of `n` tokens adds to theta * memory + (1 - theta) * computation."""
    return float(theta * (c[EXPERT] + c[TOKEN] * n) + (1.0 - theta) * c[FLOP] * n)


@kernel
def sort_by_gain(
    c: NDArray[np.float64],
    theta: float,
    number: NDArray[np.int64],
    seconds: NDArray[np.float64],
    classes: int,
    order: NDArray[np.int64],
) -> None:
    """Order classes by rising GPU time per PIM second saved. Insertion sort: they mostly are already."""
    for i in range(classes):
        step, saved = step_s(c, theta, number[i]), seconds[i]
        j = i
        while j > 0 and step * seconds[order[j - 1]] < step_s(c, theta, number[order[j - 1]]) * saved:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@kernel
def scan(
    c: NDArray[np.float64],
    theta: float,
    pim_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    classes: int,
    order: NDArray[np.int64],
) -> tuple[float, float, int, float]:
    """Return (value, weight of the GPU form, position of the split class in `order`, memory - computation).

    `pim_s` is the PIM time with every expert on PIM. At position `classes` nothing is split: all experts
    are on the GPU, or (weight 1) none.
    """
    sort_by_gain(c, theta, number, seconds, classes, order)
    gpu = c[FIXED] + c[FIRST] + theta * c[MEMORY] + (1.0 - theta) * c[COMPUTE]
    surplus = c[MEMORY] - c[COMPUTE]
    if gpu >= pim_s:
        return gpu, 1.0, classes, surplus
    for i in range(classes):
        d = order[i]
        step, saved, n = step_s(c, theta, number[d]), seconds[d], float(number[d])
        slope = c[EXPERT] + (c[TOKEN] - c[FLOP]) * n
        if gpu + copies[d] * step < pim_s - copies[d] * saved:
            gpu += copies[d] * step
            pim_s -= copies[d] * saved
            surplus += copies[d] * slope
            continue
        if step + saved <= 0.0:
            continue
        x = (pim_s - gpu) / (step + saved)
        return gpu + x * step, saved / (step + saved), i, surplus + x * slope
    return pim_s, 0.0, classes, surplus


@kernel
def relax(
    c: NDArray[np.float64],
    pim_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    classes: int,
    order: NDArray[np.int64],
) -> tuple[float, float, float, int]:
    """Return (value, theta, weight of the GPU form, split position) of the best relaxation found.

    Holds where some expert is on the GPU; `order` is that of the theta returned.
    """
    best, theta = -1.0, 1.0
    low, high, mid = 0.0, 1.0, 1.0
    for attempt in range(_BISECTIONS):
        value, _, _, surplus = scan(c, mid, pim_s, number, copies, seconds, classes, order)
        if value > best:
            best, theta = value, mid
        if (mid == 1.0 and surplus >= 0.0) or (mid == 0.0 and surplus <= 0.0):
            break
        if surplus >= 0.0:
            low = mid
        else:
            high = mid
        mid = 0.0 if attempt == 0 else 0.5 * (low + high)
    value, weight, at, _ = scan(c, theta, pim_s, number, copies, seconds, classes, order)
    return value, theta, weight, at
