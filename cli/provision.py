"""`moeplan provision`: pools of near-memory dies and GPUs that serve a model, and what their links carry."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import UsageError
from . import parameters
from .console import note, show, show_json, table, warn
from .options import LONGEST_CONTEXT

if TYPE_CHECKING:
    from rich.table import Table

    from ..hardware.platform import Platform
    from ..schedule.provision import Provision
    from ..schedule.reduction import Demand, Depth
    from ..workload.load import Load
    from ..workload.model import MoEModel

_WHAT, _POOL, _ROUTING, _OUTPUT = "What to serve", "On what", "How tokens choose", "What to print"
_POOLS = {
    "qwen3.5-35b-a3b": "rexpert-pool-35b",
    "qwen3.5-397b-a17b": "rexpert-pool-397b",
    "glm-5.2": "rexpert-pool-glm",
}
_ANY_POOL = "rexpert-pool-35b"
#: Decode steps to count on, and tokens of all of them where nobody says how many; as many take seconds.
_STEPS, _STEPS_TOKENS = 8, 1 << 15
#: Of a step: far beyond where all experts of a model are active, and drawn in less than a minute.
_LARGEST_BATCH = 1 << 14

_Model = Annotated[str, parameters.model(_WHAT)]
_Batch = Annotated[
    int, typer.Option(min=1, max=_LARGEST_BATCH, help="Requests of a decode step.", rich_help_panel=_WHAT)
]
_Context = Annotated[
    int,
    typer.Option(
        min=1, max=LONGEST_CONTEXT, help="Tokens that each request attends to.", rich_help_panel=_WHAT
    ),
]
_TpotTarget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Find the smallest pools whose decode step takes no longer, as in 2ms.",
        rich_help_panel=_WHAT,
    ),
]

_Platform = Annotated[
    str | None,
    parameters.platform(_POOL, which=" with dies and GPU (default: ReXpert's pool for the model)"),
]
_Dies = Annotated[
    int | None, typer.Option(min=1, help="Dies (default: of the platform).", rich_help_panel=_POOL)
]
_Gpus = Annotated[
    float | None,
    typer.Option(help="GPUs (default: of the platform, else of the dies' peak).", rich_help_panel=_POOL),
]
_Order = Annotated[
    Literal["ep-first", "tp-first"],
    typer.Option(help="What partial sums are added over first.", rich_help_panel=_POOL),
]
_Attention = Annotated[
    Literal["published", "checkpoint"],
    typer.Option(
        help="Every layer caches all tokens (ReXpert), or what the model's configuration says.",
        rich_help_panel=_POOL,
    ),
]

_Trace = Annotated[
    Path | None,
    parameters.trace(_ROUTING, help="Routing trace (.parquet; default: synthetic, fitted where known)."),
]
_Union = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        help="Experts of a layer that the batch activates (default: counted).",
        rich_help_panel=_ROUTING,
    ),
]
_Steps = Annotated[
    int | None,
    parameters.steps(_ROUTING, help="Decode steps to count on (default: 8, fewer of many requests)."),
]
_Seed = Annotated[int, parameters.seed("Of the steps.", _ROUTING)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def provision(
    model: _Model,
    batch: _Batch,
    context: _Context,
    tpot_target: _TpotTarget = None,
    platform: _Platform = None,
    dies: _Dies = None,
    gpus: _Gpus = None,
    order: _Order = "ep-first",
    attention: _Attention = "published",
    trace: _Trace = None,
    union: _Union = None,
    steps: _Steps = None,
    seed: _Seed = 0,
    json: _Json = False,
) -> None:
    """Provision near-memory dies for experts and GPUs for attention (ReXpert).

    A step gives each request one token. Pipelined, TPOT is the longer of the two stages; GPUs alone take
    their sum. Demands are those of one layer while the arrays stream by once.
    """
    from ..hardware.platform import load_platform
    from ..hardware.units import TIME, parse
    from ..schedule import provision as pool
    from ..workload.model import load_model

    shapes = load_model(model)
    name = platform or _POOLS.get(shapes.name, _ANY_POOL)
    target_s = None if tpot_target is None else parse(tpot_target, TIME)
    if target_s == 0.0:
        raise UsageError("a TPOT of 0 s cannot be met", where="--tpot-target", fix="for example 2ms")
    if gpus is not None and not 0 < gpus < math.inf:
        raise UsageError(f"attention cannot run on {gpus} GPUs", where="--gpus", allowed="more than 0")
    if union is not None:
        pool.check_union(shapes, batch, union)
    machine = load_platform(name)
    known = platform is not None or shapes.name in _POOLS
    least = 0 if known or machine.nearmem is None else _least_dies(shapes, machine)
    pool.check_pool(shapes, machine, dies or least)
    steps = steps or default_steps(batch)
    if batch * steps > _STEPS_TOKENS:
        note(f"counting {steps} steps of {batch} tokens: fewer --steps are faster")
    load = _steps(shapes, trace, batch, steps, seed)
    if not json:
        note(load.note)
    found = pool.provision(
        shapes,
        machine,
        batch=batch,
        context=context,
        union=pool.union_of(load) if union is None else union,
        order=order,
        load=load,
        dies=dies or least,
        gpus=gpus or 0.0,
        target_s=target_s,
        account=attention,
    )
    if found.gpus < found.least_gpus:
        warn(f"weights and caches of attention fill {found.least_gpus} GPUs, more than {found.gpus:.4g}")
    _warn_of_pace(found)
    if json:
        show_json({"platform": machine.name, "attention": attention, **answer(found), "routing": load.note})
    else:
        _show(found, machine.name)


def default_steps(batch: int) -> int:
    """Return the decode steps to count on where nobody says how many."""
    return max(1, min(_STEPS, _STEPS_TOKENS // batch))


def _warn_of_pace(found: Provision) -> None:
    """Say what a target leaves out that is shorter than one pass of a layer's arrays."""
    from ..hardware.units import format_s

    pools, layer_s = found.pools, found.mapping.layer_s
    if pools is None or pools.target_s >= layer_s:
        return
    warn(
        f"{format_s(pools.target_s)} is a pace: one layer's arrays take {format_s(layer_s)} to stream by on "
        f"any number of dies, so that {found.waves:,} batches of {found.batch} requests have to be under way "
        "at once; their caches, and transfers between devices, are not counted"
    )


def _least_dies(model: MoEModel, platform: Platform) -> int:
    from ..schedule.decode_step import ffn_bytes

    assert platform.nearmem is not None
    return platform.nearmem.die.dies_for(ffn_bytes(model))


def _steps(model: MoEModel, trace: Path | None, batch: int, steps: int, seed: int) -> Load:
    from .traffic import Replay, read_traffic

    if trace is not None:
        return read_traffic(trace, model, Replay(batch, steps, seed, 0.0)).profile
    from ..workload.routing_presets import routing_preset, routing_preset_names
    from ..workload.synthetic import synthesize_load

    routing = routing_preset(model.name) if model.name in routing_preset_names() else None
    return synthesize_load(model, batch=batch, steps=steps, seed=seed, routing=routing)


def answer(found: Provision) -> dict[str, Any]:
    """What `--json` prints of a pool."""
    stages = found.stages
    times = {
        "attention_s": stages.attention_s,
        "ffn_s": stages.ffn_s,
        "tpot_s": stages.tpot_s,
        "wave_s": found.wave_s,
        "ffn_gpu_s": stages.ffn_gpu_s,
        "homogeneous_s": stages.homogeneous_s,
        "checkpoint_attention_s": found.checkpoint.attention_s,
    }
    return {
        "model": found.model.name,
        "batch": found.batch,
        "context": found.context,
        "union": found.union,
        "dies": found.dies,
        "gpus": found.gpus,
        "least_dies": found.least_dies,
        "unit_dies": found.unit_dies,
        "least_gpus": found.least_gpus,
        "step": times,
        "per_token": {name: stages.per_token(seconds) for name, seconds in times.items()},
        "gain": stages.gain,
        "order": found.demands.order,
        "penalty": found.demands.penalty,
        "mapping": _mapping(found),
        "demands": _demands(found),
        "depths": [_depth(depth) for depth in found.depths],
        "ratios": _ratios(found),
        "energy": asdict(found.energy),
        "target": _target(found),
    }


def _mapping(found: Provision) -> dict[str, Any]:
    mapping = found.mapping
    return {
        "shards": mapping.folding.shards,
        "dies_per_layer": mapping.dies,
        "layer_s": mapping.layer_s,
        "utilization": mapping.folding.utilization,
    }


def _ratios(found: Provision) -> list[dict[str, Any]]:
    return [
        {
            "batch": row.batch,
            "context": row.context,
            "gpus": _finite(row.gpus),
            "ratio": _finite(row.ratio),
        }
        for row in found.ratios
    ]


def _demands(found: Provision) -> list[dict[str, Any]]:
    return [
        {
            "level": demand.level,
            "bytes_per_s": demand.bytes_per_s,
            "provision_bytes_per_s": demand.provision_bytes_per_s,
            "met": demand.is_met,
        }
        for demand in found.demands.all
    ]


def _depth(depth: Depth) -> dict[str, Any]:
    return asdict(depth) | {"layer_s": _finite(depth.layer_s)}


def _target(found: Provision) -> dict[str, Any] | None:
    pools = found.pools
    if pools is None:
        return None
    sizes = {"dies": pools.dies, "gpus": pools.gpus, "homogeneous_gpus": pools.homogeneous}
    return {
        "tpot_target_s": pools.target_s,
        "tpot_s": pools.tpot_s,
        "batches_under_way": found.waves,
        **{name: size.devices for name, size in sizes.items()},
        "limits": {name: size.limit for name, size in sizes.items()},
        "times_s": {name: size.seconds for name, size in sizes.items()},
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: null says that there is no value."""
    return value if math.isfinite(value) else None


def _show(found: Provision, platform: str) -> None:
    energy = found.energy
    show(
        f"{found.model.name} on {platform}: {found.dies} dies and {found.gpus:.4g} GPUs, "
        f"batch {found.batch}, context {found.context}, "
        f"{found.union:.1f} of {found.model.experts} experts active",
        _stage_table(found),
        f"gain of the pace over GPUs alone: {found.stages.gain:.2f} x (ReXpert's TPOT is the pace per token)",
        *_dies(found),
        "",
        table(
            (f"level ({found.demands.order})", "demand GB/s", "provision GB/s", "met"),
            [_level(demand) for demand in found.demands.all],
        ),
        f"tp-first moves {found.demands.penalty:.2f} x the bytes of ep-first between dies of a package",
        "",
        _depth_table(found),
        _ratio_table(found),
        f"experts: {energy.dynamic_j * 1e6:.1f} uJ per token ({energy.weights_j * 1e6:.1f} reading weights, "
        f"{energy.weights_hbm_j * 1e6:.1f} from HBM); {energy.dies_w / 1e3:.2f} kW of dies, "
        f"{energy.gpus_w / 1e3:.2f} kW of GPUs",
        *_smallest(found),
    )


def _stage_table(found: Provision) -> Table:
    from ..hardware.units import format_s

    stages = found.stages
    times = (
        ("attention", stages.attention_s),
        ("experts on dies, all layers at once", stages.ffn_s),
        ("pace of the pipeline", stages.tpot_s),
        ("one step from end to end, at least", found.wave_s),
        ("experts on the GPUs instead", stages.ffn_gpu_s),
        ("GPUs alone", stages.homogeneous_s),
        ("attention of the checkpoint", found.checkpoint.attention_s),
    )
    rows = [(name, format_s(seconds), format_s(stages.per_token(seconds))) for name, seconds in times]
    return table(("", "step", "per token"), rows)


def _depth_table(found: Provision) -> Table:
    from ..hardware.units import format_s

    rows = [
        (
            f"{depth.columns // 1024}K",
            depth.shards or "no slice fits",
            format_s(depth.layer_s) if depth.shards else "",
            f"{depth.utilization:.0%}" if depth.shards else "",
            f"{depth.package_bytes_per_s / 1e9:.1f}" if depth.shards else "",
            depth.dies,
        )
        for depth in found.depths
    ]
    return table(("array depth", "shards", "layer", "used", "D2D GB/s", "dies"), rows)


def _ratio_table(found: Provision) -> Table:
    contexts = sorted({row.context for row in found.ratios})
    batches = sorted({row.batch for row in found.ratios})
    at = {(row.batch, row.context): f"{row.ratio:.2f}" for row in found.ratios}
    rows = [(str(context), *(at[batch, context] for batch in batches)) for context in contexts]
    return table(("GPUs per die in balance: context", *(f"batch {batch}" for batch in batches)), rows)


def _smallest(found: Provision) -> list[str]:
    from ..hardware.units import format_s

    if found.pools is None:
        return []
    pools = found.pools
    return [
        f"smallest pools for {format_s(pools.target_s)}: {pools.dies.devices} dies ({pools.dies.limit}), "
        f"{pools.gpus.devices} GPUs ({pools.gpus.limit}); GPUs alone: {pools.homogeneous.devices} "
        f"({pools.homogeneous.limit}); {found.waves:,} batches under way at once"
    ]


def _dies(found: Provision) -> list[str]:
    return [
        f"experts fill {found.least_dies} dies by bytes, {found.unit_dies} with a unit for every shard "
        f"({found.mapping.folding.shards} per expert, {found.mapping.folding.utilization:.0%} of a unit)"
    ]


def _level(demand: Demand) -> tuple[str, ...]:
    return (
        demand.level,
        f"{demand.bytes_per_s / 1e9:.2f}",
        f"{demand.provision_bytes_per_s / 1e9:.1f}",
        "yes" if demand.is_met else "no",
    )
