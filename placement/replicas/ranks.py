"""The ranks of a cluster as this family sees them, and the ways to give expert groups to nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import ProvenInfeasible, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Pairings of groups and nodes up to which all are looked at.
MOST_PAIRINGS = 20_000


@dataclass(frozen=True)
class Ranks:
    """Ranks 0..G-1, of which node n has G / N in a row; rank g has `room[g]` slots.

    `speed` is relative: a rank of speed 0.5 takes twice as long for the same tokens. Raises UsageError where
    the numbers cannot be meant.
    """

    nodes: int
    room: tuple[int, ...]
    speed: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.speed:
            object.__setattr__(self, "speed", (1.0,) * len(self.room))
        if self.nodes < 1 or not self.room or len(self.room) % self.nodes:
            raise UsageError(
                f"{len(self.room)} ranks do not divide by {self.nodes} nodes",
                fix=f"nearest: {nearest_multiples(len(self.room), self.nodes)} ranks",
            )
        if min(self.room) < 1:
            raise UsageError("a rank needs at least one slot", fix="leave the rank out instead")
        if len(self.speed) != len(self.room):
            raise UsageError(
                f"{len(self.speed)} speeds are given for {len(self.room)} ranks", fix="give one speed a rank"
            )
        if not all(0.0 < s < math.inf for s in self.speed):
            raise UsageError("speeds must be positive and finite", fix="1 is the speed of the usual rank")

    @property
    def ranks(self) -> int:
        """G, the number of ranks."""
        return len(self.room)

    @property
    def slots(self) -> int:
        """R, the number of physical slots."""
        return sum(self.room)

    @property
    def per_node(self) -> int:
        """Ranks of a node."""
        return len(self.room) // self.nodes

    @property
    def uniform(self) -> bool:
        """Whether all ranks have the same room and speed."""
        return len(set(self.room)) == 1 and len(set(self.speed)) == 1

    @property
    def alike_nodes(self) -> bool:
        """Whether all nodes have the same rooms and speeds, rank by rank."""
        nodes = [self.node(n) for n in range(self.nodes)]
        return len({(self.room[n.start : n.stop], self.speed[n.start : n.stop]) for n in nodes}) == 1

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """First slot of every rank, and the number of slots, `[G + 1]`."""
        return np.concatenate([[0], np.cumsum(self.room)]).astype(np.int64)

    @cached_property
    def rank_of(self) -> NDArray[np.int64]:
        """Rank of every slot `[R]`."""
        return np.repeat(np.arange(self.ranks), self.room)

    def node(self, node: int) -> range:
        """Ranks of a node."""
        return range(node * self.per_node, (node + 1) * self.per_node)


def even_ranks(nodes: int, ranks: int, slots: int, speed: Sequence[float] = ()) -> Ranks:
    """Return ranks with equal slots. Raises UsageError with the nearest numbers where they do not divide."""
    if slots % ranks:
        raise UsageError(
            f"{slots} slots do not divide by {ranks} ranks",
            where="slots",
            fix=f"nearest: {nearest_multiples(slots, ranks)} slots, or give the slots of every rank",
        )
    return Ranks(nodes, (slots // ranks,) * ranks, tuple(speed))


def nearest_multiples(number: int, unit: int) -> str:
    """Return "96 or 128": the multiples of `unit` on both sides of `number`."""
    below = number // unit * unit
    return f"{below} or {below + unit}" if below else str(unit)


@dataclass(frozen=True, eq=False)
class Pairings:
    """Ways to give groups of experts to nodes, as many groups to each.

    `subsets` `[U, groups / nodes]` are sets of groups that a node may get; `ways` `[P, nodes]` are choices of
    one subset a node that use every group once. Where nodes are alike, their order does not matter and the
    first node has the lowest group. `complete` tells whether all ways are listed.
    """

    subsets: NDArray[np.int64]
    ways: NDArray[np.int64]
    complete: bool


def pairings(groups: int, nodes: int, *, alike: bool) -> Pairings:
    """List all pairings where they are at most MOST_PAIRINGS; none otherwise."""
    size = groups // nodes
    total = math.prod(math.comb(groups - k * size, size) for k in range(nodes))
    total //= math.factorial(nodes) if alike else 1
    if total > MOST_PAIRINGS:
        return Pairings(np.zeros((0, size), np.int64), np.zeros((0, nodes), np.int64), complete=False)
    subsets = list(itertools.combinations(range(groups), size))
    index = {subset: i for i, subset in enumerate(subsets)}
    ways = [[index[subset] for subset in way] for way in _ways(tuple(range(groups)), size, alike=alike)]
    return Pairings(np.array(subsets, np.int64), np.array(ways, np.int64), complete=True)


def _ways(left: tuple[int, ...], size: int, *, alike: bool) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not left:
        yield ()
        return
    for subset in itertools.combinations(left, size):
        if alike and subset[0] != left[0]:
            return
        rest = tuple(g for g in left if g not in subset)
        for others in _ways(rest, size, alike=alike):
            yield (subset, *others)


def check_shape(ranks: Ranks, experts: int, groups: int, *, duplicates: bool) -> str | None:
    """Return a proof that no plan exists, or None: slots against experts, overall and within a node."""
    nodes = ranks.nodes if groups > 1 else 1
    members = experts // nodes
    for node in range(nodes):
        own = ranks.room if nodes == 1 else ranks.room[ranks.node(node).start : ranks.node(node).stop]
        place = f"node {node}" if nodes > 1 else "the cluster"
        if sum(own) < members:
            return f"{place} has {sum(own)} slots for {members} experts"
        if not duplicates and max(own) > members:
            return (
                f"{place} has {sum(own)} slots, but {members} experts without two replicas on a rank fill at "
                f"most {members} slots of each of its {len(own)} ranks"
            )
    return None


def need_feasible(fault: str | None, fix: str) -> None:
    """Raise ProvenInfeasible where there is a fault."""
    if fault is not None:
        raise ProvenInfeasible(fault, fix=fix)
