"""Annealing temperatures taken from the instance's own uphill moves, and the test that uses them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...common.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The hot end accepts a lower-quartile uphill move half of the time; the cold end accepts the
#: smallest sampled one once in a hundred.
_HOT_QUANTILE, _HOT_ACCEPTANCE, _COLD_ACCEPTANCE = 0.25, 0.5, 0.01


def temperatures(deltas_s: NDArray[np.float64]) -> tuple[float, float]:
    """Return (hot, cold) in the unit of the deltas, from a sample of move costs at the start.

    From exp(-delta / T) = acceptance. Nothing uphill in the sample gives (0, 0): descend.
    """
    uphill = deltas_s[deltas_s > 0.0]
    if len(uphill) == 0:
        return 0.0, 0.0
    hot = float(np.quantile(uphill, _HOT_QUANTILE)) / -math.log(_HOT_ACCEPTANCE)
    cold = float(np.quantile(uphill, 0.01)) / -math.log(_COLD_ACCEPTANCE)
    return hot, min(cold, hot)


@kernel
def accept(delta: float, temperature: float, u: float) -> bool:
    """Metropolis test of a change in cost, with a uniform number in [0, 1)."""
    return delta <= 0.0 or (temperature > 0.0 and u < math.exp(-delta / temperature))


def temperature(hot: float, cold: float, progress: float) -> float:
    """Geometric cooling from hot at progress 0.0 to cold at 1.0."""
    return 0.0 if hot <= 0.0 else hot * (cold / hot) ** progress
