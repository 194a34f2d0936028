"""Power laws through measured points: exponents with their standard errors, and what lies beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """y = exp(level) * (x / centre) ** exponent, by least squares on logarithms.

    - `error`: standard error of the exponent; None with two points, which every power law meets.
    - `last`: exponent between the two largest points: where a fixed cost hides the growth of small sizes, it
      is larger.
    - `spread`: standard deviation of the residuals of log y; `spread_x`: sum of squared deviations of log x.
    """

    exponent: float
    error: float | None
    last: float
    level: float
    centre: float
    points: int
    spread: float
    spread_x: float

    def at(self, x: float) -> tuple[float, float, float]:
        """Return what the law says at x, and the 95 % interval of a measurement there.

        The interval is that of a new observation of a linear regression, with Student's t of n - 2 degrees of
        freedom. With two points its ends are 0 and infinity.
        """
        away = math.log(x / self.centre)
        log_y = self.level + self.exponent * away
        if self.error is None:
            return math.exp(log_y), 0.0, math.inf
        from scipy.special import stdtrit

        width = float(stdtrit(self.points - 2, 0.975)) * self.spread
        width *= math.sqrt(1.0 + 1.0 / self.points + away**2 / self.spread_x)
        return math.exp(log_y), math.exp(log_y - width), math.exp(min(log_y + width, 700.0))


def fit(x: Sequence[float], y: Sequence[float]) -> Fit | None:
    """Fit a power law; None where fewer than two different sizes have a positive figure."""
    pairs = sorted((a, b) for a, b in zip(x, y, strict=True) if a > 0.0 and b > 0.0)
    if len({a for a, _ in pairs}) < 2:
        return None
    log_x, log_y = (np.log([pair[axis] for pair in pairs]) for axis in (0, 1))
    centre = float(log_x.mean())
    away = log_x - centre
    spread_x = float(away @ away)
    exponent = float(away @ log_y) / spread_x
    level = float(log_y.mean())
    rest = log_y - level - exponent * away
    free = len(pairs) - 2
    spread = math.sqrt(float(rest @ rest) / free) if free else 0.0
    return Fit(
        exponent=exponent,
        error=spread / math.sqrt(spread_x) if free else None,
        last=_last(log_x, log_y),
        level=level,
        centre=math.exp(centre),
        points=len(pairs),
        spread=spread,
        spread_x=spread_x,
    )


def _last(log_x: np.ndarray, log_y: np.ndarray) -> float:
    """Slope from the largest size to the next smaller one."""
    before = int(np.flatnonzero(log_x < log_x[-1])[-1])
    return float((log_y[-1] - log_y[before]) / (log_x[-1] - log_x[before]))
