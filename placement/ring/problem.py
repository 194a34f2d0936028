"""The question of the `ring` family: in which cyclic order cores pass blocks on to each other.

In a round of a ring collective every core sends a block to the next one, along the route that the network
gives. What a ring is worth lies in three counts (`Measure`): how many transfers of a round share the
busiest link, how many hops the longest transfer takes one way, and how many hops all of them take. On
links that are all alike the time of a round follows from the first two.

Objectives, all minimised:

- `hops`: the largest one-way hop. SPIMOE 3.3.2 minimises max(hop(i, i+1) + hop(i+1, i)), which is twice
  that, because routes are equally long in both directions.
- `load,hops,total` (default): first the link load, then the largest hop, then the total.
- `time`: seconds of one collective on one message size.

`Cost.objective_s` is seconds for `time` only. For `hops` it is the number of hops. For the default it is
the rank `(load * (D + 1) + hops) * (n * D + 1) + total`, D being the largest distance between two cores:
no ring has more than D hops or n * D in total, so ranks order rings exactly as the three counts do.
Ranks are whole numbers, exact in a float; two of them differ by more than the tolerance of `solve()` as
long as they are below 1e9, which holds for loads up to 150 on the largest grid of 32 x 32.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ...common.errors import UsageError, did_you_mean
from ...common.files import fingerprint
from ...hardware.noc import ring_link_load, route_index, transfers_s
from ..problem import Bound, Cost
from .bounds import Floor, hops_floor, load_floor, total_floor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.noc import Routes
    from ...hardware.topology import Topology
    from ..control import Control

Objective = Literal["hops", "load,hops,total", "time"]
Collective = Literal["all_gather", "all_reduce"]

#: Link uses of all pairs of cores up to which cuts are looked for: 300,000 take a quarter of a second.
_MOST_TRANSFERS = 300_000

BASELINES = ("row_major", "snake", "nn_2opt")


class Measure(NamedTuple):
    """The counts of a ring that decide its cost. As a limit: at most these."""

    link_load: int
    """Transfers of one round on the busiest link (of both rings of a pair together)."""
    bottleneck_hops: int
    """Hops of the longest transfer, one way."""
    total_hops: int
    """Hops of all n transfers of a round (of one ring of a pair)."""


@dataclass(frozen=True)
class RingOrder:
    """Cores in the order of the ring, which closes from the last to the first.

    Rotations are the same ring: it is written from its lowest core on. The direction counts, since the
    routes of the two directions differ.
    """

    order: tuple[int, ...]

    def __post_init__(self) -> None:
        given = tuple(operator.index(core) for core in self.order)
        first = given.index(min(given)) if given else 0
        object.__setattr__(self, "order", given[first:] + given[:first])

    def reversed(self) -> RingOrder:
        """Return the ring in the other direction."""
        return RingOrder(self.order[::-1])


@dataclass(frozen=True, eq=False)
class RingProblem:
    """Cores on a topology, and what their ring is to be good at.

    `message_bytes` is what each core contributes: its block of an all-gather, its vector of an all-reduce.
    With `pair`, two rings run at the same time, the order and its reverse, each with half of every message;
    the decision stays one order. Cores then send and receive on two links at once, which takes two ports into
    the network. Raises UsageError where cores are unknown, repeated, failed or fewer than two, where links
    differ in bandwidth or latency, and on unknown objectives or impossible messages.
    """

    topology: Topology
    cores: tuple[int, ...]
    objective: Objective = "load,hops,total"
    collective: Collective = "all_gather"
    message_bytes: float = 65536.0
    pair: bool = False
    family: str = field(default="ring", init=False)
    baselines: tuple[str, ...] = field(default=BASELINES, init=False)
    held_out: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", _checked_cores(self.topology, self.cores))
        for name, value, known in (
            ("objective", self.objective, get_args(Objective)),
            ("collective", self.collective, get_args(Collective)),
        ):
            if value not in known:
                raise UsageError(f"unknown {name} {value!r}", fix=did_you_mean(str(value), known))
        if not 0.0 <= self.message_bytes < float("inf"):
            raise UsageError(f"a message has 0 bytes or more, not {self.message_bytes!r}")
        for what, values in (
            ("bandwidths", self.topology.link_bandwidth_bytes_per_s),
            ("latencies", self.topology.link_latency_s),
        ):
            if np.ptp(values) > 0.0:
                raise UsageError(
                    f"the links of this {self.topology.kind} have different {what}: "
                    "hops and transfers, which rings are ordered by, then say little about time",
                    fix="take a mesh, torus, ring or star",
                )

    @property
    def n(self) -> int:
        """Number of cores."""
        return len(self.cores)

    @cached_property
    def hops(self) -> NDArray[np.int32]:
        """Hops from core to core by position in `cores`, `[n, n]`; symmetric."""
        return np.ascontiguousarray(self.topology.hops[np.ix_(self.cores, self.cores)])

    @cached_property
    def arcs(self) -> Routes:
        """Links that an arc i -> j of the ring puts a transfer on, CSR over the pairs i * n + j.

        With `pair` these are the routes there and back.
        """
        sources, destinations = np.repeat(self.cores, self.n), np.tile(self.cores, self.n)
        if not self.pair:
            return route_index(self.topology, sources, destinations)
        both = np.stack([sources, destinations], axis=1)
        routes = route_index(self.topology, both.ravel(), both[:, ::-1].ravel())
        return routes._replace(start=np.ascontiguousarray(routes.start[::2]))

    @cached_property
    def floor(self) -> Floor:
        """Least counts that any ring can have, and the arguments for them."""
        hops, by = hops_floor(self.hops)
        if self.objective == "hops":
            return Floor((0, hops, 0), by)
        load = 1
        both_ways = self.pair or self.topology.duplex == "half"
        if both_ways and self.hops.sum() <= _MOST_TRANSFERS:
            load = load_floor(self.arcs, 2 if self.pair else 1, self.n, total_floor(self.hops))
        by = by if load == 1 else f"link cut, {by}"
        total = self.least_total(hops)
        return Floor((load, hops, total), f"{by}, 1-tree" if total else by)

    def least_total(self, limit: int) -> int:
        """Return a total that no ring with hops up to `limit` falls below; 0 where it is no objective."""
        if self.objective != "load,hops,total":
            return 0
        from .one_tree import least_total

        return least_total(self.hops, limit)

    @cached_property
    def question(self) -> str:
        """Hash over everything that the best order depends on, which is less than `fingerprint`."""
        timed = self.objective == "time"
        return fingerprint(
            *(list(self.cores), self.objective, self.pair, self.hops, self.arcs.start, self.arcs.links),
            (self.collective, self.message_bytes, *self._link()) if timed else None,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Hash over everything that the cost depends on."""
        return fingerprint(self.question, self.collective, self.message_bytes, self._link())

    def measure(self, decision: RingOrder) -> Measure:
        """Return the counts of a ring."""
        load = ring_link_load(self.topology, decision.order)
        if self.pair:
            load = load + ring_link_load(self.topology, decision.order[::-1])
        hops = self.topology.hops[decision.order, np.roll(decision.order, -1)]
        return Measure(int(load.max()), int(hops.max()), int(hops.sum()))

    def value(self, measure: Measure) -> float:
        """Return the objective of a ring with these counts.

        Time follows from them because all transfers of a round and all links are alike.
        """
        load, hops, total = measure
        if self.objective == "hops":
            return float(hops)
        if self.objective == "load,hops,total":
            return float((load * (self.diameter + 1) + hops) * (self.n * self.diameter + 1) + total)
        bandwidth_bytes_per_s, latency_s = self._link()
        bytes_ = self._block_bytes(self.collective)
        if bytes_ == 0.0:
            return 0.0
        return self._rounds(self.collective) * (load * bytes_ / bandwidth_bytes_per_s + hops * latency_s)

    def least_hops(self, bound: Bound, load: int) -> int:
        """Return what the largest hop of a ring with this load is proven to be at least."""
        if self.objective == "hops":
            return round(bound.value_s)
        if self.objective == "load,hops,total":
            proven_load, hops = divmod(
                round(bound.value_s) // (self.n * self.diameter + 1), self.diameter + 1
            )
            if proven_load == load:
                return hops
        return self.floor.counts[1]

    @cached_property
    def diameter(self) -> int:
        """Largest number of hops between two of the cores."""
        return int(self.hops.max())

    def collective_s(self, decision: RingOrder, collective: Collective) -> float:
        """Return the seconds of one collective: its rounds, each as `hardware.noc.transfers_s` says."""
        return sum(self._parts_s(decision, collective))

    def evaluate(self, decision: RingOrder) -> Cost:
        """Time of the collective in its two parts, and the objective (see the module for its unit)."""
        bandwidth_s, latency_s = self._parts_s(decision, self.collective)
        return Cost(
            total_s=bandwidth_s + latency_s,
            objective_s=self.value(self.measure(decision)),
            parts={"bandwidth_s": bandwidth_s, "latency_s": latency_s},
        )

    def lower_bound(self) -> Bound:
        """Link-cut bound on the load; second neighbours, parity and biconnectivity on the hops."""
        return Bound(self.value(Measure(*self.floor.counts)), self.floor.by)

    def check(self, decision: RingOrder) -> str | None:
        """Every core is in the ring once, and nothing else."""
        if len(decision.order) != self.n:
            return f"the ring has {len(decision.order)} members, not {self.n}"
        if tuple(sorted(decision.order)) != self.cores:
            missing = sorted(set(self.cores) - set(decision.order))
            return f"core {missing[0]} is not in the ring"
        return None

    def infeasible(self) -> str | None:
        """Return None: working sites reach each other, so every order is a ring."""
        return None

    def at(self, positions: Iterable[int]) -> RingOrder:
        """Return the ring of these positions in `cores`."""
        return RingOrder(tuple(self.cores[position] for position in positions))

    def positions(self, decision: RingOrder) -> NDArray[np.int32]:
        """Return the positions in `cores` of a ring's members, `[n]`."""
        return np.searchsorted(self.cores, decision.order).astype(np.int32)

    def _parts_s(self, decision: RingOrder, collective: Collective) -> tuple[float, float]:
        order = np.array(decision.order)
        following = np.roll(order, -1)
        if self.pair:
            order, following = np.concatenate([order, following]), np.concatenate([following, order])
        round_ = transfers_s(self.topology, order, following, self._block_bytes(collective))
        rounds = self._rounds(collective)
        return rounds * round_.bandwidth_s, rounds * round_.latency_s

    def _rounds(self, collective: Collective) -> int:
        return (self.n - 1) * (1 if collective == "all_gather" else 2)

    def _block_bytes(self, collective: Collective) -> float:
        """Bytes of one transfer: a block, or the n-th part of a vector; half of it in a pair."""
        bytes_ = self.message_bytes / (1 if collective == "all_gather" else self.n)
        return bytes_ / 2 if self.pair else bytes_

    def _link(self) -> tuple[float, float]:
        return float(self.topology.link_bandwidth_bytes_per_s[0]), float(self.topology.link_latency_s[0])


def problem_of(control: Control[Any]) -> RingProblem:
    """The problem under solution, as what it is for solvers of this family."""
    problem = control.problem
    assert isinstance(problem, RingProblem)
    return problem


def _checked_cores(topology: Topology, cores: Iterable[int]) -> tuple[int, ...]:
    """Return the cores in ascending order."""
    ids = sorted(operator.index(core) for core in cores)
    strangers = [core for core in ids if not 0 <= core < topology.sites]
    if strangers:
        raise UsageError(
            f"there is no core {strangers[0]} on the {_name(topology)}", allowed=f"0 to {topology.sites - 1}"
        )
    failed = [core for core in ids if core in topology.failed]
    if failed:
        raise UsageError(f"core {failed[0]} has failed: it cannot be in a ring", fix="leave it out")
    twice = [core for core, following in pairwise(ids) if core == following]
    if twice:
        raise UsageError(f"core {twice[0]} is given twice", fix="name every core once")
    if len(ids) < 2:
        raise UsageError(f"a ring needs at least two cores, not {len(ids)}")
    return tuple(ids)


def _name(topology: Topology) -> str:
    return f"{topology.rows} x {topology.cols} {topology.kind}" if topology.rows else topology.kind
