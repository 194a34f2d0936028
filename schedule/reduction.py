"""What each level of a near-memory pool has to carry while a layer streams by, for two orders of reduction.

Equation 3 of ReXpert: a level moves n_tok (phi_act d + phi_psum 2d) bytes in t_layer, activations at one byte
and partial sums at two (BF16) per element of width d. phi counts what one die sends, per token:

- Die j stores shard j of every expert; where one die cannot hold all experts of a layer, shard j fills
  several dies in a row, each with an equal part of the experts; where it holds them more than once, it takes
  as many shards as fit. Packages take dies in that order.
- An exchange among n dies is a reduce-scatter (for activations an all-gather): each die sends (n - 1) / n of
  what it has and keeps 1 / n. It runs inside the package first, then between packages.
- `ep-first` adds up a token's experts on the die, then over the dies of a shard, and merges shards last: one
  partial sum per token and die. `tp-first` merges the shards of every expert first: as many partial sums as
  the token has experts on the die.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ..common.errors import UsageError

if TYPE_CHECKING:
    from ..hardware.nearmem import Folding, Node
    from ..workload.model import MoEModel

Order = Literal["ep-first", "tp-first"]
ORDERS: Final[tuple[Order, ...]] = ("ep-first", "tp-first")
PARTIAL_BYTES: Final = 2
"""Of an element of a partial sum: BF16 (section IV-B); activations are FP8, one byte."""
SWEPT_COLUMNS: Final = (16384, 24576, 32768, 49152)
"""Array depths of figure 8."""


@dataclass(frozen=True)
class Mapping:
    """Where the shards of one layer's experts lie. Made by `map_layer`."""

    folding: Folding
    hidden_size: int
    top_k: int
    expert_dies: int
    """Dies that share the experts of one shard index."""
    die_shards: int
    """Shards of an expert on one die."""
    package_expert_dies: int
    """Dies of one shard index in one package."""
    package_shard_dies: int
    """Dies with different shard indices in one package."""

    @property
    def shard_dies(self) -> int:
        """Dies that share the shards of one expert."""
        return math.ceil(self.folding.shards / self.die_shards)

    @property
    def dies(self) -> int:
        """Dies that hold the layer."""
        return self.expert_dies * self.shard_dies

    @property
    def layer_s(self) -> float:
        """t_layer: one pass over the shard of an expert."""
        return self.folding.seconds

    @property
    def die_top_k(self) -> float:
        """Experts of a token on one die, on average."""
        return self.top_k / self.expert_dies


def map_layer(model: MoEModel, node: Node) -> Mapping:
    """Return where the experts of a layer lie. Raises UsageError where a slice does not fit into a unit."""
    die = node.package.die
    folding = die.core.unit.fold(
        model.hidden_size, model.expert_intermediate_size, matrices=model.expert_matrices
    )
    expert_dies = math.ceil(model.experts / die.units.count)
    die_shards = min(folding.shards, max(1, die.units.count // model.experts))
    package_expert_dies = min(expert_dies, node.package.dies)
    return Mapping(
        folding=folding,
        hidden_size=model.hidden_size,
        top_k=model.top_k,
        expert_dies=expert_dies,
        die_shards=die_shards,
        package_expert_dies=package_expert_dies,
        package_shard_dies=min(
            math.ceil(folding.shards / die_shards), node.package.dies // package_expert_dies
        ),
    )


@dataclass(frozen=True)
class Shares:
    """phi of equation 3: what one die sends per token, in activations and partial sums of full width."""

    package_activations: float
    package_partials: float
    outer_activations: float
    """To other packages."""
    outer_partials: float

    def package_bytes(self, hidden_size: int) -> float:
        """Bytes of a token inside the package."""
        return hidden_size * (self.package_activations + PARTIAL_BYTES * self.package_partials)

    def outer_bytes(self, hidden_size: int) -> float:
        """Bytes of a token to other packages."""
        return hidden_size * (self.outer_activations + PARTIAL_BYTES * self.outer_partials)


def shares(mapping: Mapping, order: Order) -> Shares:
    """Return phi per die for an order of reduction. Raises UsageError for an unknown order."""
    if order not in ORDERS:
        raise UsageError(f"unknown order of reduction {order!r}", allowed=", ".join(ORDERS))
    experts = (
        mapping.package_expert_dies,
        math.ceil(mapping.expert_dies / mapping.package_expert_dies),
    )
    shards = (mapping.package_shard_dies, math.ceil(mapping.shard_dies / mapping.package_shard_dies))
    # A token with fewer experts than there are dies has a partial sum on some of them only.
    merged = min(1.0, mapping.die_top_k)
    if order == "ep-first":
        steps = [(merged, experts), (merged / math.prod(experts), shards)]
    else:
        steps = [(mapping.die_top_k, shards), (merged / math.prod(shards), experts)]
    package_partials, outer_partials = 0.0, 0.0
    for held, (inside, outside) in steps:
        package_partials += held * _sent(inside)
        outer_partials += held / inside * _sent(outside)
    inside, outside = experts[0] * shards[0], experts[1] * shards[1]
    return Shares(_sent(inside), package_partials, _sent(outside) / inside, outer_partials)


def _sent(members: int) -> float:
    """Share of its data that a member of a reduce-scatter or all-gather sends."""
    return (members - 1) / members


@dataclass(frozen=True)
class Demand:
    """What one level needs, and what it has."""

    level: str
    bytes_per_s: float
    provision_bytes_per_s: float

    @property
    def is_met(self) -> bool:
        """Whether the provision covers the demand."""
        return self.bytes_per_s <= self.provision_bytes_per_s


def demands(model: MoEModel, node: Node, tokens: float, order: Order = "ep-first") -> tuple[Demand, ...]:
    """Return the demand of units, of dies and of the node in a layer of `tokens` tokens (Table IV).

    The unit's is that of one tile: d bytes per token in, and a partial sum out. A die's is what it sends
    inside its package, and in all; the node's is the residual between layers, d bytes per token. Raises
    UsageError where a slice does not fit into a unit or there is no token.
    """
    if not 0 < tokens < math.inf:
        raise UsageError(f"a step of {tokens} tokens demands nothing", allowed="at least 1 token")
    mapping = map_layer(model, node)
    phi, width = shares(mapping, order), model.hidden_size
    unit = node.package.die.core.unit
    inside, outside = phi.package_bytes(width), phi.outer_bytes(width)
    link = node.package.die_link_bytes_per_s
    tile = unit.tile_tokens * width * (1 + PARTIAL_BYTES)
    return (
        Demand("unit I/O", tile / mapping.layer_s, unit.read_bytes_per_s),
        Demand("package D2D, per die", tokens * inside / mapping.layer_s, link),
        Demand("all D2D, per die", tokens * (inside + outside) / mapping.layer_s, link),
        Demand("node residual", tokens * width / mapping.layer_s, node.die_link_bytes_per_s),
    )


def order_penalty(model: MoEModel, node: Node) -> float:
    """Return D2D bytes inside the package, tp-first over ep-first (section V-C); 1.0 where none moves."""
    mapping = map_layer(model, node)
    first, reversed_ = (shares(mapping, order).package_bytes(model.hidden_size) for order in ORDERS)
    return reversed_ / first if first else 1.0


def tile_fill_batch(model: MoEModel, node: Node) -> int:
    """Return the batch at which the mean expert has a full tile: w E / k, ReXpert's native batch."""
    return round(node.package.die.core.unit.tile_tokens * model.experts / model.top_k)


@dataclass(frozen=True)
class Depth:
    """One array depth of figure 8."""

    columns: int
    shards: int
    """Tensor-parallel degree; 0 where no slice of an expert fits."""
    layer_s: float
    utilization: float
    """Share of the columns in use in the fullest unit."""
    package_bytes_per_s: float
    """D2D demand of a die inside its package."""
    dies: int
    """That hold the weights by capacity."""


def array_depths(
    model: MoEModel,
    node: Node,
    tokens: float,
    *,
    weight_bytes: float,
    order: Order = "ep-first",
    columns: Sequence[int] = SWEPT_COLUMNS,
) -> tuple[Depth, ...]:
    """Return the sweep of section V-D over array depths, at a fixed time per column.

    `weight_bytes`: what the pool holds. A depth into which no slice fits has 0 shards.
    """
    swept = []
    for depth in columns:
        deep = node.resized(columns=depth)
        dies = deep.package.die.dies_for(weight_bytes)
        try:
            mapping = map_layer(model, deep)
        except UsageError:
            swept.append(Depth(depth, 0, math.inf, 0.0, 0.0, dies))
            continue
        demand = tokens * shares(mapping, order).package_bytes(model.hidden_size) / mapping.layer_s
        folding = mapping.folding
        swept.append(Depth(depth, folding.shards, mapping.layer_s, folding.utilization, demand, dies))
    return tuple(swept)
