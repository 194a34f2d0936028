"""What no channel placement can beat: bounds of every step on its own.

Sound even for an oracle that re-plans every step, hence blind to what a fixed placement must lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .tables import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .groups import Groups
    from .tables import Tables

_BISECTIONS = 50


def step_bounds(tables: Tables, groups: Groups) -> NDArray[np.float64]:
    """Lower bound on `J_dram + J_noc` of every step, `[S]` seconds.

    The larger of `spread_bounds` and `gather_bounds` of each step, since J_noc is never negative.
    """
    dram = spread_bounds(tables, groups)
    return np.maximum(dram, gather_bounds(tables, dram)) if tables.noc else dram


def spread_bounds(tables: Tables, groups: Groups) -> NDArray[np.float64]:
    """Lower bound on J_dram of every step, `[S]`: average load and largest expert, taken together.

    Let an expert with n tokens run at TP factor t in n * tau(t) seconds on each of t sites. If the busiest
    site takes m seconds, every expert has a factor with n * tau(t) <= m, so the work is at least the sum of
    the cheapest n * t * tau(t) among those, and at most N * m. The smallest m for which this holds is a
    bound; the left side falls and the right side rises in m, so bisection finds it, and its lower end is
    returned.
    """
    from .bound_kernel import least_busiest

    sites = len(tables.near)
    one_of_each = groups.factor_start[:-1]
    fits = tables.shard_bytes[one_of_each] <= tables.capacity_bytes * SLACK
    each_s = tables.token_s[one_of_each][fits]  # [F] seconds of one token on a site
    work_s = each_s * np.array(groups.factors, dtype=np.float64)[fits]  # [F] on all sites together
    if not len(each_s):
        return np.zeros(tables.counts.shape[1])
    return least_busiest(tables.counts, each_s, work_s, sites, _BISECTIONS)


def gather_bounds(tables: Tables, spread_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower bound on J_dram + J_gather of every step, `[S]`.

    With A first cores, one of them starts at least 1/A of the tokens, each of which costs it at least the
    smallest tau; and for A > 1 the all-gather moves at least (1 - 1/A) of all results over one ring edge,
    in A - 1 hops of at least the smallest latency. The best A in 1..min(N, activated experts) bounds the sum.
    """
    tokens = tables.counts.sum(axis=0)  # [S]
    activated = (tables.counts > 0).sum(axis=0)
    sites = len(tables.near)
    cores = np.arange(1, sites + 1)
    per_byte_s = tables.seconds_per_byte.min(initial=np.inf)
    if not np.isfinite(per_byte_s):
        return spread_s  # a single site has no links
    hop_s = tables.latency_s[tables.latency_rank[~np.eye(sites, dtype=bool)].min()]
    dram = np.maximum(spread_s[:, None], tokens[:, None] * tables.token_s.min() / cores)
    gather = tokens[:, None] * tables.token_bytes * per_byte_s * (1.0 - 1.0 / cores)
    total = dram + gather + (cores - 1) * hop_s
    possible = cores <= np.maximum(activated, 1)[:, None]
    best: NDArray[np.float64] = np.where(possible, total, np.inf).min(axis=1)
    return best
