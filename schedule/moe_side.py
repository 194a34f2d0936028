"""The side of the experts on SPIMOE: projections, router and experts of a sub-batch, with communication.

Projections, shared experts and dense layers lie over all channels, which serve the tokens one after the
other; routed experts where the plan puts them. Norms, the choice of experts and the weighted sum of their
results run on a token's home core, the router on the home's channels, for all homes at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..common.errors import BadInput
from ..hardware.noc import ring_all_gather_s
from ..placement.channels.expert_time import is_row_mode, product_s, shard_s
from ..placement.channels.kernels import COLLECTIVE, DISPATCH, DRAM, GATHER, SCATTER, evaluate_steps
from ..placement.channels.problem import Settings
from ..placement.channels.tables import link_tables, ring_tables, slot_tables
from ..placement.ring.order import ring_order
from ..workload.attention import Projection, projections
from .attention import Spread, cache_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..hardware.sram_pim import SramPim
    from ..hardware.topology import Topology
    from ..placement.channels.problem import ChannelProblem, Decision
    from ..placement.channels.tables import Tables
    from ..workload.model import MoEModel

#: Vector operations per element; multiplications, additions and exponentials each count as one.
NORM_OPERATIONS = 4
"""Square, sum, scale, weight."""
RESIDUAL_OPERATIONS = 1
GATED_OPERATIONS = 5
"""SiLU (exponential, sum, division, product) and the gate."""
COMBINE_OPERATIONS = 2
"""Weight and sum, per chosen expert."""

Seconds = dict[str, "NDArray[np.float64]"]


@dataclass(frozen=True, eq=False)
class Channels:
    """All that layers share: the model's shapes on the machine's channels, cores and network.

    `settings` are those of the placement (its `layout` and `mode`); `ring` takes optimised orders for
    collectives (SPIMOE 3.3.2), else sites in the order of their ids.
    """

    model: MoEModel
    platform: Platform
    settings: Settings
    ring: bool = True

    def __post_init__(self) -> None:
        if self.platform.sram_pim is None or self.platform.topology is None:
            raise BadInput(
                f"platform {self.platform.name!r} has no SRAM-PIM cores beside its channels",
                allowed="a section sram_pim beside topology, site and pim",
                fix="take one that has, for example spimoe-4x8",
            )

    @property
    def topology(self) -> Topology:
        """Of the sites."""
        assert self.platform.topology is not None
        return self.platform.topology

    @property
    def core(self) -> SramPim:
        """Beside every site."""
        assert self.platform.sram_pim is not None
        return self.platform.sram_pim

    @property
    def row_mode(self) -> bool:
        """Whether FFN2 is split by inputs."""
        return is_row_mode(self.model, self.settings.mode)

    def spread_s(self, outputs: int, inputs: int, weight_bytes: float) -> float:
        """Return the time of one token on a matrix that lies over all channels."""
        return self.product_s(outputs, inputs, weight_bytes, self.topology.sites)

    def head_s(self, batch: int) -> float:
        """Return the time of the output head for a whole batch, over all channels."""
        return batch * self.spread_s(
            self.model.vocab_size, self.model.hidden_size, self.model.activation_bytes
        )

    @cached_property
    def router_s(self) -> float:
        """One token's router on its home's channels."""
        model = self.model
        return self.product_s(model.experts, model.hidden_size, model.other_weight_bytes, 1)

    def product_s(self, outputs: int, inputs: int, weight_bytes: float, sites: int) -> float:
        """Return the time of one token on a matrix that lies over the channels of so many sites."""
        return product_s(
            self.platform,
            outputs,
            inputs,
            weight_bytes=weight_bytes,
            activation_bytes=self.model.activation_bytes,
            layout=self.settings.layout,
            sites=sites,
        )

    def projections_s(self, layer: int) -> tuple[float, float]:
        """Return one token's seconds of what comes before attention, and after it."""
        matrices = projections(self.model, layer)
        after = 2 if self.model.attention.kind == "mla" else 1  # latents are projected up, then out
        return self._projected_s(matrices[:-after]), self._projected_s(matrices[-after:])

    def _projected_s(self, matrices: tuple[Projection, ...]) -> float:
        weight_bytes = self.model.other_weight_bytes
        return sum(self.spread_s(each.outputs * each.copies, each.inputs, weight_bytes) for each in matrices)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Ring through all sites."""
        sites = range(self.topology.sites)
        return ring_order(self.topology, sites) if self.ring else tuple(sites)

    def all_gather_s(self, tokens: int, width: float) -> float:
        """Return the time after which all sites hold `tokens` vectors of which each had an equal part."""
        block_bytes = tokens * width * self.model.activation_bytes / self.topology.sites
        return ring_all_gather_s(self.topology, self.order, block_bytes) if block_bytes else 0.0

    def common_s(self, layer: int, slots: NDArray[np.bool_], spread: Spread = "heads") -> dict[str, float]:
        """Return the stages of this side before the router's choice, and the last; `slots` bool [B].

        Where the cache is spread by chunks, attention's partial results are added up on the way: a ring
        all-reduce, twice the all-gather.
        """
        model, core = self.model, self.core
        tokens = int(slots.sum())
        homes = np.bincount(np.flatnonzero(slots) % self.topology.sites, minlength=1)
        at_home = int(homes.max(initial=0))
        before_s, after_s = self.projections_s(layer)
        routed = layer in model.moe_layers
        hidden, chosen = at_home * model.hidden_size, model.top_k if routed else 1
        scores = at_home * model.experts if routed else 0
        return {
            "input_norm": core.vector_s(hidden, NORM_OPERATIONS),
            "qkv_projection": tokens * before_s,
            "attention_all_gather": (2 if spread == "chunks" else 1)
            * self.all_gather_s(tokens, cache_shape(model).attended_width),
            "output_projection": tokens * after_s,
            "residual_norm": core.vector_s(hidden, RESIDUAL_OPERATIONS + NORM_OPERATIONS),
            "router": at_home * self.router_s if routed else 0.0,
            "expert_top_k": core.reduce_s(scores),
            "combine": core.vector_s(hidden, COMBINE_OPERATIONS * chosen + RESIDUAL_OPERATIONS),
        }

    def spread_ffn_s(self, width: int, tokens: int) -> dict[str, float]:
        """Return the stages of a feed-forward block of `width` that lies over all channels."""
        model, sites = self.model, self.topology.sites
        gates = model.expert_matrices - 1
        elements = tokens * math.ceil(width / sites)
        return {
            "dispatch": self.all_gather_s(tokens, model.hidden_size),
            "ffn1": tokens * gates * self.spread_s(width, model.hidden_size, model.other_weight_bytes),
            "expert_activation": self.core.vector_s(elements, GATED_OPERATIONS),
            "tp_communication": self.all_gather_s(tokens, width),
            "ffn2": tokens * self.spread_s(model.hidden_size, width, model.other_weight_bytes),
            "output_gather": self.all_gather_s(tokens, model.hidden_size),
        }


@dataclass(frozen=True, eq=False)
class RoutedExperts:
    """The routed experts of one layer where a decision puts them."""

    channels: Channels
    problem: ChannelProblem
    decision: Decision
    rings: GatherRings

    def stage_s(self, tokens: NDArray[np.int16]) -> Seconds:
        """Return [P] seconds by stage of P sub-batches; `tokens` [P, B, K], -1 where a slot takes no part.

        FFN1 and FFN2 are the two parts of the busiest site's work (J_dram). Results are gathered in the order
        of ids, or by the better of that and the optimised ring.
        """
        slots = slot_tables(tokens, self.problem.experts)
        tables = self.tables._replace(**slots._asdict())
        state = evaluate_steps(tables, self.decision.group_of)
        parts, rows = state.parts, np.arange(len(tokens))
        busiest = state.load_s.argmax(axis=0)
        ffn1 = (slots.counts.T @ self._up_s)[rows, busiest]
        elements = (slots.counts.T @ self._inner).max(axis=1)
        core = self.channels.core
        gather = parts[:, GATHER]
        if self.channels.ring and tables.noc:
            gather = self.rings.improved_s(state.first, gather)
        return {
            "dispatch": parts[:, DISPATCH],
            "ffn1": ffn1,
            "expert_activation": np.ceil(elements / core.vector_lanes) * GATED_OPERATIONS / core.clock_hz,
            "tp_communication": parts[:, COLLECTIVE],
            "ffn2": parts[:, DRAM] - ffn1,
            "output_gather": gather + parts[:, SCATTER],
        }

    @cached_property
    def tables(self) -> Tables:
        """The problem's, whose collectives run in the best orders, or in the order of ids."""
        if self.channels.ring:
            return self.problem.tables
        model, groups, topology = self.channels.model, self.problem.groups, self.channels.topology
        sites = np.concatenate([np.sort(groups.sites_of(group)) for group in range(len(groups))])
        rings = ring_tables(
            topology,
            replace(groups, sites=sites.astype(np.int32)),
            link_tables(topology),
            row_mode=self.channels.row_mode,
            token_bytes=model.hidden_size * model.activation_bytes,
            inner_bytes=model.expert_intermediate_size * model.activation_bytes,
        )
        start, links, bytes_, rank, latency_s = rings
        return self.problem.tables._replace(
            ring_start=start, ring_links=links, ring_bytes=bytes_, ring_rank=rank, ring_latency_s=latency_s
        )

    @cached_property
    def member(self) -> NDArray[np.float64]:
        """[E, N] 1 where a site holds a shard."""
        member = np.zeros((self.problem.experts, self.problem.sites))
        for expert in range(self.problem.experts):
            member[expert, list(self.problem.sites_of(self.decision, expert))] = 1.0
        return member

    @cached_property
    def _up_s(self) -> NDArray[np.float64]:
        """[E, N] seconds of a token's FFN1 on each site of its expert."""
        tables, groups = self.problem.tables, self.problem.groups
        share = np.array([up_share(self.channels, factor) for factor in groups.factors])
        group_of = self.decision.group_of
        each: NDArray[np.float64] = tables.token_s[group_of] * share[groups.factor_of[group_of]]
        return self.member * each[:, None]

    @cached_property
    def _inner(self) -> NDArray[np.float64]:
        """[E, N] intermediate elements of a token on each site of its expert."""
        width = self.channels.model.expert_intermediate_size
        each: NDArray[np.float64] = np.ceil(width / self.member.sum(axis=1))
        return self.member * each[:, None]


def up_share(channels: Channels, factor: int) -> float:
    """Return FFN1's share of an expert's time on every site of a group of `factor` sites."""
    settings = channels.settings
    up_s, down_s = shard_s(channels.model, channels.platform, factor, settings.mode, settings.layout)
    return up_s / (up_s + down_s)


class GatherRings:
    """Orders of the all-gather over first cores: nearest neighbour and 2-opt, kept per set (SPIMOE 3.3.2)."""

    def __init__(self, topology: Topology, token_bytes: float) -> None:
        self._topology, self._token_bytes = topology, token_bytes
        self._orders: dict[bytes, NDArray[np.int64]] = {}
        hops = [[len(topology.route(i, j)) for j in range(topology.sites)] for i in range(topology.sites)]
        self._hops = np.array(hops, dtype=np.int32)

    def improved_s(self, first: NDArray[np.int32], by_id_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [P] seconds, the smaller of `by_id_s` and the ring's; `first` [P, N] counts tokens."""
        found = by_id_s.copy()
        for index, tokens in enumerate(first):
            cores = np.flatnonzero(tokens)
            if len(cores) > 2:
                order = self._order(cores)
                blocks = tokens[order] * self._token_bytes
                found[index] = min(found[index], ring_all_gather_s(self._topology, order, blocks))
        return found

    def _order(self, cores: NDArray[np.int64]) -> NDArray[np.int64]:
        from ..placement.ring.local import nearest_neighbour, two_opt

        key = cores.tobytes()
        if key not in self._orders:
            hops = np.ascontiguousarray(self._hops[np.ix_(cores, cores)])
            order = np.empty(len(cores), dtype=np.int32)
            nearest_neighbour(hops, 0, order)
            two_opt(hops, order)
            self._orders[key] = cores[order]
        return self._orders[key]
