"""Depth-first branch and bound on the whole cost: proven optima of small instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..problem import SAME_COST, Bound
from ..result import Stop
from .bound import step_bounds
from .exact_kernel import branch
from .greedy import lpt
from .kernels import empty_state
from .problem import ChannelProblem, Decision, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NODES_PER_CHUNK = 2_000


def exact(control: Control[Decision]) -> Claim:
    """Try every group for every expert, heaviest expert first, and cut by a bound on what is left.

    A partial placement costs in every step at least its busiest site, at least the average over all sites
    of what is placed and the least that the rest can be, and at least the step's own bound. Full placements
    are scored whole, J_noc included. An iteration is a node; proves optimality when the tree is done.
    """
    problem = problem_of(control)
    tables = problem.objective_tables
    order = np.argsort(-tables.counts.sum(axis=1), kind="stable").astype(np.int32)
    rest_s = _least_rest(problem, order)
    floor_s = step_bounds(tables, problem.groups)
    choice = np.full(problem.experts, -1, dtype=np.int32)
    depth = 0
    partial = empty_state(tables)
    leaf = empty_state(tables)
    best = np.zeros(problem.experts, dtype=np.int32)
    if control.best is None:
        lpt(control)
        control.iterations = 0
    best_s = control.best_cost.objective_s if control.best_cost else np.inf
    while (stop := control.should_stop()) is None:
        left = control.iterations_left()
        nodes = _NODES_PER_CHUNK if left is None else min(_NODES_PER_CHUNK, left)
        depth, found_s, used = branch(
            tables, partial, leaf, order, rest_s, floor_s, problem.risk, choice, depth, nodes, best_s, best
        )
        control.iterations += used
        if found_s < best_s:
            best_s = control.offer(Decision(best)).objective_s
        if depth < 0:
            return _finished(control)
    return Claim(stop)


def _finished(control: Control[Decision]) -> Claim:
    if control.best_cost is None:
        return Claim(Stop.INFEASIBLE)
    proven_s = control.best_cost.objective_s * (1.0 - 0.5 * SAME_COST)
    return Claim(Stop.OPTIMAL, Bound(proven_s, "branch and bound"))


def _least_rest(problem: ChannelProblem, order: NDArray[np.int32]) -> NDArray[np.float64]:
    """Least site-seconds of the experts not yet placed, `[E + 1, S]` by depth."""
    t = problem.objective_tables
    work_s = float((t.token_s * np.diff(t.group_start)).min())
    tokens = t.counts[order]
    rest = np.zeros((len(order) + 1, tokens.shape[1]))
    rest[:-1] = np.cumsum(tokens[::-1], axis=0)[::-1] * work_s
    return rest
