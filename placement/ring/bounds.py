"""What no ring can beat, proven without a solver: least link load, largest hop and total hops.

Largest hop: (a) every core has two ring neighbours, so it reaches at least its second nearest; (b) on a
grid a closed walk has an even number of odd hops, so a ring with more cores of one chessboard colour than
of the other has an even hop; (c) the graph of allowed hops has a Hamiltonian cycle only if it stays
connected without any one core (the bottleneck biconnectivity tau_2, from which the factor-2 approximation
of Parker and Rardin 1984, Operations Research Letters 2, starts).

Total hops: half of the two nearest distances of every core; n plus the surplus of one colour; and an even
number on a grid. `one_tree` has the stronger bound.

Link load: the transfers of all hops over the number of links; and where all pairs between k parts of the
cores use a link in both directions, a ring changes between those parts at least k times, each time over that
link (full-duplex links carry one direction only, so this is 1 there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.noc import Routes


class Floor(NamedTuple):
    """Least (link load, largest hop, total hops), and by which arguments.

    The total is that of rings whose largest hop is the least. What is no objective is 0.
    """

    counts: tuple[int, int, int]
    by: str


def hops_floor(hops: NDArray[np.int32]) -> tuple[int, str]:
    """Return the least possible largest hop, and the argument that gives it."""
    n = len(hops)
    if n == 2:
        return int(hops[0, 1]), "two cores"
    bound, argument = int(np.partition(hops, 2, axis=1)[:, 2].max()), "second-nearest neighbour"
    colour = colours(hops)
    if colour is not None and 2 * colour.sum() != n:
        even = int(hops[(hops > 0) & (hops % 2 == 0)].min(initial=hops.max()))
        if even > bound:
            bound, argument = even, "parity"
    while not _biconnected(_neighbour_sets(hops <= bound)):
        bound, argument = int(hops[hops > bound].min()), "biconnectivity"
    return bound, argument


def total_floor(hops: NDArray[np.int32]) -> int:
    """Return a least number of hops in total."""
    n = len(hops)
    if n == 2:
        return 2 * int(hops[0, 1])
    nearest = np.partition(hops, 2, axis=1)[:, 1:3]
    bound = -(-int(nearest.sum()) // 2)
    colour = colours(hops)
    if colour is not None:
        bound = max(bound, n + abs(n - 2 * int(colour.sum())))
    return round_up(bound, hops)


def round_up(total: int, hops: NDArray[np.int32]) -> int:
    """Return the next total that a ring can have: an even one where cores have colours."""
    return total if colours(hops) is None else total + total % 2


def load_floor(arcs: Routes, directions: int, n: int, total: int) -> int:
    """Return a least load of the busiest link.

    `total` is a least number of hops, each of which is `directions` transfers on a link.
    """
    bound = -(-directions * total // len(np.unique(arcs.links)))
    link, pair, uses = _shared_uses(arcs, n)
    for m in np.flatnonzero(np.bincount(link, minlength=1) >= n - 1):
        free = ~np.eye(n, dtype=bool)
        i, j = np.divmod(pair[link == m], n)
        free[i, j] = free[j, i] = False
        parts = _parts(_neighbour_sets(free))
        if parts > 1:
            bound = max(bound, parts * int(uses[link == m].min()))
    return bound


def _shared_uses(arcs: Routes, n: int) -> tuple[NDArray[np.int64], ...]:
    """Return (link, pair i * n + j with i < j, transfers) where both arcs of a pair use a link."""
    pair = np.repeat(np.arange(n * n), np.diff(arcs.start))
    source, destination = np.divmod(pair, n)
    ahead = source < destination
    key = arcs.links.astype(np.int64) * n * n + np.where(ahead, pair, destination * n + source)
    there, transfers_there = np.unique(key[ahead], return_counts=True)
    back, transfers_back = np.unique(key[~ahead], return_counts=True)
    both, a, b = np.intersect1d(there, back, assume_unique=True, return_indices=True)
    link, shared = np.divmod(both, n * n)
    return link, shared, np.minimum(transfers_there[a], transfers_back[b])


def colours(hops: NDArray[np.int32]) -> NDArray[np.int64] | None:
    """Return a 0/1 colour of every core such that hops are odd between colours; None where there is none."""
    colour: NDArray[np.int64] = (hops[0] % 2).astype(np.int64)
    return colour if bool((hops % 2 == (colour[:, None] ^ colour[None, :])).all()) else None


def _neighbour_sets(linked: NDArray[np.bool_]) -> list[int]:
    """Return the neighbours of every core as bits of an integer; a core is none of its own."""
    rows = np.packbits(linked & ~np.eye(len(linked), dtype=bool), axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def _biconnected(neighbours: list[int]) -> bool:
    """Tell whether the cores stay connected when any one of them is left out."""
    everyone = (1 << len(neighbours)) - 1
    return all(
        _reached(neighbours, everyone & ~(1 << gone)) == everyone & ~(1 << gone)
        for gone in range(len(neighbours))
    )


def _parts(neighbours: list[int]) -> int:
    """Return the number of connected components."""
    left, parts = (1 << len(neighbours)) - 1, 0
    while left:
        left &= ~_reached(neighbours, left)
        parts += 1
    return parts


def _reached(neighbours: list[int], within: int) -> int:
    """Return the cores that the lowest one reaches inside the set `within`."""
    reached = frontier = within & -within
    while frontier:
        core = frontier.bit_length() - 1
        new = neighbours[core] & within & ~reached
        reached |= new
        frontier = (frontier & ~(1 << core)) | new
    return reached
