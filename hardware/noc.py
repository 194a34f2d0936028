"""The network on chip: how long transfers take that start together, in seconds and in router cycles.

Two levels. `transfers_s` and the ring collectives need bandwidths and latencies only: the busiest link
plus the longest route. `round_cycles` knows the router pipeline and the packets. Both are exact where
no two transfers share a link, a sender or a receiver; elsewhere both miss that a blocked packet holds
the links behind it (wormhole switching), and state how far simulators were found from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..common.errors import UsageError

if TYPE_CHECKING:
    from .topology import Topology

    Array = np.ndarray[Any, np.dtype[Any]]

TRANSFERS_BAND = (-0.20, 0.50)
"""(simulated - predicted) / predicted of `transfers_s` for conflicting transfers on a full-duplex mesh.

Covers at least 90 % of ring rounds over random orders of 8 to 32 cores of a 4x8 mesh, messages of 32 to
2,048 flits, in flit-level simulation of BookSim2's router with 1 virtual channel and 8-flit buffers.
Nothing is said of patterns in which a site sends or receives more than once: an all-to-all of 8 cores
took up to three times as long.
"""

ROUND_BAND = (-0.10, 0.50)
"""The same of `round_cycles`. Positive: blocked packets that hold links, worst for one long packet."""


class Routes(NamedTuple):
    """Routes of n transfers one after another, in CSR form."""

    start: Array
    """int64 [n + 1] transfer i travels links[start[i] : start[i + 1]]."""
    links: Array
    """int32 [start[n]] link ids in order of travel."""

    def transfer(self) -> Array:
        """Return int64 [start[n]] the transfer that each entry of `links` belongs to."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@dataclass(frozen=True)
class RoundTime:
    """Time of transfers that start together, and why it is what it is."""

    total_s: float
    """bandwidth_s + latency_s."""
    bandwidth_s: float
    """Time of the busiest link: its bytes over its bandwidth."""
    latency_s: float
    """Largest sum of link latencies along one route."""
    hottest_link: int | None
    """Link id behind bandwidth_s (lowest id on ties); None where nothing moves."""
    largest_link_transfers: int
    """Transfers on the link that most of them use."""
    contention_free: bool
    """No two transfers share a link, a sender or a receiver: the time is exact."""
    error_band: tuple[float, float] | None
    """(low, high) of (measured - total_s) / total_s; (0, 0) where contention-free; None where there is
    no independent measurement (half duplex, other topologies than a mesh, several messages of a site)."""


@dataclass(frozen=True)
class Router:
    """A wormhole router with one virtual channel, as cycle counts.

    A packet of L flits over h links takes head_cycles * h + fixed_cycles + (L - 1) /
    link_flits_per_cycle cycles to its tail flit. Raises UsageError where a value makes no sense.
    """

    head_cycles: int
    """Cycles of a head flit per hop: router pipeline and link."""
    fixed_cycles: int
    """Cycles of a head flit beside its hops: injection, the last router, ejection."""
    packet_gap_cycles: int
    """Cycles that a link idles after each packet, while the next head passes the pipeline."""
    link_flits_per_cycle: float
    """Rate of a link, and of the ports into and out of the network."""
    packet_flits: int
    """Messages are cut into packets of this size, the last one shorter."""
    flit_bytes: int
    """Bytes of a flit (the width of a link)."""
    clock_hz: float

    def __post_init__(self) -> None:
        for name in ("head_cycles", "link_flits_per_cycle", "packet_flits", "flit_bytes", "clock_hz"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} of a router must be more than 0, not {getattr(self, name)!r}")
        for name in ("fixed_cycles", "packet_gap_cycles"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} of a router must be at least 0, not {getattr(self, name)!r}")

    def flits(self, bytes_: float) -> int:
        """Return the flits of a message of `bytes_` bytes."""
        return math.ceil(bytes_ / self.flit_bytes)

    def seconds(self, cycles: float) -> float:
        """Return the time of `cycles` clock cycles in seconds."""
        return cycles / self.clock_hz

    def link_cycles(self, flits: Array) -> Array:
        """Return float64 [n] cycles for which messages of `flits` [n] occupy a link, gaps included."""
        packets = np.ceil(flits / self.packet_flits)
        busy: Array = flits / self.link_flits_per_cycle + packets * self.packet_gap_cycles
        return busy

    @property
    def tail_cycles(self) -> float:
        """Cycles counted twice when head latency and occupation of a link are added up."""
        return 1 / self.link_flits_per_cycle + self.packet_gap_cycles


def booksim2_router(
    head_cycles: int = 5, *, packet_flits: int = 8, flit_bytes: int = 32, clock_hz: float = 1e9
) -> Router:
    """Return BookSim2's input-queued router (commit 28f43299f1, 1 virtual channel) of 3, 4 or 5 cycles a hop.

    3: speculative, routing_delay 0; 5: its defaults. One packet of L flits over h links takes
    t(h + 1) + 2 + L - 1 cycles (equal to the simulator for t = 3, 4, 5). With one virtual channel the
    next head waits for routing and allocation after each tail: 0 cycles for t = 3 and 2 for t = 5, both
    measured; 1 for t = 4 follows from its pipeline. Raises UsageError for other `head_cycles`.
    """
    if head_cycles not in {3, 4, 5}:
        raise UsageError(f"no BookSim2 router of {head_cycles} cycles a hop", allowed="3, 4 or 5")
    return Router(
        head_cycles=head_cycles,
        fixed_cycles=head_cycles + 2,
        packet_gap_cycles=head_cycles - 3,
        link_flits_per_cycle=1.0,
        packet_flits=packet_flits,
        flit_bytes=flit_bytes,
        clock_hz=clock_hz,
    )


def noxim_router(*, packet_flits: int = 8, flit_bytes: int = 4, clock_hz: float = 1e9) -> Router:
    """Return Noxim's router (commit 4c8e72d66f).

    Its request/acknowledge protocol moves half a flit per cycle and link; a packet takes
    2h + 2 + 2(L - 1) cycles to its tail.
    """
    return Router(
        head_cycles=2,
        fixed_cycles=2,
        packet_gap_cycles=0,
        link_flits_per_cycle=0.5,
        packet_flits=packet_flits,
        flit_bytes=flit_bytes,
        clock_hz=clock_hz,
    )


def route_index(topology: Topology, sources: ArrayLike, destinations: ArrayLike) -> Routes:
    """Return the concatenated routes of transfers sources [n] -> destinations [n].

    Raises UsageError where the two differ in shape or name something else than working sites.
    """
    source, destination = _pairs(topology, sources, destinations)
    pair = source * topology.sites + destination
    first = topology.route_start[pair]
    start = np.concatenate([[0], np.cumsum(topology.route_start[pair + 1] - first)])
    position = np.arange(start[-1]) + np.repeat(first - start[:-1], np.diff(start))
    return Routes(start, topology.route_links[position])


def transfers_s(
    topology: Topology, sources: ArrayLike, destinations: ArrayLike, bytes_: ArrayLike
) -> RoundTime:
    """Return the time of transfers that start together: busiest link + longest route.

    `bytes_` is [n] or one value for all. Transfers to oneself or of 0 bytes cost nothing. Raises
    UsageError on ends that are not working sites and on amounts that are negative or not finite.
    """
    source, destination, amount = _moving(topology, sources, destinations, bytes_)
    routes = route_index(topology, source, destination)
    if not routes.links.size:
        return RoundTime(0.0, 0.0, 0.0, None, 0, True, (0.0, 0.0))
    busy_s = _per_link(topology, routes, amount) / topology.link_bandwidth_bytes_per_s
    bandwidth_s = float(busy_s.max())
    latency_s = float(_route_latency_s(topology, routes).max())
    transfers = int(np.bincount(routes.links).max())
    single = max(np.bincount(source).max(), np.bincount(destination).max()) == 1
    free = bool(single and transfers == 1)
    measured = single and topology.kind == "mesh" and topology.duplex == "full"
    return RoundTime(
        total_s=bandwidth_s + latency_s,
        bandwidth_s=bandwidth_s,
        latency_s=latency_s,
        hottest_link=int(busy_s.argmax()),
        largest_link_transfers=transfers,
        contention_free=free,
        error_band=(0.0, 0.0) if free else TRANSFERS_BAND if measured else None,
    )


def zero_load_cycles(router: Router, hops: int, flits: int) -> int:
    """Return cycles until the tail of one message arrives over `hops` empty links; 0 for 0 hops.

    Equal to BookSim2 and Noxim at every measured point (see the presets for the closed forms).
    """
    if hops == 0 or flits == 0:
        return 0
    busy = float(router.link_cycles(np.array([flits]))[0])
    return _whole(busy + router.head_cycles * hops + router.fixed_cycles - router.tail_cycles)


def round_cycles(
    router: Router, topology: Topology, sources: ArrayLike, destinations: ArrayLike, flits: ArrayLike
) -> int:
    """Return cycles until all transfers that start together have arrived.

    Every link, and every site's port into and out of the network, is a queue. Of the messages that reach
    a link after at least u hops none is there before the head latency of u hops, all of them have to
    pass, and the one with the most hops d still ahead has to travel on:

        T = max over links and u of (sum of link cycles + head_cycles * (u + d)) + fixed - tail cycles

    which is load * S * (1 + gap * packets / S) + largest head latency - 1 - gap where the longest routes
    cross the busiest link. Equal to BookSim2 and Noxim in all contention-free ring rounds; `ROUND_BAND`
    elsewhere. `flits` is [n] or one value for all. Raises UsageError as `transfers_s` does.
    """
    source, destination, amount = _moving(topology, sources, destinations, flits)
    if not amount.size:
        return 0
    routes = route_index(topology, source, destination)
    transfer, hops = routes.transfer(), np.diff(routes.start)
    travelled = np.arange(len(transfer)) - routes.start[transfer]
    into, out_of = topology.links + source, topology.links + topology.sites + destination
    busy = router.link_cycles(amount)
    queued = _queued_cycles(
        router.head_cycles,
        queue=np.concatenate([routes.links, into, out_of]),
        before=np.concatenate([travelled, np.zeros_like(hops), hops]),
        after=np.concatenate([hops[transfer] - travelled, hops, np.zeros_like(hops)]),
        busy=np.concatenate([busy[transfer], busy, busy]),
    )
    return _whole(queued + router.fixed_cycles - router.tail_cycles)


def _queued_cycles(head_cycles: int, *, queue: Array, before: Array, after: Array, busy: Array) -> float:
    """Return max over queues and u of sum(busy) + head_cycles * (u + max after), over entries before >= u."""
    order = np.lexsort((-before, queue))
    queue, before, after, busy = queue[order], before[order], after[order], busy[order]
    opens = np.concatenate([[True], queue[1:] != queue[:-1]])
    group = np.cumsum(opens) - 1
    total = np.cumsum(busy)
    total -= (total - busy)[opens][group]
    lift = group * (after.max() + 1)  # keeps the running maximum inside its own queue
    farthest = np.maximum.accumulate(after + lift) - lift
    return float((total + head_cycles * (before + farthest)).max())


def ring_round_cycles(router: Router, topology: Topology, order: ArrayLike, flits: ArrayLike) -> int:
    """Return `round_cycles` of one round of the ring: order[i] sends flits[i] to order[i + 1].

    An all-gather of n members is n - 1 such rounds, an all-reduce 2(n - 1).
    """
    members, receivers = _ring(topology, order)
    return round_cycles(router, topology, members, receivers, flits)


def ring_link_load(topology: Topology, order: ArrayLike) -> Array:
    """Return int32 [M] transfers on each link in one round of the ring order[0], order[1], ..., order[0].

    Raises UsageError where `order` is empty, repeats a site or names something else than working sites.
    """
    links = route_index(topology, *_ring(topology, order)).links
    return np.bincount(links, minlength=topology.links).astype(np.int32)


def ring_all_gather_s(topology: Topology, order: ArrayLike, block_bytes: ArrayLike) -> float:
    """Return the time after which every member of the ring holds the blocks of all.

    Member i starts with block_bytes[i] ([n], or one size for all), which travels n - 1 edges of the
    ring: edge i -> i + 1 carries every block but the receiver's own. The time is the busiest link's,
    plus n - 1 times the largest edge latency; with equal blocks that is n - 1 rounds. One member or no
    bytes cost 0. Raises UsageError on a bad order or amounts.
    """
    members, receivers = _ring(topology, order)
    blocks = _amounts(block_bytes, len(members))
    if len(members) == 1 or not blocks.any():
        return 0.0
    routes = route_index(topology, members, receivers)
    carried = blocks.sum() - np.roll(blocks, -1)
    busy_s = _per_link(topology, routes, carried) / topology.link_bandwidth_bytes_per_s
    return float(busy_s.max() + (len(members) - 1) * _route_latency_s(topology, routes).max())


def ring_all_reduce_s(topology: Topology, order: ArrayLike, message_bytes: float) -> float:
    """Return the time of a ring all-reduce: a reduce-scatter and an all-gather of message / n blocks.

    2(n - 1) rounds; the additions are not counted. One member or no bytes cost 0. Raises UsageError on a
    bad order or amount.
    """
    members, _ = _ring(topology, order)
    return 2 * ring_all_gather_s(topology, members, message_bytes / len(members))


def _ring(topology: Topology, order: ArrayLike) -> tuple[Array, Array]:
    """Return the members and each one's successor, int64 [n] both, checked."""
    members = _sites(topology, order)
    if not members.size:
        raise UsageError("a ring needs at least one member")
    ids, times = np.unique(members, return_counts=True)
    if times.max() > 1:
        raise UsageError(f"site {ids[times.argmax()]} is in the ring {times.max()} times", fix="name it once")
    return members, np.roll(members, -1)


def _moving(
    topology: Topology, sources: ArrayLike, destinations: ArrayLike, amounts: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return sources, destinations and amounts of the transfers that move anything, checked."""
    source, destination = _pairs(topology, sources, destinations)
    amount = _amounts(amounts, len(source))
    moving = (source != destination) & (amount > 0)
    return source[moving], destination[moving], amount[moving]


def _pairs(topology: Topology, sources: ArrayLike, destinations: ArrayLike) -> tuple[Array, Array]:
    """Return the ends of transfers as int64 [n] both."""
    source, destination = _sites(topology, sources), _sites(topology, destinations)
    if source.shape != destination.shape:
        raise UsageError(f"{len(source)} sources and {len(destination)} destinations do not pair up")
    return source, destination


def _sites(topology: Topology, sites: ArrayLike) -> Array:
    """Return working sites as int64 [n]."""
    given = np.asarray(sites)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(f"sites must be a list of whole numbers, not {given.dtype} of shape {given.shape}")
    unknown = given[(given < 0) | (given >= topology.sites)]
    if unknown.size:
        raise UsageError(f"there is no site {unknown[0]}", allowed=f"0 to {topology.sites - 1}")
    if topology.failed and np.isin(given, topology.failed).any():
        broken = given[np.isin(given, topology.failed)][0]
        raise UsageError(f"site {broken} has failed: nothing can be sent from or to it")
    return given.astype(np.int64)


def _amounts(amounts: ArrayLike, n: int) -> Array:
    """Return bytes or flits as float64 [n]."""
    given = np.asarray(amounts, dtype=np.float64)
    if given.shape not in {(), (n,)}:
        raise UsageError(f"amounts of shape {given.shape} do not fit {n} transfers", allowed=f"() or ({n},)")
    if not (np.isfinite(given) & (given >= 0)).all():
        raise UsageError("amounts must be at least 0 and finite")
    return np.broadcast_to(given, (n,))


def _per_link(topology: Topology, routes: Routes, amount: Array) -> Array:
    """Return float64 [M] the sum of amount [n] over the transfers on each link."""
    return np.bincount(routes.links, weights=amount[routes.transfer()], minlength=topology.links)


def _route_latency_s(topology: Topology, routes: Routes) -> Array:
    """Return float64 [n] the sum of link latencies along each route."""
    latency_s = topology.link_latency_s[routes.links]
    return np.bincount(routes.transfer(), weights=latency_s, minlength=len(routes.start) - 1)


def _whole(cycles: float) -> int:
    """Round up to whole cycles, forgiving the rounding of link rates such as 1/3."""
    return math.ceil(cycles - 1e-6)
