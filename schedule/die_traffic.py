"""What routed tokens ask of the networks of a near-memory die: the mesh between cores, and the one inside.

Between cores: a token's activation enters at a port, and is multicast along the routes to the cores that
hold its experts, once per link. Partial sums come back to the port; `ep-first` they are added wherever two
meet, so that a link carries at most one per token; `tp-first` the partial sum of every expert has to leave
the die by itself. ReXpert gives neither the ports nor BookSim2's configuration. A die's links to others
(96 + 34 GB/s) are wider than those between cores (64 GB/s), so one port cannot serve it; by default every
core is one, and tokens take them in turn.

Inside a core, the read-out of an expert is multicast when its jobs do not fit into the rounds of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError
from ..hardware.noc import route_index
from ..placement.cores.rounds import jobs_of
from .reduction import PARTIAL_BYTES, Demand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..hardware.nearmem import Core
    from ..hardware.topology import Topology
    from ..workload.load import Load
    from .reduction import Mapping, Order

_CHUNK = 1 << 16
"""Tokens at a time, to bound memory."""


@dataclass(frozen=True, eq=False)
class LinkBytes:
    """Bytes per element of width d that links carry, float64 [S, L, dies]; the busiest link of each."""

    busiest: NDArray[np.float64]

    def demand(self, mapping: Mapping, link_bytes_per_s: float, percentile: float | None = None) -> Demand:
        """Return the demand on the busiest link: on average over steps, or at a percentile."""
        busiest = self.busiest.mean() if percentile is None else np.percentile(self.busiest, percentile)
        bytes_per_s = float(busiest) * mapping.hidden_size / mapping.layer_s
        return Demand("die NoC, busiest link", bytes_per_s, link_bytes_per_s)


def link_bytes(
    load: Load,
    core_of: NDArray[np.integer[Any]],
    network: Topology,
    mapping: Mapping,
    order: Order,
    *,
    ports: Sequence[int] | None = None,
) -> LinkBytes:
    """Count what a step's tokens put on every link between cores, dispatch and return together.

    `core_of` [E] or [L, E]: core of an expert on its die; where a layer's experts take several dies, die i
    has the i-th equal part of them. Token b of a step enters at port b mod P, the directions of a wire count
    separately.
    Choices below 0 (dropped) are passed over. Raises UsageError where an expert lies on no core.
    """
    steps, _, layers, _ = load.experts.shape
    entries = list(ports) if ports is not None else list(range(network.sites))
    places = np.broadcast_to(np.asarray(core_of, dtype=np.int64), (layers, load.num_experts))
    if places.min() < 0 or places.max() >= network.sites:
        raise UsageError("an expert lies on no core", allowed=f"cores 0 to {network.sites - 1}")
    die_of = np.arange(load.num_experts) * mapping.expert_dies // load.num_experts
    crossed = [_crossed(network, port) for port in entries]
    busiest = np.empty((steps, layers, mapping.expert_dies))
    for layer in range(layers):
        chosen = load.experts[:, :, layer].astype(np.int64)
        for die in range(mapping.expert_dies):
            here = (chosen >= 0) & (die_of[chosen] == die)
            core = np.where(here, places[layer][chosen], network.sites)
            total = np.zeros((steps, network.links))
            for entry, (out, back) in enumerate(crossed[: load.batch]):
                slots = core[:, entry :: len(entries)]
                total += _carried(slots, network.sites, out, back, order)
            busiest[:, layer, die] = total.max(axis=1) if network.links else 0.0
    return LinkBytes(busiest)


def _crossed(network: Topology, port: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Links [N, M] on the route from the port to every core, and from every core to the port."""
    cores = np.arange(network.sites)
    ways = []
    for source, destination in ((np.full_like(cores, port), cores), (cores, np.full_like(cores, port))):
        routes = route_index(network, source, destination)
        crossed = np.zeros((network.sites, network.links))
        crossed[routes.transfer(), routes.links] = 1.0
        ways.append(crossed)
    return ways[0], ways[1]


def _carried(
    core: NDArray[np.int64],
    cores: int,
    out: NDArray[np.float64],
    back: NDArray[np.float64],
    order: Order,
) -> NDArray[np.float64]:
    """Bytes per element [S, M] of tokens whose experts lie on `core` [S, b, K] (`cores`: not on this die)."""
    steps, slots, top_k = core.shape
    total = np.zeros((steps, out.shape[1]))
    for first in range(0, steps, max(1, _CHUNK // max(slots, 1))):
        part = core[first : first + max(1, _CHUNK // max(slots, 1))]
        rows = np.arange(part.shape[0] * slots).repeat(top_k)
        flat = np.bincount(rows * (cores + 1) + part.ravel(), minlength=part.shape[0] * slots * (cores + 1))
        held = flat.reshape(-1, cores + 1)[:, :cores].astype(np.float64)
        sent = (held @ out > 0).astype(np.float64)
        returned = held @ back
        if order == "ep-first":
            returned = (returned > 0).astype(np.float64)
        carried = sent + PARTIAL_BYTES * returned
        total[first : first + part.shape[0]] = carried.reshape(part.shape[0], slots, -1).sum(axis=1)
    return total


@dataclass(frozen=True)
class Multicasts:
    """Read-outs that cross a core's mesh at the same time, over all steps, layers and cores."""

    mean: float
    p99: float
    peak: int

    def demand(self, core: Core, streams: float) -> Demand:
        """Return what so many read-outs need together, against the core's budget."""
        return Demand("core mesh", streams * core.unit.read_bytes_per_s, core.multicast_bytes_per_s)


def multicasts(
    counts: NDArray[np.integer[Any]], core_of: NDArray[np.integer[Any]], cores: int, core: Core, width: int
) -> Multicasts:
    """Count concurrent multicasts in token counts [S, L, E] on cores [E] or [L, E].

    A core needs ceil(jobs / G) rounds; a unit with more jobs than that cannot serve them alone, and its
    read-out is multicast to borrowers (section IV-C).
    """
    from ..placement.cores.mesh import multicasts as in_layer

    jobs = jobs_of(np.asarray(counts), width)
    _, layers, experts = jobs.shape
    places = np.broadcast_to(np.asarray(core_of, dtype=np.int64), (layers, experts))
    streams = np.stack([in_layer(jobs[:, i], places[i], cores, core).streams for i in range(layers)])
    p99 = float(np.quantile(streams, 0.99, method="inverted_cdf"))
    return Multicasts(float(streams.mean()), p99, int(streams.max()))
