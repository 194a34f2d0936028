"""The bisection of `bound.spread_bounds` (numba)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel


@kernel
def least_busiest(
    counts: NDArray[np.float64],
    each_s: NDArray[np.float64],
    work_s: NDArray[np.float64],
    sites: int,
    bisections: int,
) -> NDArray[np.float64]:
    """Smallest m of every step, `[S]`, at which the cheapest allowed work fits in `sites` * m; from below.

    `counts` [E, S]; a token at factor f takes `each_s` [F] on a site and `work_s` [F] on all together.
    """
    experts, steps = counts.shape
    lowest = np.zeros(steps)
    tokens = np.empty(experts)
    for s in range(steps):
        used, total = 0, 0.0
        for e in range(experts):
            if counts[e, s] > 0.0:
                tokens[used] = counts[e, s]
                total += counts[e, s]
                used += 1
        low, high = 0.0, total * each_s.max()
        for _ in range(bisections):
            middle = 0.5 * (low + high)
            needed = 0.0
            for i in range(used):
                cheapest = np.inf
                for f in range(len(each_s)):
                    if tokens[i] * each_s[f] <= middle and work_s[f] < cheapest:
                        cheapest = work_s[f]
                needed += tokens[i] * cheapest
            if needed <= sites * middle:
                high = middle
            else:
                low = middle
        lowest[s] = low
    return lowest
