"""Published and plain placements: contiguous, round robin, and uniform-TP LPT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from .problem import ChannelProblem, Decision, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def ep(control: Control[Decision]) -> Claim:
    """Expert parallelism: expert e of E on site floor(e N / E), unsplit. The baseline of SPIMOE figure 14."""
    problem = problem_of(control)
    return _unsplit(control, np.arange(problem.experts) * problem.sites // problem.experts)


def round_robin(control: Control[Decision]) -> Claim:
    """Expert e on site e mod N, unsplit."""
    problem = problem_of(control)
    return _unsplit(control, np.arange(problem.experts) % problem.sites)


def lpt(control: Control[Decision]) -> Claim:
    """Uniform TP with longest processing time first (SPIMOE 3.4.1, candidate 3), at its best factor.

    For every factor the experts go, in order of falling total load, to the least loaded of the groups
    that still have room; ties go to the lower id.
    """
    problem = problem_of(control)
    for factor in problem.groups.factors:
        if control.best is not None and control.interrupt.is_set():
            return Claim(Stop.INTERRUPTED)
        group_of = lpt_placement(problem, factor)
        if group_of is not None:
            control.offer(Decision(group_of))
        control.iterations += 1
    return Claim(Stop.CONVERGED)


def lpt_placement(problem: ChannelProblem, factor: int) -> NDArray[np.int32] | None:
    """Groups `[E]` by LPT on the groups of one TP factor; None where the experts do not fit on them."""
    groups, tables = problem.groups.of_factor(factor), problem.tables
    room = int((tables.capacity_bytes * (1.0 + 1e-9)) // tables.shard_bytes[groups[0]])
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


def _unsplit(control: Control[Decision], site_of: NDArray[np.int64]) -> Claim:
    """Offer one expert a site, where its memory allows."""
    problem = problem_of(control)
    single = {int(problem.groups.sites_of(g)[0]): g for g in problem.groups.of_factor(1)}
    decision = Decision(np.array([single[int(site)] for site in site_of], dtype=np.int32))
    control.iterations += 1
    if problem.check(decision) is None:
        control.offer(decision)
    return Claim(Stop.CONVERGED)
