"""Collectives between GPUs: what crosses which link, and how long it takes.

Every collective is a sequence of rounds; the transfers of a round start together and take the busiest link
plus the longest route (`noc.transfers_s`), and a round starts when the one before has ended. Local
additions and copies are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..common.errors import UsageError, did_you_mean
from .noc import Routes, route_index, transfers_s

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .topology import Topology

    Array = np.ndarray[Any, np.dtype[Any]]

ALGORITHMS = ("ring", "direct", "hierarchical", "tree")
"""ring: neighbours, n - 1 rounds; direct: everybody to everybody, 1 round; hierarchical: rings across the
servers of a gpu_cluster and inside them; tree: binomial, for all_reduce only."""


@dataclass(frozen=True)
class Level:
    """Traffic on one kind of link."""

    name: str
    """nvlink or network in a gpu_cluster; else links."""
    sent_bytes: float
    """Payload that crosses such links; counted once, however many of them its route has."""
    busiest_link: int
    """Link id (lowest on ties)."""
    busiest_link_bytes: float
    busiest_link_s: float
    """Those bytes at the link's bandwidth."""


@dataclass(frozen=True)
class CollectiveTime:
    """Time of a collective and what makes it."""

    bandwidth_s: float
    """Sum over rounds of the busiest link's time."""
    latency_s: float
    """Sum over rounds of the longest route's latency."""
    rounds: int
    levels: tuple[Level, ...]
    """Levels that carry anything, the most occupied one first."""

    @property
    def total_s(self) -> float:
        """bandwidth_s + latency_s."""
        return self.bandwidth_s + self.latency_s

    @property
    def busiest_link(self) -> int | None:
        """Link id that is occupied longest over all rounds; None where nothing moves."""
        return self.levels[0].busiest_link if self.levels else None


class _Round(NamedTuple):
    """Transfers that start together, `times` in a row."""

    times: int
    sources: Array
    destinations: Array
    each_bytes: Array

    def back(self) -> _Round:
        """Return the same transfers in the other direction."""
        return self._replace(sources=self.destinations, destinations=self.sources)


def all_to_all(topology: Topology, bytes_: ArrayLike) -> CollectiveTime:
    """Return the time in which every site i has sent bytes_[i, j] ([N, N]) straight to every site j.

    This is a dispatch; the combine is the same with `bytes_` transposed. What stays on a site (the
    diagonal) crosses nothing. Raises UsageError where the shape is not [N, N] or bytes are negative.
    """
    matrix = np.asarray(bytes_, dtype=np.float64)
    sites = topology.sites
    if matrix.shape != (sites, sites):
        raise UsageError(f"bytes of shape {matrix.shape} do not fit", allowed=f"({sites}, {sites})")
    sources, destinations = np.nonzero(matrix)
    return _run(topology, [_Round(1, sources, destinations, matrix[sources, destinations])])


def all_gather(
    topology: Topology, members: ArrayLike, block_bytes: float, algorithm: str = "ring"
) -> CollectiveTime:
    """Return the time after which all n `members` hold the block of each; rings go in the given order.

    Raises UsageError on an unknown algorithm, a repeated member, or members that do not fill whole
    servers (hierarchical).
    """
    return _run(topology, _gather(topology, _members(members), block_bytes, algorithm))


def reduce_scatter(
    topology: Topology, members: ArrayLike, message_bytes: float, algorithm: str = "ring"
) -> CollectiveTime:
    """Return the time after which each member holds its n-th of the sum of all messages.

    An all-gather of message / n blocks backwards; errors as there.
    """
    ids = _members(members)
    return _run(topology, _scatter(topology, ids, message_bytes / len(ids), algorithm))


def all_reduce(
    topology: Topology, members: ArrayLike, message_bytes: float, algorithm: str = "ring"
) -> CollectiveTime:
    """Return the time after which all members hold the sum of all messages.

    A reduce-scatter and an all-gather; by tree, whole messages go up a binomial tree and down again in
    2 ceil(log2 n) rounds, which is faster where latency decides. Errors as in `all_gather`.
    """
    ids = _members(members)
    if algorithm == "tree":
        up = _tree(ids, message_bytes)
        return _run(topology, up + _backwards(up))
    block_bytes = message_bytes / len(ids)
    scatter = _scatter(topology, ids, block_bytes, algorithm)
    return _run(topology, scatter + _gather(topology, ids, block_bytes, algorithm))


def _gather(topology: Topology, members: Array, block_bytes: float, algorithm: str) -> list[_Round]:
    if algorithm == "ring":
        return _rings(members[None, :], block_bytes)
    if algorithm == "direct":
        source, destination = np.nonzero(~np.eye(len(members), dtype=bool))
        each = np.full(len(source), block_bytes)
        return [_Round(1, members[source], members[destination], each)]
    if algorithm == "hierarchical":
        servers = _servers(topology, members)
        return _rings(servers.T, block_bytes) + _rings(servers, block_bytes * len(servers))
    known = ALGORITHMS[:3]
    raise UsageError(f"unknown algorithm {algorithm!r}", fix=did_you_mean(str(algorithm), known))


def _scatter(topology: Topology, members: Array, block_bytes: float, algorithm: str) -> list[_Round]:
    return _backwards(_gather(topology, members, block_bytes, algorithm))


def _backwards(rounds: list[_Round]) -> list[_Round]:
    return [one.back() for one in reversed(rounds)]


def _rings(orders: Array, block_bytes: float) -> list[_Round]:
    """Return an all-gather of blocks along every row of `orders` [R, n] at once."""
    times = orders.shape[1] - 1
    if times == 0:
        return []
    each = np.full(orders.size, block_bytes)
    return [_Round(times, orders.ravel(), np.roll(orders, -1, axis=1).ravel(), each)]


def _tree(members: Array, message_bytes: float) -> list[_Round]:
    """Return the rounds in which messages meet at members[0], pairs first."""
    rounds, step = [], 1
    while step < len(members):
        sources = members[step :: 2 * step]
        destinations = members[: len(members) - step : 2 * step]
        rounds.append(_Round(1, sources, destinations, np.full(len(sources), message_bytes)))
        step *= 2
    return rounds


def _servers(topology: Topology, members: Array) -> Array:
    """Return the members as [servers, GPUs of each], sorted. Raises UsageError where that is no rectangle."""
    if topology.kind != "gpu_cluster":
        raise UsageError(f"a {topology.kind} has no servers", allowed="hierarchical on a gpu_cluster")
    servers = max(1, topology.nodes - topology.sites - 1)
    per_server = topology.sites // servers
    ids, sizes = np.unique(members // per_server, return_counts=True)
    if len(set(sizes.tolist())) > 1:
        raise UsageError("servers take part with different numbers of GPUs", fix="use ring or direct")
    return np.sort(members).reshape(len(ids), -1)


def _members(members: ArrayLike) -> Array:
    """Return the members as int64 [n]; whether they are sites is checked where they send."""
    ids = np.asarray(members)
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise UsageError("members must be a list of at least one site id")
    if len(np.unique(ids)) < len(ids):
        raise UsageError("a site is named twice among the members", fix="name it once")
    return ids.astype(np.int64)


def _run(topology: Topology, rounds: list[_Round]) -> CollectiveTime:
    """Return the time of `rounds` one after the other, and the traffic of each level."""
    bandwidth_s = latency_s = 0.0
    link_bytes = np.zeros(topology.links)
    names, level_of = _levels(topology)
    sent_bytes = np.zeros(len(names))
    for one in rounds:
        time = transfers_s(topology, one.sources, one.destinations, one.each_bytes)
        bandwidth_s += one.times * time.bandwidth_s
        latency_s += one.times * time.latency_s
        routes = route_index(topology, one.sources, one.destinations)
        moved = one.times * one.each_bytes
        link_bytes += np.bincount(routes.links, moved[routes.transfer()], topology.links)
        sent_bytes += _sent(routes, moved, level_of, len(names))
    busy_s = link_bytes / topology.link_bandwidth_bytes_per_s
    levels = []
    for index, name in enumerate(names):
        if sent_bytes[index]:
            link = int(np.where(level_of == index, busy_s, -1.0).argmax())
            levels.append(
                Level(name, float(sent_bytes[index]), link, float(link_bytes[link]), float(busy_s[link]))
            )
    levels.sort(key=lambda level: -level.busiest_link_s)
    return CollectiveTime(bandwidth_s, latency_s, sum(one.times for one in rounds), tuple(levels))


def _levels(topology: Topology) -> tuple[tuple[str, ...], Array]:
    """Return names of levels, and int [M] the level of each link."""
    if topology.kind != "gpu_cluster":
        return ("links",), np.zeros(topology.links, dtype=np.int64)
    several_servers = topology.nodes - topology.sites > 1
    on_network = several_servers & np.any(topology.link_ends == topology.nodes - 1, axis=1)
    return ("nvlink", "network"), on_network.astype(np.int64)


def _sent(routes: Routes, moved: Array, level_of: Array, levels: int) -> Array:
    """Return float64 [levels] the bytes of the transfers that use a level."""
    used = np.zeros((len(moved), levels), dtype=bool)
    used[routes.transfer(), level_of[routes.links]] = True
    sent: Array = moved @ used
    return sent
