"""Topologies: sites and switches, the links between them, and the route of every pair of sites.

A topology is built once and then only read. Cost models and search kernels use its arrays (CSR routes,
bandwidths, latencies); people and graph algorithms use `Topology.graph`, the same links as NetworkX.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import BadInput, UsageError, did_you_mean

if TYPE_CHECKING:
    import networkx as nx

    Array = np.ndarray[Any, np.dtype[Any]]
    PerWire = float | list[float]

MAX_SITES = 1024
"""Every pair of sites has its route stored; beyond this, model the machine in levels."""


@dataclass(frozen=True, eq=False)
class Topology:
    """Sites 0..N-1 (where work can be placed), switches N..nodes-1, and M links between them.

    A link is a direction of a wire ("full" duplex) or the whole wire, shared by both directions
    ("half" duplex). The pair (i, j) has the flat index i * N + j.
    """

    kind: str
    """mesh, torus, ring, fully_connected, star or gpu_cluster."""
    nodes: int
    """Sites and switches together."""
    rows: int
    """Rows of the grid; 0 where there is none. Site id = row * cols + col."""
    cols: int
    """Columns of the grid; 0 where there is none."""
    duplex: str
    """full or half."""
    routing: str
    """xy (along the row first), yx (along the column first), or shortest (lowest node id on ties)."""
    failed: tuple[int, ...]
    """Sites that are out of order: they keep their ids and have no links."""
    hops: Array
    """int32 [N, N] links on the route i -> j; -1 where i or j has failed."""
    route_start: Array
    """int32 [N * N + 1] route of pair p is route_links[route_start[p] : route_start[p + 1]]."""
    route_links: Array
    """int32 [sum of hops] link ids in order of travel."""
    link_ends: Array
    """int32 [M, 2] nodes of a link, in its direction (half duplex: lower id first)."""
    link_bandwidth_bytes_per_s: Array
    """float64 [M]."""
    link_latency_s: Array
    """float64 [M]."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def sites(self) -> int:
        """Number of sites N, failed ones included."""
        return int(self.hops.shape[0])

    @property
    def links(self) -> int:
        """Number of links M."""
        return int(self.link_ends.shape[0])

    @cached_property
    def graph(self) -> nx.DiGraph[int]:
        """The links as a frozen NetworkX graph without the failed sites.

        Edges carry `bandwidth_bytes_per_s`, `latency_s` and `link` (the link id; on half duplex both
        directions carry the same).
        """
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(sorted(set(range(self.nodes)) - set(self.failed)))
        for link, (a, b) in enumerate(self.link_ends.tolist()):
            attributes = {
                "bandwidth_bytes_per_s": float(self.link_bandwidth_bytes_per_s[link]),
                "latency_s": float(self.link_latency_s[link]),
                "link": link,
            }
            graph.add_edge(a, b, **attributes)
            if self.duplex == "half":
                graph.add_edge(b, a, **attributes)
        nx.freeze(graph)
        return graph

    def route(self, source: int, destination: int) -> Array:
        """Return the int32 link ids of the route in order of travel; empty from a site to itself.

        Raises UsageError where an end is not a working site.
        """
        for site in (source, destination):
            if not 0 <= site < self.sites or site in self.failed:
                raise UsageError(
                    f"no route {source} -> {destination}: {site} is not a working site",
                    allowed=f"0 to {self.sites - 1}"
                    + (f" without {_ids(self.failed)}" if self.failed else ""),
                )
        pair = source * self.sites + destination
        return self.route_links[self.route_start[pair] : self.route_start[pair + 1]]


def mesh(
    rows: int,
    cols: int,
    *,
    link_bandwidth_bytes_per_s: float,
    hop_latency_s: float,
    duplex: str = "full",
    routing: str = "xy",
) -> Topology:
    """Build a rows x cols mesh with dimension-ordered routes. Raises UsageError on bad arguments."""
    return _grid("mesh", rows, cols, link_bandwidth_bytes_per_s, hop_latency_s, duplex, routing)


def torus(
    rows: int,
    cols: int,
    *,
    link_bandwidth_bytes_per_s: float,
    hop_latency_s: float,
    duplex: str = "full",
    routing: str = "xy",
) -> Topology:
    """Build a mesh whose rows and columns close to rings; routes wrap the shorter way.

    Where both ways are equally long the route goes towards higher ids. A ring of two sites has one
    wire, not two. Raises UsageError on bad arguments.
    """
    return _grid("torus", rows, cols, link_bandwidth_bytes_per_s, hop_latency_s, duplex, routing)


def ring(
    n: int, *, link_bandwidth_bytes_per_s: float, hop_latency_s: float, duplex: str = "full"
) -> Topology:
    """Build a ring of `n` sites with wires i to i + 1 mod n. Raises UsageError on bad arguments."""
    sites = np.arange(_size("n", n))
    wires = np.stack([sites, np.roll(sites, -1)], axis=1)[: n if n > 1 else 0]
    return _shortest("ring", n, n, wires, link_bandwidth_bytes_per_s, hop_latency_s, duplex)


def fully_connected(
    n: int, *, link_bandwidth_bytes_per_s: float, hop_latency_s: float, duplex: str = "full"
) -> Topology:
    """Build `n` sites with one wire between any two. Raises UsageError on bad arguments."""
    wires = np.stack(np.triu_indices(_size("n", n), k=1), axis=1)
    return _shortest("fully_connected", n, n, wires, link_bandwidth_bytes_per_s, hop_latency_s, duplex)


def star(
    n: int,
    hub: int | None = None,
    *,
    link_bandwidth_bytes_per_s: float,
    hop_latency_s: float,
    duplex: str = "full",
) -> Topology:
    """Build `n` sites around site `hub`, or around a switch (node id n) where `hub` is None.

    Raises UsageError on bad arguments.
    """
    sites = np.arange(_size("n", n))
    if hub is not None and not 0 <= hub < n:
        raise UsageError(f"hub {hub} is not a site", allowed=f"0 to {n - 1}, or None for a switch")
    centre = n if hub is None else hub
    wires = np.stack([sites, np.full(n, centre)], axis=1)[sites != centre]
    nodes = n + (hub is None)
    return _shortest("star", n, nodes, wires, link_bandwidth_bytes_per_s, hop_latency_s, duplex)


def gpu_cluster(
    nodes: int,
    gpus_per_node: int,
    *,
    nvlink_bandwidth_bytes_per_s: float,
    nvlink_latency_s: float,
    network_bandwidth_bytes_per_s: float | None = None,
    network_latency_s: float = 0.0,
) -> Topology:
    """Build `nodes` servers of GPUs: an NVLink switch in each, one network switch across them.

    GPU g sits in node g // gpus_per_node; node switches have the ids N..N+nodes-1, the network switch
    the last. Every GPU has its own network port. Bandwidths are those of one GPU in one direction;
    latencies are end to end from GPU to GPU, half of it on each of the two links of a route.
    One node needs no network. Raises UsageError on bad arguments.
    """
    sites = _size("nodes x gpus_per_node", _size("nodes", nodes) * _size("gpus_per_node", gpus_per_node))
    if nodes > 1 and network_bandwidth_bytes_per_s is None:
        raise UsageError(f"{nodes} nodes need a network", fix="give network_bandwidth_bytes_per_s")
    gpu = np.arange(sites)
    wires = np.stack([gpu, sites + gpu // gpus_per_node], axis=1)
    bandwidth = [nvlink_bandwidth_bytes_per_s] * sites
    latency = [nvlink_latency_s / 2] * sites
    if network_bandwidth_bytes_per_s is not None and nodes > 1:
        wires = np.concatenate([wires, np.stack([gpu, np.full(sites, sites + nodes)], axis=1)])
        bandwidth += [network_bandwidth_bytes_per_s] * sites
        latency += [network_latency_s / 2] * sites
    switches = nodes + (nodes > 1)
    return _shortest("gpu_cluster", sites, sites + switches, wires, bandwidth, latency, "full")


def without(
    topology: Topology, *, sites: Iterable[int] = (), links: Iterable[tuple[int, int]] = ()
) -> Topology:
    """Return the topology with `sites` and the wires between the node pairs `links` out of order.

    A failed site passes nothing on; a failed wire fails in both directions. Routes that touched neither
    stay as they are; the others become shortest paths around the failures. Site ids stay, link ids do
    not. Raises UsageError where a site or wire does not exist, BadInput (naming the sites) where the
    failures cut sites off or leave none.
    """
    gone = sorted({*topology.failed, *(operator.index(site) for site in sites)})
    unknown = [site for site in gone if not 0 <= site < topology.sites]
    if unknown:
        raise UsageError(f"there is no site {_ids(unknown)}", allowed=f"0 to {topology.sites - 1}")
    if len(gone) == topology.sites:
        raise BadInput("every site has failed: nothing is left to place on")

    dead = np.any(np.isin(topology.link_ends, gone), axis=1)
    wires = np.sort(topology.link_ends, axis=1)
    for a, b in links:
        broken = np.all(wires == sorted((a, b)), axis=1)
        if not broken.any():
            raise UsageError(f"there is no link between nodes {a} and {b}")
        dead = dead | broken

    ends = topology.link_ends[~dead]
    link_of = _link_table(topology.nodes, ends, topology.duplex)
    next_node, hops = _shortest_paths(topology.sites, link_of, gone)
    _keep_intact_routes(topology, dead, next_node)
    start, route_links = _walk(next_node, hops, link_of)
    return replace(
        topology,
        failed=tuple(gone),
        hops=hops.astype(np.int32),
        route_start=start,
        route_links=route_links,
        link_ends=ends,
        link_bandwidth_bytes_per_s=topology.link_bandwidth_bytes_per_s[~dead],
        link_latency_s=topology.link_latency_s[~dead],
    )


def _keep_intact_routes(old: Topology, dead: Array, next_node: Array) -> None:
    """Overwrite `next_node` with the first step of every old route that no dead link touches.

    The rest of an untouched route is untouched as well, and as long as before, so walking the mixed
    table still shortens the way by one link per step.
    """
    dead_before = np.concatenate([[0], np.cumsum(dead[old.route_links])])
    touched = dead_before[old.route_start[1:]] > dead_before[old.route_start[:-1]]
    pair = np.flatnonzero((old.hops.ravel() > 0) & ~touched)
    source, destination = np.divmod(pair, old.sites)
    first = old.route_links[old.route_start[pair]]
    next_node[source, destination] = old.link_ends[first].sum(axis=1) - source


def _grid(
    kind: str, rows: int, cols: int, bandwidth: float, latency: float, duplex: str, routing: str
) -> Topology:
    rows, cols = _size("rows", rows), _size("cols", cols)
    sites = _size(f"rows x cols of a {kind}", rows * cols)
    if routing not in {"xy", "yx"}:
        raise UsageError(f"unknown routing {routing!r}", fix=did_you_mean(str(routing), ["xy", "yx"]))
    site = np.arange(sites).reshape(rows, cols)
    wires = []
    for axis, size in ((0, rows), (1, cols)):
        pairs = np.stack([site, np.roll(site, -1, axis=axis)], axis=-1)
        closed = kind == "torus" and size > 1
        wires.append((pairs if closed else np.delete(pairs, -1, axis=axis)).reshape(-1, 2))
    ends, *values = _links(np.concatenate(wires), bandwidth, latency, duplex)
    next_node, hops = _dimension_order(rows, cols, kind == "torus", routing)
    start, route_links = _walk(next_node, hops, _link_table(sites, ends, duplex))
    table = (hops.astype(np.int32), start, route_links, ends)
    return Topology(kind, sites, rows, cols, duplex, routing, (), *table, *values)


def _dimension_order(rows: int, cols: int, wrap: bool, routing: str) -> tuple[Array, Array]:
    """Return int [N, N] next site on the way i -> j, and int [N, N] hops."""
    row, col = np.divmod(np.arange(rows * cols), cols)
    down = _displacement(row, rows, wrap)
    right = _displacement(col, cols, wrap)
    along_row = right != 0 if routing == "xy" else down == 0
    next_col = (col[:, None] + np.where(along_row, np.sign(right), 0)) % cols
    next_row = (row[:, None] + np.where(along_row, 0, np.sign(down))) % rows
    return next_row * cols + next_col, abs(down) + abs(right)


def _displacement(position: Array, size: int, wrap: bool) -> Array:
    """Return int [N, N] signed steps i -> j along one axis; with wrap the shorter way, ties positive."""
    steps: Array = position[None, :] - position[:, None]
    most_negative = (size - 1) // 2
    return (steps + most_negative) % size - most_negative if wrap else steps


def _shortest(
    kind: str, sites: int, nodes: int, wires: Array, bandwidth: PerWire, latency: PerWire, duplex: str
) -> Topology:
    ends, *values = _links(wires, bandwidth, latency, duplex)
    link_of = _link_table(nodes, ends, duplex)
    next_node, hops = _shortest_paths(sites, link_of, [])
    start, route_links = _walk(next_node, hops, link_of)
    table = (hops.astype(np.int32), start, route_links, ends)
    return Topology(kind, nodes, 0, 0, duplex, "shortest", (), *table, *values)


def _links(wires: Array, bandwidth: PerWire, latency: PerWire, duplex: str) -> tuple[Array, Array, Array]:
    """Turn wires [W, 2] with their values into links sorted by their ends; double wires count once."""
    if duplex not in {"full", "half"}:
        raise UsageError(f"unknown duplex {duplex!r}", fix=did_you_mean(str(duplex), ["full", "half"]))
    for value in np.unique(bandwidth):
        if not 0 < value < np.inf:
            raise UsageError(f"bandwidth must be more than 0 bytes/s and finite, not {value}")
    for value in np.unique(latency):
        if not 0 <= value < np.inf:
            raise UsageError(f"latency must be at least 0 s and finite, not {value}")
    ends: Array = np.sort(wires, axis=1)
    values = np.empty((len(ends), 2))
    values[:, 0], values[:, 1] = bandwidth, latency
    if duplex == "full":
        ends, values = np.concatenate([ends, ends[:, ::-1]]), np.concatenate([values, values])
    ends, first = np.unique(ends, axis=0, return_index=True)
    return ends.astype(np.int32), values[first, 0].copy(), values[first, 1].copy()


def _link_table(nodes: int, ends: Array, duplex: str) -> Array:
    """Return int32 [V, V] link id from a to its neighbour b; -1 where there is none."""
    table = np.full((nodes, nodes), -1, dtype=np.int32)
    table[ends[:, 0], ends[:, 1]] = np.arange(len(ends))
    if duplex == "half":
        table[ends[:, 1], ends[:, 0]] = np.arange(len(ends))
    return table


def _shortest_paths(sites: int, link_of: Array, failed: list[int]) -> tuple[Array, Array]:
    """Return int [V, N] next node towards each site (lowest id on ties), and int [N, N] hops.

    Hops are -1 from and to failed sites. Raises BadInput where other sites cannot reach each other.
    """
    adjacent = link_of >= 0
    distance = _distances(adjacent)
    alive = np.setdiff1d(np.arange(sites), failed)
    main = alive[np.argmax((distance[np.ix_(alive, alive)] >= 0).sum(axis=1))]
    cut_off = alive[distance[main, alive] < 0]
    if cut_off.size:
        raise BadInput(
            f"{len(cut_off)} of {len(alive)} working sites are cut off from the others: {_ids(cut_off)}",
            fix="keep the network connected, or count these sites as failed too",
        )
    to_site = distance[:, :sites]
    next_node = np.full((len(link_of), sites), -1)
    for node, linked in enumerate(adjacent):
        neighbours = np.flatnonzero(linked)
        if neighbours.size:
            closer = to_site[neighbours] < to_site[node]
            next_node[node] = neighbours[np.argmax(closer, axis=0)]
    hops = to_site[:sites].copy()
    hops[failed, failed] = -1
    return next_node, hops


def _distances(adjacent: Array) -> Array:
    """Return int [V, V] fewest links a -> b of a bool [V, V] graph; -1 where there is no way."""
    distance = np.where(np.eye(len(adjacent), dtype=bool), 0, -1)
    step = adjacent.astype(np.float32)
    frontier = distance == 0
    length = 0
    while frontier.any():
        length += 1
        frontier = (frontier.astype(np.float32) @ step > 0) & (distance < 0)
        distance[frontier] = length
    return distance


def _walk(next_node: Array, hops: Array, link_of: Array) -> tuple[Array, Array]:
    """Follow `next_node` from every site to every other, one link a round: the routes as CSR."""
    start = np.zeros(hops.size + 1, dtype=np.int32)
    np.cumsum(np.maximum(hops.ravel(), 0), out=start[1:])
    route_links = np.empty(start[-1], dtype=np.int32)
    pair = np.flatnonzero(hops.ravel() > 0)
    here, goal = np.divmod(pair, len(hops))
    position = start[pair]
    while here.size:
        there = next_node[here, goal]
        route_links[position] = link_of[here, there]
        on = there != goal
        here, goal, position = there[on], goal[on], position[on] + 1
    return start, route_links


def _size(name: str, value: int) -> int:
    """Return a number of things, checked."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value <= MAX_SITES:
        raise UsageError(f"{name} must be a whole number of 1 to {MAX_SITES}, not {value!r}")
    return operator.index(value)


def _ids(sites: Iterable[int]) -> str:
    """Return "0, 1, 2" for a message; no more than the first dozen."""
    names = [str(site) for site in sites]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
