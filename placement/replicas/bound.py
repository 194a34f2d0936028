"""A lower bound on the objective of a layer, whatever counts, packing and pairing of groups are chosen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..problem import Bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problem import ReplicaProblem


def lower_bound(problem: ReplicaProblem) -> Bound:
    """Return the larger of two bounds that hold for `problem`.

    Mean over steps of each step's own bound: average load, and the largest replica that no choice of counts
    avoids. And the bound of the mean step: what is proportional to a rank's tokens has a mean of maxima of at
    least the maximum of means, to which cardinality and the node level belong: groups are on some node, so
    the bound is the smallest over all pairings of the largest over nodes. Drift adds to both what it adds to
    a rank of equal experts. The standard deviation is at least 0.
    """
    steps_s = float(np.mean(_step_bounds(problem)))
    mean_s, by = _mean_bound(problem)
    if mean_s > steps_s:
        return Bound(_rounded(mean_s), by)
    return Bound(_rounded(steps_s), "average load and largest replica per step")


def _rounded(value_s: float) -> float:
    """Take off what sums in another order may differ by."""
    return value_s * (1.0 - 1e-12)


def _step_bounds(problem: ReplicaProblem) -> NDArray[np.float64]:
    """Bound of every planned step `[S']`, in seconds."""
    from .bound_kernel import largest_replica_s
    from .cost_kernel import SPLITS

    rates, ranks = problem.rates, problem.ranks
    speed = np.array(ranks.speed)
    tokens = problem.planned.sum(axis=1)
    spare = ranks.slots - problem.experts
    most = problem.most * (ranks.ranks // problem.nodes)
    total = tokens.sum(axis=1)
    active = np.minimum(1.0, tokens).sum(axis=1)
    raised = total * _raised(problem)
    average = np.maximum(
        active * rates.expert_s + raised * rates.token_memory_s, raised * rates.token_compute_s
    ) / speed.sum()  # fmt: skip
    split, more = SPLITS[problem.settings.split], 1.0 + problem.spread
    alone = rates._replace(
        token_memory_s=rates.token_memory_s * more, token_compute_s=rates.token_compute_s * more
    )
    largest = np.array([largest_replica_s(alone, split, step, spare, most) for step in tokens]) / speed.max()
    constant = np.where(total > 0.0, rates.kernel_s, 0.0)
    bounds: NDArray[np.float64] = constant + np.maximum(average, largest) + _flow_bounds(problem, total)
    return bounds


def _raised(problem: ReplicaProblem) -> float:
    """Factor by which drift raises a rank's tokens at least: they are of at most as many experts as slots.

    The root of the sum of n squares is at least their sum over the root of n.
    """
    return 1.0 + problem.spread / math.sqrt(max(problem.ranks.room))


def _flow_bounds(problem: ReplicaProblem, total: NDArray[np.float64]) -> NDArray[np.float64] | float:
    """Bound on dispatch, combine and weighted traffic of every step: what no placement keeps on its rank.

    Only where every source sends alike to all replicas; elsewhere a replica beside every source may save all.
    """
    rates, ranks = problem.rates, problem.ranks
    if problem.settings.split not in ("equal", "hash") or problem.tokens.shape[1] > 1:
        return 0.0
    each = total / ranks.ranks  # a rank's mean tokens, of which its peers sent their shares
    inside = each * (ranks.per_node - 1) / ranks.ranks
    across = each * (ranks.ranks - ranks.per_node) / ranks.ranks
    timed = rates.inside_s > 0.0 or rates.across_s > 0.0
    weighted = problem.settings.traffic_weight * across * (rates.across_s if timed else 1.0)
    busiest = np.maximum(inside * rates.inside_s, across * rates.across_s)
    # Every replica gets tokens from every rank, so that both kinds of links that there are carry some.
    latency_s = max(
        rates.inside_latency_s if ranks.per_node > 1 else 0.0,
        rates.across_latency_s if ranks.per_node < ranks.ranks else 0.0,
    )
    exchange = busiest + np.where(total > 0.0, latency_s, 0.0)
    flows: NDArray[np.float64] = 2.0 * exchange + weighted if timed else weighted
    return flows


def _mean_bound(problem: ReplicaProblem) -> tuple[float, str]:
    """Bound of the mean step in seconds, and by what."""
    rates, ranks = problem.rates, problem.ranks
    tokens, by = _mean_tokens(problem)
    totals = problem.planned.sum(axis=(1, 2))
    flows_s = float(np.mean(_flow_bounds(problem, totals)))
    if flows_s > 0.0 and set(ranks.speed) == {1.0}:
        # Links carry at least what the fullest rank gets instead of the average one.
        shares = (ranks.per_node - 1) * rates.inside_s, (ranks.ranks - ranks.per_node) * rates.across_s
        more = max(0.0, tokens - float(totals.mean()) / ranks.ranks)
        flows_s += 2.0 * more * max(shares) / ranks.ranks
    kernel_s = rates.kernel_s * float(np.mean(totals > 0.0))
    token_s = max(rates.token_memory_s, rates.token_compute_s)
    return kernel_s + tokens * _raised(problem) * token_s + flows_s, by


def _mean_tokens(problem: ReplicaProblem) -> tuple[float, str]:
    """Bound on the largest tokens over speed of a rank in the mean step, and by what."""
    from .bound_kernel import largest_replica, pool_bound

    ranks, weight = problem.ranks, np.ascontiguousarray(problem.weight)
    room, speed = np.array(ranks.room), np.array(ranks.speed, dtype=np.float64)
    equal = problem.settings.split in ("equal", "hash")
    name = "average load, largest replica, cardinality"
    if problem.nodes == 1:
        return float(pool_bound(weight, room, speed, problem.most, equal)), name
    ways = problem.pairings
    if ways.complete:
        bounds = node_bounds(problem, weight)
        best = float(bounds[ways.ways, np.arange(ranks.nodes)].max(axis=1).min())
        return best, f"{name}, best pairing of groups and nodes"
    # A node's replicas are limited by its own slots, which the whole pool's bound with its cap respects.
    largest = largest_replica(weight, ranks.slots - problem.experts, problem.most * ranks.per_node)
    return max(float(weight.sum() / speed.sum()), float(largest) / float(speed.max())), name


def node_bounds(problem: ReplicaProblem, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bound of every subset of groups on every node, `[U, N]`."""
    from .bound_kernel import subset_bounds

    ranks = problem.ranks
    return np.asarray(
        subset_bounds(
            np.ascontiguousarray(weight),
            problem.pairings.subsets,
            problem.experts // problem.settings.groups,
            np.array(ranks.room),
            np.array(ranks.speed, dtype=np.float64),
            ranks.per_node,
            problem.most,
            problem.settings.split in ("equal", "hash"),
        )
    )
