"""The placement that keeps the rules and moves the fewest slots of the current one.

For experts on a pool of ranks the fewest moves are known: what a rank holds of them may stay, up to the
replicas that it may hold of each, so that the slots of everything else move, and so does a slot for every
expert that the pool lacks. The larger of the two is enough: a lacking expert fits on every rank, a surplus
replica gives way to it where no slot is open, and open slots take any expert of which the rank may hold one
more. With groups, both numbers are sums over the groups that a node gets, and an integer program finds the
pairing with the fewest moves in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .pools import current_nodes, plain_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pool_kernel import Pool, Question
    from .problem import ReplicaProblem

#: Nodes of the branch and bound over pairings; the relaxation is nearly always whole at the first.
_MOST_NODES = 2_000


@dataclass(frozen=True, eq=False)
class Nearest:
    """What the rules ask of a current placement."""

    at_least: int
    """Slots that every placement moves: proven."""
    enough: int
    """Slots that suffice, with the groups on the nodes of `node_of`."""
    node_of: NDArray[np.int64] | None
    """Node of every group `[groups]`; None without groups."""


def nearest(problem: ReplicaProblem) -> Nearest:
    """Return the fewest moves from the current placement to one that keeps the rules; 0 where there is none.

    Takes it that slots suffice for the experts (`check_shape`). The pairing of groups and nodes is proven to
    need the fewest unless `enough` exceeds `at_least`.
    """
    from .problem import Decision

    node_of = plain_nodes(problem)
    if problem.current is None:
        return Nearest(0, 0, node_of)
    groups, nodes = (1 if node_of is None else problem.settings.groups), problem.nodes
    has = problem.has(Decision(problem.current)).reshape(groups, problem.experts // groups, nodes, -1)
    stays = np.minimum(has, problem.most).sum(axis=(1, 3))  # [groups, nodes]
    lacks = (has.sum(axis=3) == 0).sum(axis=1)
    room = np.array(problem.ranks.room).reshape(nodes, -1).sum(axis=1)
    if node_of is None:
        moves = _moves(stays, lacks, room, np.zeros(1, dtype=np.int64))
        return Nearest(moves, moves, None)
    now = current_nodes(problem)
    assert now is not None
    even = np.ptp(np.bincount(now, minlength=nodes)) == 0
    if even and _moves(stays, lacks, room, now) == 0:
        return Nearest(0, 0, now)
    return _paired(stays, lacks, room, node_of)


def moves_fault(problem: ReplicaProblem) -> str | None:
    """Return a proof that more slots must move than may, or None."""
    limit = problem.settings.max_moves
    if limit is None or (needs := problem.nearest.at_least) <= limit:
        return None
    return (
        f"from the current placement at least {needs} slots must move to keep the rules, allowed are {limit}"
    )


def fill_nearest(q: Question, pool: Pool) -> None:
    """Fill a pool by the rules, in the fewest moves from what is there; the loads decide the rest.

    Lacking experts come first, the largest first, each on the open slot that it leaves least loaded. What
    stays open goes to the largest load per replica that the least loaded rank may take. Takes it that the
    slots suffice for the experts.
    """
    from .pool_kernel import reload

    has = np.zeros(pool.has.shape, dtype=np.int64)
    if len(q.current):
        has[:] = np.minimum(q.current, q.most)
    lacking = np.flatnonzero(has.sum(axis=1) == 0)
    space = q.room - has.sum(axis=0)
    while space.sum() < len(lacking):
        space[_drop(q, has)] += 1
    for e in lacking[np.argsort(-q.weight[lacking], kind="stable")]:
        then = np.where(space > 0, _load(q, has) + q.weight[e] / q.speed, np.inf)
        g = int(then.argmin())
        has[e, g] += 1
        space[g] -= 1
    while space.any():
        g = int(np.where(space > 0, _load(q, has), np.inf).argmin())
        e = int(np.where(has[:, g] < q.most, q.weight / has.sum(axis=1), -1.0).argmax())
        has[e, g] += 1
        space[g] -= 1
    for g, room in enumerate(q.room):
        pool.slot[g, :room] = np.repeat(np.arange(len(has)), has[:, g])
    reload(q, pool)


def _load(q: Question, has: NDArray[np.int64]) -> NDArray[np.float64]:
    """Load over speed of every rank, `[G]`."""
    each = q.weight / np.maximum(has.sum(axis=1), 1)
    load: NDArray[np.float64] = each @ has / q.speed
    return load


def _drop(q: Question, has: NDArray[np.int64]) -> int:
    """Take out a replica of the expert whose others stay the smallest; return its rank, the busiest there."""
    copies = has.sum(axis=1)
    e = int(np.where(copies > 1, q.weight / np.maximum(copies - 1, 1), np.inf).argmin())
    g = int(np.where(has[e] > 0, _load(q, has), -1.0).argmax())
    has[e, g] -= 1
    return g


def _moves(
    stays: NDArray[np.int64], lacks: NDArray[np.int64], room: NDArray[np.int64], node_of: NDArray[np.int64]
) -> int:
    """Fewest moved slots where groups are on the nodes `node_of`."""
    at, nodes = np.arange(len(node_of)), len(room)
    kept = np.bincount(node_of, stays[at, node_of], nodes)
    lacking = np.bincount(node_of, lacks[at, node_of], nodes)
    return int(np.maximum(room - kept, lacking).sum())


def _paired(
    stays: NDArray[np.int64], lacks: NDArray[np.int64], room: NDArray[np.int64], plain: NDArray[np.int64]
) -> Nearest:
    """Choose the pairing: u[i, n] whether group i is on node n, t[n] the slots that move there."""
    from scipy.optimize import Bounds, milp

    groups, nodes = stays.shape
    whole = np.repeat([1, 0], [groups * nodes, nodes])
    found: Any = milp(
        1 - whole,
        integrality=whole,
        bounds=Bounds(0.0, np.where(whole == 1, 1.0, np.inf)),
        constraints=_constraints(stays, lacks, room),
        options={"node_limit": _MOST_NODES, "mip_rel_gap": 0.0},
    )
    node_of = plain
    if found.x is not None:
        node_of = np.asarray(found.x[: groups * nodes].reshape(groups, nodes).argmax(axis=1), dtype=np.int64)
    enough = _moves(stays, lacks, room, node_of)
    proven = found.mip_dual_bound
    at_least = 0 if proven is None or not math.isfinite(proven) else math.ceil(proven - 1e-6)
    return Nearest(min(at_least, enough), enough, node_of)


def _constraints(stays: NDArray[np.int64], lacks: NDArray[np.int64], room: NDArray[np.int64]) -> list[Any]:
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array, eye_array, hstack, kron

    groups, nodes = stays.shape
    none = csr_array((groups, nodes)), csr_array((nodes, nodes))
    per_node = kron(np.ones((1, groups)), eye_array(nodes))  # sums over groups, `[N, groups * N]`
    once = hstack([kron(eye_array(groups), np.ones((1, nodes))), none[0]])
    even = hstack([per_node, none[1]])
    moved = hstack([per_node * stays.reshape(1, -1), eye_array(nodes)])
    filled = hstack([per_node * -lacks.reshape(1, -1), eye_array(nodes)])
    return [
        LinearConstraint(csr_array(once), 1.0, 1.0),
        LinearConstraint(csr_array(even), groups // nodes, groups // nodes),
        LinearConstraint(csr_array(moved), room.astype(np.float64), np.inf),
        LinearConstraint(csr_array(filled), 0.0, np.inf),
    ]
