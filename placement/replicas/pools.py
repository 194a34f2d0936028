"""Pools of ranks: the cluster, or its nodes with the groups of experts that each was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .bound import node_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pool_kernel import Pool, Question
    from .problem import ReplicaProblem


@dataclass(frozen=True, eq=False)
class Part:
    """Experts, and the ranks that may hold them."""

    experts: NDArray[np.int64]
    ranks: range

    def question(
        self, problem: ReplicaProblem, weight: NDArray[np.float64], current: NDArray[np.int16] | None = None,
        moves: int = 0,
    ) -> Question:  # fmt: skip
        """Return the search's question for loads `weight` `[E]`, from `current` `[E, G]` in `moves` moves."""
        from .pool_kernel import Question

        inside = slice(self.ranks.start, self.ranks.stop)
        now = np.zeros((0, 0), np.int16)
        if current is not None:
            now = np.ascontiguousarray(current[self.experts][:, inside])
        return Question(
            np.ascontiguousarray(weight[self.experts]),
            np.array(problem.ranks.speed[inside], dtype=np.float64),
            np.array(problem.ranks.room[inside], dtype=np.int64),
            problem.most,
            now,
            moves,
        )

    def write(self, problem: ReplicaProblem, pool: Pool, slots: NDArray[np.int32]) -> None:
        """Write a pool's experts into the cluster's slots `[R]`."""
        start = problem.ranks.start
        first, last = int(start[self.ranks.start]), int(start[self.ranks.stop])
        # Experts of a part ascend, so its own numbers in ascending order are theirs.
        held = np.repeat(np.tile(self.experts, len(self.ranks)), pool.has.T.ravel())
        slots[first:last] = held


def parts_of(problem: ReplicaProblem, node_of: NDArray[np.int64] | None) -> list[Part]:
    """Return the cluster as one part, or a part for each node with the groups that `node_of` gives it."""
    if node_of is None:
        return [Part(np.arange(problem.experts), range(problem.ranks.ranks))]
    size = problem.experts // problem.settings.groups
    home = np.repeat(node_of, size)
    return [Part(np.flatnonzero(home == node), problem.ranks.node(node)) for node in range(problem.nodes)]


def greedy_nodes(problem: ReplicaProblem, weight: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Give groups to nodes as EPLB does: largest first, to the lightest with room; None without groups."""
    if problem.nodes == 1:
        return None
    groups, nodes = problem.settings.groups, problem.nodes
    total = weight.reshape(groups, -1).sum(axis=1)
    load, held = np.zeros(nodes), np.zeros(nodes, dtype=np.int64)
    node_of = np.arange(groups)
    if groups == nodes:
        return node_of
    for group in np.argsort(-total, kind="stable"):
        node = int(np.where(held < groups // nodes, load, np.inf).argmin())
        node_of[group] = node
        load[node] += total[group]
        held[node] += 1
    return node_of


def plain_nodes(problem: ReplicaProblem) -> NDArray[np.int64] | None:
    """Give groups to nodes in order of their ids; None without groups."""
    if problem.nodes == 1:
        return None
    return np.arange(problem.settings.groups) * problem.nodes // problem.settings.groups


def current_nodes(problem: ReplicaProblem) -> NDArray[np.int64] | None:
    """Return the nodes that groups are on in the current placement; None without groups."""
    if problem.nodes == 1 or problem.current is None:
        return None
    from .problem import Decision

    has = problem.has(Decision(problem.current))
    by_node = has.reshape(problem.settings.groups, -1, problem.nodes, problem.ranks.per_node).sum(axis=(1, 3))
    return np.asarray(by_node.argmax(axis=1))


def best_pairings(
    problem: ReplicaProblem, weight: NDArray[np.float64]
) -> Iterator[tuple[float, NDArray[np.int64], NDArray[np.float64]]]:
    """Yield pairings of groups and nodes by rising bound: (bound, node of every group, bound of every node).

    All of them where they are listed; else the greedy one, its groups exchanged between nodes while that
    lowers the largest average, with a bound of 0.
    """
    if not problem.pairings.complete:
        node_of = _exchanged(problem, weight)
        yield 0.0, node_of, np.zeros(problem.nodes)
        return
    ways, nodes = problem.pairings.ways, np.arange(problem.nodes)
    bounds = node_bounds(problem, weight)[ways, nodes]
    for index in np.argsort(bounds.max(axis=1), kind="stable"):
        node_of = np.empty(problem.settings.groups, dtype=np.int64)
        for node, subset in enumerate(ways[index]):
            node_of[problem.pairings.subsets[subset]] = node
        yield float(bounds[index].max()), node_of, bounds[index]


def _exchanged(problem: ReplicaProblem, weight: NDArray[np.float64]) -> NDArray[np.int64]:
    node_of = greedy_nodes(problem, weight)
    assert node_of is not None
    total = weight.reshape(problem.settings.groups, -1).sum(axis=1)
    speed = np.array(problem.ranks.speed).reshape(problem.nodes, -1).sum(axis=1)
    load = np.bincount(node_of, total, problem.nodes)
    while True:
        hot = int((load / speed).argmax())
        mine, others = np.flatnonzero(node_of == hot), np.flatnonzero(node_of != hot)
        change = total[mine][:, None] - total[others][None, :]
        there = (load[node_of[others]][None, :] + change) / speed[node_of[others]]
        worst = np.maximum((load[hot] - change) / speed[hot], there)
        i, j = np.unravel_index(int(worst.argmin()), worst.shape)
        if worst[i, j] >= load[hot] / speed[hot] * (1.0 - 1e-12):
            return node_of
        a, b = mine[i], others[j]
        other = node_of[b]
        load[hot] -= change[i, j]
        load[other] += change[i, j]
        node_of[a], node_of[b] = other, hot
