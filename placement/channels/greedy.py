"""Published and plain placements that one pass makes: contiguous, round robin, uniform-TP LPT, mixed TP.

Published procedures see the recorded steps alone, as SPIMOE's do: `recorded_s` is their J.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from .problem import ChannelProblem, Decision, problem_of
from .tables import SLACK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Placement = NDArray[np.int32]


def ep(control: Control[Decision]) -> Claim:
    """Expert parallelism: expert e of E on site floor(e N / E), unsplit. The baseline of SPIMOE figure 14."""
    problem = problem_of(control)
    return _unsplit(control, np.arange(problem.experts) * problem.sites // problem.experts)


def round_robin(control: Control[Decision]) -> Claim:
    """Expert e on site e mod N, unsplit."""
    problem = problem_of(control)
    return _unsplit(control, np.arange(problem.experts) % problem.sites)


def lpt(control: Control[Decision]) -> Claim:
    """Uniform TP with longest processing time first (SPIMOE 3.4.1, candidate 3), at its best factor."""
    return offer_placement(control, uniform_lpt)


def mixed_tp(control: Control[Decision]) -> Claim:
    """Mixed-TP greedy: every expert picks its own (TP, channel group) (SPIMOE 3.4.1, candidate 2)."""
    return offer_placement(control, mixed_tp_placement)


def offer_placement(
    control: Control[Decision], construct: Callable[[ChannelProblem], Placement | None]
) -> Claim:
    """Offer what a construction gives, if the experts fit."""
    problem = problem_of(control)
    group_of = construct(problem)
    control.iterations += 1
    if group_of is not None and problem.check(Decision(group_of)) is None:
        control.offer(Decision(group_of))
    return Claim(Stop.CONVERGED)


def recorded_s(problem: ChannelProblem, group_of: Placement) -> float:
    """J of SPIMOE 3.4.1: mean over the recorded steps, in seconds."""
    return float(problem.step_parts(Decision(group_of)).sum(axis=1).mean())


def uniform_lpt(problem: ChannelProblem) -> Placement | None:
    """LPT at the factor of the lowest J; None where the experts fit at no factor."""
    every = (lpt_placement(problem, factor) for factor in problem.groups.factors)
    return min(
        (group_of for group_of in every if group_of is not None),
        key=lambda group_of: recorded_s(problem, group_of),
        default=None,
    )


def lpt_placement(problem: ChannelProblem, factor: int) -> Placement | None:
    """Groups `[E]` by LPT on the groups of one TP factor; None where the experts do not fit on them.

    The experts go, in order of falling total load, to the least loaded of the groups that still have room;
    ties go to the lower id.
    """
    groups, tables = problem.groups.of_factor(factor), problem.tables
    room = int((tables.capacity_bytes * SLACK) // tables.shard_bytes[groups[0]])
    if room * len(groups) < problem.experts:
        return None
    total = tables.counts.sum(axis=1)
    load = np.zeros(len(groups))
    held = np.zeros(len(groups), dtype=np.int64)
    group_of = np.zeros(problem.experts, dtype=np.int32)
    for expert in np.argsort(-total, kind="stable"):
        lightest = int(np.where(held < room, load, np.inf).argmin())
        group_of[expert] = groups[lightest]
        load[lightest] += total[expert]
        held[lightest] += 1
    return group_of


def mixed_tp_placement(problem: ChannelProblem) -> Placement | None:
    """Groups `[E]` by mixed-TP greedy; None where an expert finds no room.

    "Each expert independently selects the (TP, channel group) pair minimizing its cost" (SPIMOE 3.4.1).
    The text gives neither order nor cost; assumed are falling load, and as an expert's cost in a mean step
    the time at which its group's busiest site has finished it, after the experts placed before, plus its
    own communication.
    """
    t = problem.tables
    tokens = t.counts.mean(axis=1)
    noc_token_s, noc_fixed_s = _own_communication(problem)
    load_s, held = np.zeros(problem.sites), np.zeros(problem.sites)
    limit = t.capacity_bytes * SLACK
    group_of = np.zeros(problem.experts, dtype=np.int32)
    starts = t.group_start[:-1]
    for expert in np.argsort(-tokens, kind="stable"):
        ready_s = np.maximum.reduceat(load_s[t.group_sites], starts)
        cost_s = ready_s + tokens[expert] * (t.token_s + noc_token_s) + noc_fixed_s
        fullest = np.maximum.reduceat(held[t.group_sites], starts)
        cost_s[fullest + t.shard_bytes > limit] = np.inf
        g = int(cost_s.argmin())
        if not np.isfinite(cost_s[g]):
            return None
        group_of[expert] = g
        sites = problem.groups.sites_of(g)
        load_s[sites] += tokens[expert] * t.token_s[g]
        held[sites] += t.shard_bytes[g]
    return group_of


def _own_communication(problem: ChannelProblem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds of communication that an expert on each group causes: per token, and once a step, `[G]`.

    Per token: the busiest link of its collective, and its activations' crossings of links from a mean home
    to all sites of the group, spread over all links, as other experts' go elsewhere. Once: the latency of
    the collective.
    """
    t = problem.tables
    groups = len(problem.groups)
    if not t.noc or not len(t.seconds_per_byte):
        return np.zeros(groups), np.zeros(groups)
    crossings_s = np.add.reduceat(
        np.append(t.seconds_per_byte[t.route_links], 0.0),
        np.minimum(t.route_start[:-1], len(t.route_links)),
    ) * (np.diff(t.route_start) > 0)
    way_s = crossings_s.reshape(problem.sites, problem.sites)[t.home].mean(axis=0) * t.token_bytes
    dispatch_s = np.add.reduceat(way_s[t.group_sites], t.group_start[:-1]) / len(t.seconds_per_byte)
    ring_s = np.array(
        [
            (t.ring_bytes[a:b] * t.seconds_per_byte[t.ring_links[a:b]]).max(initial=0.0)
            for a, b in zip(t.ring_start[:-1], t.ring_start[1:], strict=True)
        ]
    )
    return dispatch_s + ring_s, t.ring_latency_s[t.ring_rank]


def _unsplit(control: Control[Decision], site_of: NDArray[np.int64]) -> Claim:
    """Offer one expert a site, where its memory allows."""
    problem = problem_of(control)
    single = {int(problem.groups.sites_of(g)[0]): g for g in problem.groups.of_factor(1)}
    group_of = np.array([single[int(site)] for site in site_of], dtype=np.int32)
    return offer_placement(control, lambda _: group_of)
