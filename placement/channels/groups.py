"""The channel groups that an expert may be spread over: the decision space of the family."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..ring.order import ring_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.topology import Topology


@dataclass(frozen=True, eq=False)
class Groups:
    """A catalogue of G groups, ordered by tensor-parallel factor.

    Group g holds the sites `sites[start[g]:start[g + 1]]` (int32, the ring order of its collectives;
    the first is the expert's first core) and has factor `factors[factor_of[g]]`. The groups of factor
    index f are `factor_start[f]..factor_start[f + 1] - 1`.
    """

    start: NDArray[np.int32]
    sites: NDArray[np.int32]
    factors: tuple[int, ...]
    factor_of: NDArray[np.int32]
    factor_start: NDArray[np.int32]

    def __post_init__(self) -> None:
        for array in (self.start, self.sites, self.factor_of, self.factor_start):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.start) - 1

    def sites_of(self, group: int) -> NDArray[np.int32]:
        """Sites of one group, first core first."""
        return self.sites[self.start[group] : self.start[group + 1]]

    def of_factor(self, factor: int) -> range:
        """Ids of the groups of one TP factor. Raises ValueError where there are none."""
        f = self.factors.index(factor)
        return range(int(self.factor_start[f]), int(self.factor_start[f + 1]))

    def find(self, sites: tuple[int, ...]) -> int | None:
        """Id of the group that holds exactly these sites in this order; None where there is none."""
        if len(sites) not in self.factors:
            return None
        for group in self.of_factor(len(sites)):
            if tuple(self.sites_of(group)) == sites:
                return group
        return None


def tiles(topology: Topology, largest: int) -> Groups:
    """Non-overlapping groups of every TP factor up to `largest`, close together on the topology.

    On a grid the groups of factor t tile it by the squarest h x w rectangles with h * w = t where h
    divides the rows and w the columns (SPIMOE 3.4.1 asks for topology-aware, non-overlapping groups);
    elsewhere they are runs of t consecutive ids, for every t that divides the number of sites. The sites of
    a grid's group stand in the order of the best ring through them (family `ring`), lowest id first.
    """
    members: dict[int, list[list[int]]] = {}
    for factor, groups in _grid(topology) if topology.rows else _runs(topology.sites):
        if factor <= largest:
            members[factor] = groups
    factors = tuple(sorted(members))
    flat = [group for factor in factors for group in members[factor]]
    per_factor = [len(members[factor]) for factor in factors]
    return Groups(
        start=np.cumsum([0] + [len(group) for group in flat]).astype(np.int32),
        sites=np.array([site for group in flat for site in group], dtype=np.int32),
        factors=factors,
        factor_of=np.repeat(np.arange(len(factors)), per_factor).astype(np.int32),
        factor_start=np.cumsum([0, *per_factor]).astype(np.int32),
    )


def _grid(topology: Topology) -> Iterator[tuple[int, list[list[int]]]]:
    rows, cols = topology.rows, topology.cols
    shapes: dict[int, tuple[int, int]] = {}
    for h in _divisors(rows):
        for w in _divisors(cols):
            held = shapes.get(h * w)
            # The squarer shape wins; of two equally square ones the wider.
            if held is None or (abs(math.log(w / h)), h) < (abs(math.log(held[1] / held[0])), held[0]):
                shapes[h * w] = (h, w)
    for factor, (h, w) in shapes.items():
        yield (
            factor,
            [
                list(ring_order(topology, _tile(cols, top, left, h, w)))
                for top in range(0, rows, h)
                for left in range(0, cols, w)
            ],
        )


def _tile(cols: int, top: int, left: int, height: int, width: int) -> list[int]:
    return [(top + r) * cols + left + c for r in range(height) for c in range(width)]


def _runs(sites: int) -> Iterator[tuple[int, list[list[int]]]]:
    for factor in _divisors(sites):
        yield factor, [list(range(first, first + factor)) for first in range(0, sites, factor)]


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
