"""Windows that were not recorded but might come: what a placement should be good at.

Recorded windows are few. An expert that had more than its mean while another had less may be what topics do,
or chance; a search that sees the recorded windows alone takes both for a law, and puts the two on one rank.
How much of it is law is estimated from the windows themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Variation(NamedTuple):
    """How loads are taken to vary: together, as in the recorded windows, and every expert for itself.

    The objective counts windows whose distance from the mean is `kept` times the recorded one, and `drift`:
    standard deviations of every expert's load relative to it, independent of all others.
    """

    kept: float
    drift: float


#: Relative spread below which windows are equal but for rounding.
_NOTHING = 1e-9
#: The recorded windows as they are.
RECORDED = Variation(1.0, 0.0)


def variation(steps: NDArray[np.float64]) -> Variation:
    """Estimate the variation of loads `[S, E]`; RECORDED where fewer than two windows have tokens.

    The covariance of loads in windows of the same size is drawn towards its diagonal by the part x of the
    least expected square error (Ledoit and Wolf 2004; the estimate of Schaefer and Strimmer 2005, equation 8,
    for a diagonal of unequal variances, with the variance of normal samples made unbiased). Distances that
    are kept to sqrt(1 - x) and independent ones of sqrt(x) have that covariance. A further window differs
    from the mean of S by sqrt(1 + 1 / S) of what windows differ by. Of two windows nothing tells law from
    chance: x is 1.
    """
    totals = steps.sum(axis=1)
    used = totals > 0.0
    number = int(used.sum())
    if number < 2:
        return RECORDED
    sized = _sized(steps[used] / totals[used, None])
    mean = sized.mean(axis=0)
    apart = sized - mean
    variance = (apart**2).sum(axis=0) / (number - 1)
    drift = float(np.sqrt(variance.sum() / (mean**2).sum() * (1.0 + 1.0 / number)))
    if drift < _NOTHING:
        return Variation(0.0, 0.0)
    alone = _independent(apart, variance)
    return Variation(float(np.sqrt(1.0 - alone)), float(np.sqrt(alone)) * drift)


def _sized(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares `[S, E]` relative to a size of their window that no single expert decides.

    Of a whole, all others lose what a hot expert gains, which looks as if they had something in common.
    Experts count by their share up to about the mean one, and no more beyond.
    """
    mean = shares.mean(axis=0)
    weight = 1.0 / (mean + 1.0 / len(mean))
    size: NDArray[np.float64] = shares @ weight / (mean @ weight)
    return shares / size[:, None]


def _independent(apart: NDArray[np.float64], variance: NDArray[np.float64]) -> float:
    """Return x for centred loads `[S, E]`, 0.0 to 1.0.

    Sums over pairs of experts follow from the windows' products [S, S], which are fewer.
    """
    number = len(apart)
    if number == 2:
        return 1.0
    products = apart @ apart.T
    covariances = (products**2).sum() / (number - 1) ** 2 - (variance**2).sum()
    if covariances <= 1e-9 * (variance**2).sum():
        return 1.0
    spread = (products.diagonal() ** 2).sum() - (products**2).sum() / number
    spread -= (apart**4).sum() - ((apart**2).sum(axis=0) ** 2).sum() / number
    uncertain = number / (number - 1) ** 2 / (number - 2) * spread
    return float(np.clip(uncertain / covariances, 0.0, 1.0))


def planned_steps(tokens: NDArray[np.float64], kept: float) -> NDArray[np.float64]:
    """Return the windows that the objective counts, `[S, P, E]`; a single one where nothing is kept apart."""
    if kept == 1.0 or len(tokens) == 1:
        return tokens
    mean: NDArray[np.float64] = tokens.mean(axis=0, keepdims=True)
    return mean if kept == 0.0 else mean + kept * (tokens - mean)
