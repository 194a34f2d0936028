"""The linear part of the channel cost, for solvers that want a linear program.

With x[e, g] = 1 where expert e is on group g, the busiest site's PIM time and the busiest link's share of
the collectives are each a maximum of linear forms, exactly as `evaluate` computes them. What is left out
(latencies, dispatch, gather, scatter) is never negative, so the optimum of this part bounds the whole
from below, and so does its LP relaxation.

Steps may be averaged in clusters: a maximum is convex, hence the mean over steps of a maximum is at least
the maximum of the mean (Jensen), and a model on few clustered steps still proves a bound for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from .problem import ChannelProblem
from .tables import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Nonzero coefficients that a model is kept under where the number of clusters is not given.
_TERMS_BY_DEFAULT = 100_000


@dataclass(frozen=True)
class Maximum:
    """A term max over places of sum over (e, g) of tokens[e] * rate_s * x[e, g].

    `uses[place]` lists the groups that load the place and the seconds that a token costs it.
    """

    name: str
    uses: dict[int, list[tuple[int, float]]]

    @property
    def terms(self) -> int:
        """Coefficients per expert."""
        return sum(len(groups) for groups in self.uses.values())


@dataclass(frozen=True, eq=False)
class LinearPart:
    """min sum over clusters k of weight[k] * (sum of the maxima), on `counts[:, k]` tokens.

    `counts` [E, C] mean tokens of the clustered steps, `weight` [C] their share of all steps; `choices`
    are the groups whose shard fits on a site at all.
    """

    counts: NDArray[np.float64]
    weight: NDArray[np.float64]
    maxima: tuple[Maximum, ...]
    choices: tuple[int, ...]


def linear_part(problem: ChannelProblem, clusters: object, seed: int) -> LinearPart:
    """Extract the linear part, on `clusters` clustered steps (None: as many as keep the model small).

    Raises UsageError where `clusters` is not a whole number of at least 1.
    """
    t = problem.objective_tables
    limit = t.capacity_bytes * SLACK
    choices = tuple(g for g in range(len(problem.groups)) if t.shard_bytes[g] <= limit)
    maxima = [Maximum("site", _site_uses(problem, choices))]
    if t.noc and (links := _link_uses(problem, choices)):
        maxima.append(Maximum("link", links))
    if clusters is None:
        clusters = max(1, _TERMS_BY_DEFAULT // (problem.experts * sum(m.terms for m in maxima)))
    if not isinstance(clusters, int) or isinstance(clusters, bool) or clusters < 1:
        raise UsageError(f"step_clusters must be a whole number of at least 1, not {clusters!r}")
    counts, weight = _cluster(t.counts, clusters, seed)
    return LinearPart(counts, weight, tuple(maxima), choices)


def _site_uses(problem: ChannelProblem, choices: tuple[int, ...]) -> dict[int, list[tuple[int, float]]]:
    uses: dict[int, list[tuple[int, float]]] = {}
    for g in choices:
        for site in problem.groups.sites_of(g):
            uses.setdefault(int(site), []).append((g, float(problem.tables.token_s[g])))
    return uses


def _link_uses(problem: ChannelProblem, choices: tuple[int, ...]) -> dict[int, list[tuple[int, float]]]:
    t = problem.tables
    uses: dict[int, list[tuple[int, float]]] = {}
    for g in choices:
        for k in range(t.ring_start[g], t.ring_start[g + 1]):
            link = int(t.ring_links[k])
            uses.setdefault(link, []).append((g, float(t.ring_bytes[k] * t.seconds_per_byte[link])))
    return uses


def _cluster(
    counts: NDArray[np.float64], clusters: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average similar steps (k-means on expert counts); every step its own cluster where there are enough."""
    steps = counts.shape[1]
    if clusters >= steps:
        return counts, np.full(steps, 1.0 / steps)
    if clusters == 1:
        return counts.mean(axis=1, keepdims=True), np.ones(1)
    from scipy.cluster.vq import kmeans2

    _, label = kmeans2(
        counts.T, clusters, seed=np.random.default_rng(seed), minit="points", missing="warn", iter=20
    )
    used = np.unique(label)
    mean = np.stack([counts[:, label == k].mean(axis=1) for k in used], axis=1)
    return mean, np.array([(label == k).mean() for k in used])
