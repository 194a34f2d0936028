"""A channel problem as flat arrays: what kernels, linear models and bounds read.

Built once; no graph and no Python object is touched afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.topology import Topology
    from .groups import Groups


#: By how much what a site holds may exceed its memory: sums of shards are rounded.
SLACK: Final = 1.0 + 1e-9


class Tables(NamedTuple):
    """One layer on one load. S steps, B batch slots, E experts, N sites, G groups, M links.

    A NamedTuple because numba takes it as it is.
    """

    counts: NDArray[np.float64]  # [E, S] tokens of expert e in step s
    slot_start: NDArray[np.int32]  # [E * S + 1] CSR over (e, s) into `slots`
    slots: NDArray[np.int32]  # batch slots whose token goes to e in s
    answers: NDArray[
        np.uint8
    ]  # [S, B] 1 where slot b's token goes to any expert, so that a result comes home
    home: NDArray[np.int32]  # [B] site where slot b's attention runs
    group_start: NDArray[np.int32]  # [G + 1]
    group_sites: NDArray[np.int32]
    factor_of: NDArray[np.int32]  # [G] index of the TP factor
    factor_start: NDArray[np.int32]  # [F + 1] groups of a factor
    token_s: NDArray[np.float64]  # [G] PIM seconds of one token on every site of the group
    shard_bytes: NDArray[np.float64]  # [G] weight bytes on every site of the group
    capacity_bytes: float  # of one site for this layer
    noc: bool  # False: host-attached channels, J_noc = 0
    token_bytes: float  # activations of one token, d * bytes
    route_start: NDArray[np.int32]  # [N * N + 1] CSR over (i, j) into `route_links`
    route_links: NDArray[np.int32]
    seconds_per_byte: NDArray[np.float64]  # [M]
    latency_rank: NDArray[np.int32]  # [N, N] index into `latency_s`
    latency_s: NDArray[np.float64]  # [R] distinct route latencies, ascending, 0.0 first
    near: NDArray[np.int32]  # [N, N] sites by rising latency from site i, ties by id
    ring_start: NDArray[np.int32]  # [G + 1] CSR into the two below
    ring_links: NDArray[np.int32]  # links that the group's collective uses
    ring_bytes: NDArray[np.float64]  # bytes per token on them
    ring_rank: NDArray[np.int32]  # [G] index into `ring_latency_s`
    ring_latency_s: NDArray[np.float64]  # distinct collective latencies, ascending, 0.0 first


class Links(NamedTuple):
    """The part of the tables that depends on the machine alone, shared by all layers and loads."""

    route_start: NDArray[np.int32]
    route_links: NDArray[np.int32]
    seconds_per_byte: NDArray[np.float64]
    latency_rank: NDArray[np.int32]
    latency_s: NDArray[np.float64]
    near: NDArray[np.int32]


def link_tables(topology: Topology) -> Links:
    """Flatten a topology. Latencies become ranks so that a histogram can hold a maximum under removals."""
    n = topology.sites
    per_link = topology.link_latency_s[topology.route_links]
    sums = np.concatenate([[0.0], np.cumsum(per_link)])
    latency = (sums[topology.route_start[1:]] - sums[topology.route_start[:-1]]).reshape(n, n)
    # Differences of a running sum carry rounding noise of 1e-16 s; a picosecond merges equals.
    latency = np.round(latency, 12)
    values, rank = np.unique(np.append(latency.ravel(), 0.0), return_inverse=True)
    return Links(
        route_start=topology.route_start,
        route_links=topology.route_links,
        seconds_per_byte=1.0 / topology.link_bandwidth_bytes_per_s,
        latency_rank=rank[:-1].reshape(n, n).astype(np.int32),
        latency_s=values,
        near=np.argsort(latency, axis=1, kind="stable").astype(np.int32),
    )


def ring_tables(
    topology: Topology,
    groups: Groups,
    links: Links,
    *,
    row_mode: bool,
    token_bytes: float,
    inner_bytes: float,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Traffic of every group's collective around FFN2, per token routed to it (SPIMOE 3.3.2).

    Row mode: ring all-reduce of the output, 2 (t - 1) rounds of d / t. Col mode: ring all-gather of the
    intermediate activations, t - 1 rounds of d_moe / t, and every member then sends its d / t outputs
    to the first core, from which the next phase starts. `inner_bytes` is d_moe * bytes.
    """
    start, used_links, used_bytes, latencies = [0], [], [], []
    for group in range(len(groups)):
        sites = groups.sites_of(group)
        t = len(sites)
        load = np.zeros(len(links.seconds_per_byte))
        latency_s = 0.0
        if t > 1:
            following = np.roll(sites, -1)
            rounds, message = (2 * (t - 1), token_bytes / t) if row_mode else (t - 1, inner_bytes / t)
            _add_routes(load, topology, sites, following, rounds * message)
            latency_s = rounds * links.latency_s[links.latency_rank[sites, following].max()]
            if not row_mode:
                first = np.full(t - 1, sites[0])
                _add_routes(load, topology, sites[1:], first, token_bytes / t)
                latency_s += links.latency_s[links.latency_rank[sites[1:], first].max()]
        nonzero = np.flatnonzero(load)
        start.append(start[-1] + len(nonzero))
        used_links.append(nonzero)
        used_bytes.append(load[nonzero])
        latencies.append(latency_s)
    values, rank = np.unique([*np.round(latencies, 12), 0.0], return_inverse=True)
    return (
        np.array(start, dtype=np.int32),
        np.concatenate(used_links).astype(np.int32),
        np.concatenate(used_bytes),
        rank[:-1].astype(np.int32),
        values,
    )


def _add_routes(
    load: NDArray[np.float64],
    topology: Topology,
    sources: NDArray[np.int32],
    destinations: NDArray[np.int32],
    bytes_: float,
) -> None:
    for i, j in zip(sources, destinations, strict=True):
        np.add.at(load, topology.route(int(i), int(j)), bytes_)


class Slots(NamedTuple):
    """The part of the tables that is made from a load's tokens."""

    counts: NDArray[np.float64]
    slot_start: NDArray[np.int32]
    slots: NDArray[np.int32]
    answers: NDArray[np.uint8]


def slot_tables(tokens: NDArray[np.int16], experts: int) -> Slots:
    """Turn routed tokens `[S, B, K]` into counts `[E, S]` and the batch slots of every (expert, step).

    A choice of -1 was dropped by the router (SPIMOE algorithm 1): it is in no count and moves nothing.
    """
    steps, batch, top_k = tokens.shape
    kept = (tokens >= 0).ravel()
    step = np.repeat(np.arange(steps), batch * top_k)[kept]
    slot = np.tile(np.repeat(np.arange(batch), top_k), steps)[kept]
    key = tokens.ravel()[kept].astype(np.int64) * steps + step
    order = np.argsort(key, kind="stable")
    counts = np.bincount(key, minlength=experts * steps)
    return Slots(
        counts.reshape(experts, steps).astype(np.float64),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        slot[order].astype(np.int32),
        np.asarray((tokens >= 0).any(axis=2), dtype=np.uint8),
    )
