"""What pooling costs on the mesh inside a core: concurrent multicasts, and how far they stretch a round.

A core serves its jobs in ceil(jobs / G) rounds. An expert with more jobs than that lends the rest to idle
groups: its unit's read-out is multicast to the borrowers' units along a tree of XY routes (ReXpert sections
IV-C and V-A). A stream takes what a unit reads, 51.2 GB/s; a link carries 64 GB/s, a core 256 GB/s in all
(Table IV). Streams that share a link or the core's budget beyond that slow down together. ReXpert has its
round stretch from BookSim2; this is a model of streams on links, without flits, buffers or arbitration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .rounds import queued

if TYPE_CHECKING:
    from ...hardware.nearmem import Core


@dataclass(frozen=True, eq=False)
class Multicasts:
    """Streams `[S, N]` at the same time in every core and step, and what they cost.

    `rounds` [S] without them, `stretched` [S] with the time that they add.
    """

    streams: NDArray[np.int32]
    rounds: NDArray[np.int32]
    stretched: NDArray[np.float64]

    @property
    def stretch(self) -> float:
        """Time of all steps over what it would be on a mesh without limits."""
        total = float(self.rounds.sum())
        return float(self.stretched.sum()) / total if total else 1.0

    def demand_bytes_per_s(self, quantile: float, core: Core) -> float:
        """Multicast demand of a core that `quantile` of all cores and steps do not exceed."""
        streams = np.quantile(self.streams, quantile, method="inverted_cdf")
        return float(streams) * core.unit.read_bytes_per_s


def units_of(core_of: NDArray[np.integer[Any]], groups: int) -> NDArray[np.int32]:
    """Unit of every expert, `[E]`, as id core * G + unit: the experts of a core in order of their ids."""
    unit_of = np.zeros(len(core_of), dtype=np.int32)
    for core in np.unique(core_of):
        members = np.flatnonzero(core_of == core)
        unit_of[members] = core * groups + np.arange(len(members)) % groups
    return unit_of


def multicasts(
    jobs: NDArray[np.integer[Any]], core_of: NDArray[np.integer[Any]], cores: int, core: Core
) -> Multicasts:
    """Lay the pooled jobs `[S, E]` of a placement on the mesh of every core.

    Borrowers are the nearest units with idle rounds, heaviest expert first; all streams of a step are taken
    to run at the same time.
    """
    groups = core.units.count
    at = queued(jobs, units_of(core_of, groups), cores * groups).reshape(len(jobs), cores, groups)
    rate = core.unit.read_bytes_per_s
    streams = np.zeros(at.shape[:2], dtype=np.int32)
    stretched = np.zeros(len(jobs))
    _streams(
        np.ascontiguousarray(at), core.side, rate / core.link_bytes_per_s, rate / core.multicast_bytes_per_s,
        streams, stretched,
    )  # fmt: skip
    rounds = -(-at.sum(axis=2).max(axis=1) // groups)
    return Multicasts(streams, rounds.astype(np.int32), stretched)


@kernel
def _streams(
    at: NDArray[np.int32],
    side: int,
    link_share: float,
    core_share: float,
    streams: NDArray[np.int32],
    stretched: NDArray[np.float64],
) -> None:
    """Write streams of cores and stretched rounds of steps; `at` [S, N, G] are the jobs of units."""
    steps, cores, groups = at.shape
    crossing = np.zeros(4 * groups, dtype=np.int32)  # streams on the links out of every unit
    tree = np.zeros(4 * groups, dtype=np.uint8)
    spare = np.zeros(groups, dtype=np.int64)
    for s in range(steps):
        for c in range(cores):
            total = 0
            for u in range(groups):
                total += at[s, c, u]
            rounds = -(-total // groups)
            for u in range(groups):
                spare[u] = max(0, rounds - at[s, c, u])
            crossing[:] = 0
            count = 0
            for owner in np.argsort(-at[s, c]):
                lent = at[s, c, owner] - rounds
                if lent <= 0:
                    break
                count += 1
                tree[:] = 0
                lend(side, owner, lent, spare, tree)
                for link in range(len(tree)):
                    crossing[link] += tree[link]
            slow = max(1.0, count * core_share, crossing.max() * link_share)
            streams[s, c] = count
            stretched[s] = max(stretched[s], rounds * slow)


@kernel
def lend(side: int, owner: int, lent: int, spare: NDArray[np.int64], tree: NDArray[np.uint8]) -> None:
    """Give `lent` jobs of unit `owner` to the nearest units with spare rounds, and mark the links to them.

    Link 4 u + d leaves unit u to the right, left, down or up; routes go along the row first.
    """
    row, col = owner // side, owner % side
    for hops in range(1, 2 * side - 1):
        for u in range(side * side):
            if spare[u] == 0 or abs(u // side - row) + abs(u % side - col) != hops:
                continue
            taken = min(spare[u], lent)
            spare[u] -= taken
            lent -= taken
            y, x = row, col
            while x != u % side:
                right = x < u % side
                tree[4 * (y * side + x) + (0 if right else 1)] = 1
                x += 1 if right else -1
            while y != u // side:
                down = y < u // side
                tree[4 * (y * side + x) + (2 if down else 3)] = 1
                y += 1 if down else -1
            if lent == 0:
                return
