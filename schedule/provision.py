"""A near-memory pool for a model: how its experts lie, what every level carries, how fast it serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..common.errors import BadInput, UsageError
from . import disaggregation, reduction
from .decode_step import decode_step, ffn_bytes

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..hardware.nearmem import Node
    from ..hardware.platform import Platform
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from .decode_step import Account
    from .disaggregation import PoolEnergy, Pools, Ratio, Stages
    from .reduction import Demand, Depth, Mapping, Order

CONTEXTS = (1024, 4096, 16384, 32768, 131072)
BATCHES = (1, 8, 64)
"""For which the ratio of attention to feed-forward devices is given, beside the batch asked for."""


@dataclass(frozen=True)
class Demands:
    """What the levels of the pool need in a layer of the batch."""

    order: Order
    modeled: tuple[Demand, ...]
    """By equation 3."""
    routed: tuple[Demand, ...]
    """Counted on decode steps: busiest link between cores, and multicasts inside them; () without steps."""
    penalty: float
    """D2D bytes of tp-first over ep-first."""

    @property
    def all(self) -> tuple[Demand, ...]:
        """Both kinds."""
        return (*self.modeled, *self.routed)


@dataclass(frozen=True)
class Provision:
    """A pool of `dies` dies and `gpus` GPUs for a model and a batch; made by `provision`."""

    model: MoEModel
    node: Node
    dies: int
    gpus: float
    least_dies: int
    """That hold the experts' bytes, as ReXpert counts dies."""
    unit_dies: int
    """That have a unit for every shard of every expert; more, because shards do not fill units."""
    least_gpus: int
    """Whose memory holds attention's weights and all caches."""
    batch: int
    context: int
    union: float
    mapping: Mapping
    stages: Stages
    checkpoint: Stages
    """The same with attention as the model's configuration says."""
    demands: Demands
    depths: tuple[Depth, ...]
    ratios: tuple[Ratio, ...]
    energy: PoolEnergy
    pools: Pools | None
    """Smallest pools for a target, where one was given."""

    @property
    def wave_s(self) -> float:
        """What a step takes from end to end at least: attention, and one pass of every layer's dies.

        A layer whose fullest core has more jobs than units takes several passes; see `placement.cores`.
        """
        return self.stages.attention_s + len(self.model.moe_layers) * self.mapping.layer_s

    @property
    def waves(self) -> int | None:
        """Batches that must be under way at once for the smallest pools to keep their target's pace.

        More dies quicken the pace, not a batch's way: the arrays of one layer take `mapping.layer_s` to
        stream by, however many there are. None where there is no target.
        """
        if self.pools is None:
            return None
        way_s = self.pools.gpus.seconds + len(self.model.moe_layers) * self.mapping.layer_s
        return math.ceil(way_s / self.pools.target_s)


def provision(
    model: MoEModel,
    platform: Platform,
    *,
    batch: int,
    context: int,
    union: float,
    order: Order = "ep-first",
    load: Load | None = None,
    dies: int = 0,
    gpus: float = 0.0,
    target_s: float | None = None,
    account: Account = "published",
    contexts: Sequence[int] = CONTEXTS,
) -> Provision:
    """Return how a pool serves decode steps of `batch` requests of `context` tokens each.

    `union`: experts of a layer that a step activates. `load`: steps on which links, multicasts and the
    unions of smaller batches are counted. `dies` and `gpus` (0: those of the platform; if it leaves them
    open, the dies that hold the model and the GPUs of the same peak). Raises BadInput where the platform has
    no dies or no GPU, ProvenInfeasible where the pool is too small or the target out of reach.
    """
    node, gpu = _machine(platform)
    die = node.package.die
    step = decode_step(model, batch=batch, context=context, union=union, account=account)
    least = die.dies_for(step.resident_bytes)
    dies, gpus = _sizes(platform, gpu, least, dies, gpus)
    disaggregation.check_capacity(step.resident_bytes, die, dies)
    mapping = reduction.map_layer(model, node)
    real = decode_step(model, batch=batch, context=context, union=union, account="checkpoint")
    return Provision(
        model=model,
        node=node,
        dies=dies,
        gpus=gpus,
        least_dies=least,
        unit_dies=_unit_dies(model, node, mapping),
        least_gpus=disaggregation.gpus_for_memory(step, gpu),
        batch=batch,
        context=context,
        union=union,
        mapping=mapping,
        stages=disaggregation.stages(step, die, dies, gpu, gpus),
        checkpoint=disaggregation.stages(real, die, dies, gpu, gpus),
        demands=demands_of(model, node, batch, order, load),
        depths=reduction.array_depths(model, node, batch, weight_bytes=step.resident_bytes, order=order),
        ratios=disaggregation.balanced_ratios(
            model, die, dies, gpu, unions=_unions(batch, union, load), contexts=contexts, account=account
        ),
        energy=disaggregation.pool_energy(
            step,
            die,
            dies,
            gpu,
            gpus,
            router_bytes=float(model.router_params),
            link_bytes=_link_bytes(model, mapping, batch, order),
        ),
        pools=None if target_s is None else disaggregation.smallest_pools(step, die, gpu, target_s),
    )


def check_pool(model: MoEModel, platform: Platform, dies: int = 0) -> None:
    """Raise where a pool cannot hold a model, before anything is counted; see `provision`."""
    node, _ = _machine(platform)
    assert platform.nearmem is not None
    held = dies or platform.nearmem.dies
    if held:
        disaggregation.check_capacity(ffn_bytes(model), node.package.die, held)
    reduction.map_layer(model, node)


def check_union(model: MoEModel, batch: int, union: float) -> None:
    """Raise UsageError where no step of whole tokens activates so many experts, before any is counted.

    Only where a trace drops choices a step may have fewer than top-k.
    """
    most = min(model.experts, batch * model.top_k)
    if not model.top_k <= union <= most:
        raise UsageError(
            f"a batch cannot activate {union:g} experts of a layer",
            where="--union",
            allowed=f"{model.top_k} to {most}: {batch} tokens choose {model.top_k} of {model.experts} each",
        )


def demands_of(model: MoEModel, node: Node, batch: int, order: Order, load: Load | None = None) -> Demands:
    """Return what every level needs; experts lie on the cores in order, an equal number on each."""
    return Demands(
        order=order,
        modeled=reduction.demands(model, node, batch, order),
        routed=() if load is None else _routed(model, node, order, load),
        penalty=reduction.order_penalty(model, node),
    )


def union_of(load: Load, tokens: int | None = None) -> float:
    """Return U: experts of a layer that a step activates on average, or that `tokens` of its tokens do."""
    from ..workload.stats import union

    counts = load.counts()
    if tokens is None:
        return float(np.count_nonzero(counts, axis=-1).mean())
    return float(union(counts, load.batch, tokens).mean())


def _unions(batch: int, union: float, load: Load | None) -> dict[int, float]:
    """U of the batch, and of smaller ones where steps of the batch say it."""
    smaller: dict[int, float] = {}
    if load is not None and load.batch == batch:
        smaller = {tokens: union_of(load, tokens) for tokens in BATCHES if tokens < batch}
    return smaller | {batch: union}


def even_cores(experts: int, dies: int, cores: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return int64 [E] the core of every expert: consecutive experts fill the cores of one die evenly."""
    die_of = np.arange(experts) * dies // experts
    first = np.searchsorted(die_of, np.arange(dies))
    share = np.bincount(die_of, minlength=dies)
    core_of: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        (np.arange(experts) - first[die_of]) * cores // share[die_of]
    )
    return core_of


def _machine(platform: Platform) -> tuple[Node, Gpu]:
    if platform.nearmem is None:
        raise BadInput(
            f"platform {platform.name!r} has no near-memory dies", fix="take one that has: rexpert-pool-35b"
        )
    if platform.gpu is None:
        raise BadInput(
            f"platform {platform.name!r} has no GPU for attention",
            fix="take rexpert-pool-35b, or a file with `base: rexpert-die` and a section gpu",
        )
    return platform.nearmem.node, platform.gpu


def _sizes(platform: Platform, gpu: Gpu, least: int, dies: int, gpus: float) -> tuple[int, float]:
    """Dies and GPUs, those that were not given filled in."""
    pool = platform.nearmem
    assert pool is not None
    own_gpus = 0.0 if dies else pool.gpus
    dies = dies or pool.dies or least
    return dies, gpus or own_gpus or disaggregation.equal_compute_gpus(pool.die, dies, gpu)


def _unit_dies(model: MoEModel, node: Node, mapping: Mapping) -> int:
    """Dies with one unit per shard, of routed and shared experts."""
    experts = model.expert_intermediate_size
    shared = math.ceil(model.shared_experts * model.shared_intermediate_size / experts)
    units = len(model.moe_layers) * (model.experts + shared) * mapping.folding.shards
    return math.ceil(units / node.package.die.units.count)


def _link_bytes(model: MoEModel, mapping: Mapping, batch: int, order: Order) -> float:
    """Bytes that all dies send each other in a step."""
    phi = reduction.shares(mapping, order)
    token = phi.package_bytes(model.hidden_size) + phi.outer_bytes(model.hidden_size)
    return len(model.moe_layers) * mapping.dies * batch * token


def _routed(model: MoEModel, node: Node, order: Order, load: Load) -> tuple[Demand, ...]:
    from .die_traffic import link_bytes, multicasts

    die, mapping = node.package.die, reduction.map_layer(model, node)
    if not die.is_tiled:
        return ()
    network = die.network()
    core_of = even_cores(model.experts, mapping.expert_dies, die.cores)
    links = link_bytes(load, core_of, network, mapping, order)
    # Dies of one layer run side by side: as far as multicasts go they are one die with all their cores; the
    # shards of an expert on one die are as many experts with the same tokens.
    everywhere = core_of + die.cores * (np.arange(model.experts) * mapping.expert_dies // model.experts)
    shared = multicasts(
        load.counts().repeat(mapping.die_shards, axis=-1),
        everywhere.repeat(mapping.die_shards),
        die.cores * mapping.expert_dies,
        die.core,
        die.core.unit.tile_tokens,
    )
    named = ((shared.p99, "p99"), (float(shared.peak), "peak"))
    return (
        links.demand(mapping, die.link_bytes_per_s),
        *(replace(shared.demand(die.core, streams), level=f"core mesh, {name}") for streams, name in named),
    )
