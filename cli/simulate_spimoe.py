"""Decode steps on SPIMOE for `moeplan simulate`: from its options to its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..common.errors import UsageError
from .console import note, show, show_json, table, warn
from .options import parse_layers

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.result import Budget
    from ..schedule.gpu_decode import GpuDecode
    from ..schedule.spimoe import DecodeRun, Features, Partition
    from ..schedule.spimoe_run import Outcome, Placement, Traffic
    from ..workload.model import MoEModel
    from ..workload.pruning import PruningSettings
    from ..workload.trace import RoutingTrace


@dataclass(frozen=True, eq=False)
class Job:
    """What to simulate, and how; see the options of the verb."""

    model: MoEModel
    platform: Platform
    gpu: Platform
    trace: Path
    batch: int
    context: int
    steps: int
    held_out: float
    layers: str | None
    seed: int
    plan: Path | None
    solver: str
    budget: Budget
    profile_steps: int
    layout: Literal["rows", "best"]
    alpha: float | None
    """None: no adaptive routing."""
    k_min: int | None
    assume_weights: float | None
    partition: Partition
    sub_batches: int
    sparse: bool
    eviction: bool
    spread: Literal["heads", "chunks"]
    ring: bool


def run(job: Job, json: bool) -> None:
    """Simulate and print."""
    from ..placement.registry import find
    from ..schedule.kv_cache import platform_capacity
    from ..schedule.spimoe_run import simulate

    features = _features(job)
    # Before a trace is read and minutes of planning.
    if job.plan is None:
        find("channels", job.solver)
    peak = features.cached(job.context).peak
    where = f"context {job.context} on {job.platform.name}"
    platform_capacity(job.model, job.platform).require(job.batch, peak, where=where)
    trace = _trace(job)
    traffic = _traffic(job, trace)
    pruning = _pruning(job, trace)
    placement = _placement(job, traffic.planned.load)
    outcome = simulate(
        job.model,
        job.platform,
        traffic,
        placement,
        job.context,
        features=features,
        ring=job.ring,
        pruning=pruning,
    )
    plain = _switched_off(job, traffic, placement)
    gpu = _on_gpu(job, outcome)
    if json:
        show_json(_answer(job, outcome, placement, gpu, pruning, plain))
    else:
        _show(job, outcome, placement, gpu, plain)


def _features(job: Job) -> Features:
    from ..schedule.kv_cache import Eviction
    from ..schedule.sparse_attention import BlockSparse
    from ..schedule.spimoe import Features

    return Features(
        partition=job.partition,
        sub_batches=job.sub_batches,
        sparse=BlockSparse() if job.sparse else None,
        eviction=Eviction() if job.eviction else None,
        spread=job.spread,
    )


def _switched_off(job: Job, traffic: Traffic, placement: Placement) -> DecodeRun | None:
    """The same steps with every switch off; None where the whole cache of a request has no room."""
    from ..schedule.kv_cache import platform_capacity
    from ..schedule.spimoe import Features
    from ..schedule.spimoe_run import simulate

    if not platform_capacity(job.model, job.platform).fits(job.batch, job.context):
        return None
    features = Features(partition="none", sparse=None, eviction=None, spread=job.spread)
    return simulate(
        job.model, job.platform, traffic, placement, job.context, features=features, ring=False
    ).run


def _trace(job: Job) -> RoutingTrace:
    """The trace, of the layers that are asked for and placed."""
    from ..placement.plan import read_plan
    from ..schedule.spimoe_run import of_layers
    from ..workload.pruning import with_rank_weights
    from ..workload.trace import check_model, read_trace

    trace = read_trace(job.trace)
    check_model(trace, job.model)
    if job.layers is not None:
        trace = of_layers(trace, parse_layers(job.layers, trace.layers, "the trace"))
    if job.plan is not None:
        trace = of_layers(trace, [entry.layer for entry in read_plan(job.plan).layers])
    if job.assume_weights is not None:
        trace = with_rank_weights(trace, job.assume_weights)
        note("router weights are assumed from the order of choices: kept mass says nothing about the model")
    return trace


def _traffic(job: Job, trace: RoutingTrace) -> Traffic:
    """Steps to plan on and to run; says what stands for what."""
    from ..schedule.spimoe_run import prepare

    traffic = prepare(
        trace,
        batch=job.batch,
        steps=job.steps,
        profile_steps=job.profile_steps,
        held_out=job.held_out,
        seed=job.seed,
    )
    note(traffic.simulated.load.note)
    unrecorded = sorted(set(job.model.moe_layers) - set(trace.layers))
    if unrecorded:
        note(
            f"{len(unrecorded)} MoE layers are not run: each takes the mean of the other {len(trace.layers)}"
        )
    return traffic


def _pruning(job: Job, trace: RoutingTrace) -> PruningSettings | None:
    from ..workload.pruning import PruningSettings

    if job.alpha is None:
        return None
    k_min = job.k_min if job.k_min is not None else (job.model.top_k + 1) // 2
    if k_min > job.model.top_k:
        raise UsageError(f"k_min is {k_min}", where="--k-min", allowed=f"1 to {job.model.top_k}, the top-k")
    settings = PruningSettings(uniform=job.alpha, k_min=(k_min, k_min, k_min), congestion=True)
    if trace.weights is None:
        note("the trace has no router weights: adaptive routing is off (--assume-weights RATIO assumes some)")
        return None
    return settings


def _placement(job: Job, profile: Any) -> Placement:
    from ..placement.channels.document import ChannelPlan
    from ..placement.channels.problem import Settings
    from ..placement.plan import read_plan
    from ..schedule.spimoe_run import place, place_by_plan

    if job.plan is None:
        settings = Settings(layout=job.layout)
        return place(
            job.model, job.platform, profile, job.solver, budget=job.budget, seed=job.seed, settings=settings
        )
    plan = read_plan(job.plan)
    if not isinstance(plan, ChannelPlan):
        raise UsageError(
            f"plan {str(job.plan)!r} is of the family {plan.family}", allowed="channels", fix="plan channels"
        )
    return place_by_plan(plan, job.model, job.platform, profile)


def _on_gpu(job: Job, outcome: Outcome) -> GpuDecode:
    """The same steps on the GPU alone; says where that has no room for them."""
    from ..schedule.gpu_decode import gpu_decode

    gpu = gpu_decode(job.model, job.gpu, outcome.load.counts(), [job.context] * job.batch)
    if not gpu.fits:
        warn(
            f"{job.gpu.name} has no room for {gpu.memory_bytes / 1e9:.1f} GB of weights and caches: "
            "its time is that of one with more memory"
        )
    return gpu


def _answer(
    job: Job,
    outcome: Outcome,
    placement: Placement,
    gpu: GpuDecode,
    pruning: PruningSettings | None,
    plain: DecodeRun | None,
) -> dict[str, Any]:
    """What `--json` prints."""
    run = outcome.run
    return {
        "model": job.model.name,
        "platform": job.platform.name,
        "family": "spimoe",
        "batch": job.batch,
        "context": job.context,
        "steps": len(run.step_s),
        "layers_run": list(outcome.load.layers),
        "placement": placement.source,
        "tpot_s": run.tpot_s,
        "tokens_per_s": run.tokens_per_s,
        "parts": {f"{name}_s": seconds for name, seconds in run.parts.items()},
        "serial_s": run.serial_s,
        "overlapped_s": run.overlapped_s,
        "attention_side_s": run.mean("attention_s"),
        "expert_side_s": run.mean("moe_s"),
        "pipeline_efficiency": run.mean("efficiency"),
        "bottleneck_share": run.mean("bottleneck_share"),
        "sub_batches": run.mean("sub_batches"),
        "hit_rate": outcome.hit_rate,
        "features": _feature_names(job, pruning),
        "pruning": outcome.pruned
        and {
            "alpha": job.alpha,
            "congestion": True,
            "kept_mass": outcome.pruned.kept_mass,
            "experts_per_token": outcome.pruned.experts_per_token,
        },
        "kv_cache": _kv_cache(run, job.batch),
        "baseline": _baseline(job.gpu.name, gpu),
        "speed_up": gpu.total_s / run.tpot_s,
        "switched_off": plain and {"tpot_s": plain.tpot_s, "speed_up": gpu.total_s / plain.tpot_s},
    }


def _feature_names(job: Job, pruning: PruningSettings | None) -> dict[str, Any]:
    return {
        "partition": job.partition,
        "sparse": job.sparse,
        "eviction": job.eviction,
        "kv_spread": job.spread,
        "ring": job.ring,
        "pruning": pruning is not None,
    }


def _kv_cache(run: DecodeRun, batch: int) -> dict[str, int]:
    return {
        "cached_tokens": run.cached.resident,
        "peak_tokens": run.cached.peak,
        "evicted_tokens": run.cached.evicted,
        "capacity_tokens": run.capacity.tokens(batch),
        "capacity_tokens_per_request": run.capacity.tokens_each(batch),
    }


def _baseline(name: str, gpu: GpuDecode) -> dict[str, Any]:
    parts = ("attention_s", "experts_s", "routing_s", "norms_s", "head_s")
    return {
        "platform": name,
        "tpot_s": gpu.total_s,
        "tokens_per_s": gpu.tokens_per_s,
        "parts": {part: getattr(gpu, part) for part in parts},
        "memory_bytes": gpu.memory_bytes,
        "fits": gpu.fits,
    }


def _show(job: Job, outcome: Outcome, placement: Placement, gpu: GpuDecode, plain: DecodeRun | None) -> None:
    from ..hardware.units import format_s
    from ..schedule.stages import STAGES

    run = outcome.run
    rows: list[tuple[str, ...]] = [
        (
            stage.name,
            stage.substrate,
            format_s(run.parts[stage.name]),
            _share(run.parts[stage.name], run.serial_s),
        )
        for stage in STAGES
    ]
    rows.append(("head", "HBM-PIM", format_s(run.parts["head"]), _share(run.parts["head"], run.serial_s)))
    title = (
        f"{job.model.name} on {job.platform.name}, batch {job.batch}, context {job.context}, "
        f"{placement.source}: all layers of a step, {_operators()}"
    )
    show(table(("stage", "runs on", "time", "share"), rows, left=2, title=title))
    lines = [
        f"time per token:      {format_s(run.tpot_s)} ({run.tokens_per_s:,.0f} tokens/s); the stages in "
        f"sequence take {format_s(run.serial_s)}, {format_s(run.overlapped_s)} saved by overlap",
        f"pipeline:            {run.mean('sub_batches'):.1f} sub-batches, efficiency "
        f"{run.mean('efficiency'):.1%} (attention {format_s(run.mean('attention_s'))}, experts "
        f"{format_s(run.mean('moe_s'))})",
        f"keys and values:     {run.cached.resident} of {job.context} tokens a request; room for "
        f"{run.capacity.tokens_each(job.batch)} at this batch",
        f"{job.gpu.name + ':':<21}{format_s(gpu.total_s)} ({gpu.tokens_per_s:,.0f} tokens/s), "
        f"{gpu.total_s / run.tpot_s:.2f} times as long",
    ]
    if plain is not None:
        lines.append(
            f"all switched off:    {format_s(plain.tpot_s)} ({plain.tokens_per_s:,.0f} tokens/s), beside "
            f"which {job.gpu.name} takes {gpu.total_s / plain.tpot_s:.2f} times as long"
        )
    if outcome.pruned is not None:
        lines.insert(
            1,
            f"adaptive routing:    {outcome.pruned.experts_per_token:.2f} of {job.model.top_k} experts a "
            f"token and {outcome.pruned.kept_mass:.1%} of routing mass stay; dropped by weight (alpha "
            f"{job.alpha:g}) and from congested channels",
        )
    show(*lines)


def _operators() -> str:
    """What the rows are: stages of operators, transfers between them, and the head."""
    from ..schedule.stages import STAGES, Substrate

    transfers = sum(stage.substrate is Substrate.NOC for stage in STAGES)
    return f"{len(STAGES) - transfers} operator stages, {transfers} transfers over the NoC, and the head"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}"
