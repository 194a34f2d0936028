"""Co-activation clustering (SPIMOE 3.4.1, candidate 1): cliques of experts on groups that do not overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from .greedy import offer_placement, recorded_s
from .problem import ChannelProblem, Decision
from .tables import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Quantiles of the positive ratios from which on two experts count as co-activated. The text gives no
#: threshold: each of these is tried, and the lowest J stays.
_QUANTILES = (0.5, 0.75, 0.9, 0.97, 0.99)


def spimoe_cliques(control: Control[Decision]) -> Claim:
    """Place co-activation cliques, at the threshold of the lowest J."""
    return offer_placement(control, clique_placement)


def clique_placement(problem: ChannelProblem) -> NDArray[np.int32] | None:
    """Groups `[E]` by co-activation clustering; None where the experts do not fit at any threshold."""
    ratio = coactivation_ratio(problem.tokens, problem.experts)
    positive = ratio[ratio > 0.0]
    thresholds = np.unique(np.quantile(positive, _QUANTILES)) if len(positive) else np.array([1.0])
    every = (place_cliques(problem, greedy_cliques(ratio, float(x), problem.sites)) for x in thresholds)
    return min(
        (group_of for group_of in every if group_of is not None),
        key=lambda group_of: recorded_s(problem, group_of),
        default=None,
    )


def coactivation_ratio(tokens: NDArray[np.int16], experts: int) -> NDArray[np.float64]:
    """Ratio gamma_ij = co_act(i, j) / min(cnt_i, cnt_j) of SPIMOE 3.4.1, `[E, E]`, from `tokens` [S, B, K].

    The diagonal is 0.0, and so are the rows of experts that no token chose; -1 (dropped) counts nowhere.
    """
    flat = tokens.reshape(-1, tokens.shape[2])
    chosen = np.zeros((len(flat), experts + 1), dtype=np.float32)  # the last column takes the -1
    np.put_along_axis(chosen, flat.astype(np.int64) % (experts + 1), np.float32(1.0), axis=1)
    pairs = (chosen[:, :-1].T @ chosen[:, :-1]).astype(np.float64)
    count = pairs.diagonal()
    least = np.minimum.outer(count, count)
    ratio = np.divide(pairs, least, out=np.zeros_like(pairs), where=least > 0)
    np.fill_diagonal(ratio, 0.0)
    return ratio


def greedy_cliques(ratio: NDArray[np.float64], threshold: float, largest: int) -> list[list[int]]:
    """Split all experts into cliques of the graph `ratio` >= `threshold`, of at most `largest` members.

    Greedy maximal-clique extraction: the strongest edge between experts not yet taken, grown by whichever
    expert is adjacent to all members and has the largest sum of ratios to them, until there is none; then
    the next. Experts that are left without an edge are cliques of one. Ties go to the lower ids.
    """
    adjacent = (ratio >= threshold) & (ratio > 0.0)
    free = np.ones(len(ratio), dtype=bool)
    cliques = []
    edges = np.argwhere(np.triu(adjacent, 1))
    if largest >= 2:
        for i, j in edges[np.argsort(-ratio[edges[:, 0], edges[:, 1]], kind="stable")]:
            if free[i] and free[j]:
                clique = _grown([int(i), int(j)], ratio, adjacent, free, largest)
                free[clique] = False
                cliques.append(clique)
    return cliques + [[int(expert)] for expert in np.flatnonzero(free)]


def _grown(
    clique: list[int],
    ratio: NDArray[np.float64],
    adjacent: NDArray[np.bool_],
    free: NDArray[np.bool_],
    largest: int,
) -> list[int]:
    candidates = free & adjacent[clique[0]] & adjacent[clique[1]]
    while len(clique) < largest and candidates.any():
        strength = np.where(candidates, ratio[clique].sum(axis=0), -1.0)
        clique.append(int(strength.argmax()))
        candidates &= adjacent[clique[-1]]
    return clique


def place_cliques(problem: ChannelProblem, cliques: list[list[int]]) -> NDArray[np.int32] | None:
    """Groups `[E]`: members of a clique on groups that do not overlap; None where an expert finds no room.

    "The clique size determines the TP factor and channel group assignment for each member": m members
    share the N sites, so that each gets the largest factor t of the catalogue with m t <= N. Cliques go by
    falling load, members by falling load, each to the group of least load among those that no other member
    is on, and of equally loaded ones to the nearest to the members placed before (topology-aware). Where
    memory leaves no such group, the next larger factors are tried, at last with overlap.
    """
    t, groups = problem.tables, problem.groups
    tokens = t.counts.mean(axis=1)
    load_s, held = np.zeros(problem.sites), np.zeros(problem.sites)
    starts, limit = t.group_start[:-1], t.capacity_bytes * SLACK
    distance_s = t.latency_s[t.latency_rank]
    group_of = np.full(problem.experts, -1, dtype=np.int32)
    for clique in sorted(cliques, key=lambda members: (-tokens[members].sum(), members[0])):
        share = max(f for f, factor in enumerate(groups.factors) if factor * len(clique) <= problem.sites)
        taken = np.zeros(problem.sites)
        for expert in sorted(clique, key=lambda member: (-tokens[member], member)):
            overlaps = np.maximum.reduceat(taken[t.group_sites], starts)
            full = np.maximum.reduceat(held[t.group_sites], starts) + t.shard_bytes > limit
            away_s = distance_s[taken > 0].sum(axis=0) if taken.any() else np.zeros(problem.sites)
            order = np.lexsort(
                (
                    np.arange(len(groups)),
                    np.add.reduceat(away_s[t.group_sites], starts),
                    np.maximum.reduceat(load_s[t.group_sites], starts),
                    np.abs(t.factor_of - share) + (t.factor_of < share) * len(groups),
                    overlaps,
                    full,
                )
            )
            g = int(order[0])
            if full[g]:
                return None
            group_of[expert] = g
            sites = groups.sites_of(g)
            taken[sites] = 1.0
            load_s[sites] += tokens[expert] * t.token_s[g]
            held[sites] += t.shard_bytes[g]
    return group_of
