"""What `moeplan prune` does between its options and its answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..common.errors import BadInput
from .console import note
from .options import parse_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware.platform import Platform
    from ..schedule.calibration import Measure, Point
    from ..schedule.moe_time import MoeTimer
    from ..workload.cognitive import TokenRule
    from ..workload.model import MoEModel
    from ..workload.pruning import PruningSettings
    from ..workload.trace import RoutingTrace

VariantName = Literal["static", "dynamic", "boost", "all"]


@dataclass(frozen=True)
class Window:
    """The decode steps to replay, and the share of the trace that is held out for them."""

    batch: int
    steps: int
    seed: int
    held_out: float


@dataclass(frozen=True, eq=False)
class Bench:
    """Profile and held-out steps on one placement; `whole` is the trace that is written pruned."""

    whole: RoutingTrace
    profile: Measure
    held_out: Measure
    timers: Mapping[int, MoeTimer]
    placement: str


def read(
    path: Path,
    model: MoEModel,
    layers: str | None,
    assume_weights: float | None,
    think_share: float | None,
) -> RoutingTrace:
    """Read the trace, or some layers of it, with weights and phases as assumed.

    Raises BadInput where it is not of the model, or has no weights.
    """
    from ..workload.pruning import with_phase, with_rank_weights
    from ..workload.trace import check_model, read_trace

    trace = read_trace(path)
    check_model(trace, model)
    if layers is not None:
        wanted = parse_layers(layers, trace.layers, "the trace")
        at = [trace.layers.index(layer) for layer in wanted]
        weights = None if trace.weights is None else trace.weights[:, at]
        trace = replace(trace, experts=trace.experts[:, at], weights=weights, layers=wanted)
    if assume_weights is not None:
        trace = with_rank_weights(trace, assume_weights)
        note("router weights are assumed from the order of choices: kept mass says nothing about the model")
    if think_share is not None:
        trace = with_phase(trace, think_share)
        note("the think phase is assumed, not recorded")
    if trace.weights is None:
        raise BadInput(
            f"trace {str(path)!r} has no router weights, by which experts would be dropped",
            where=trace.source,
            fix="record them, or assume some by rank with --assume-weights 0.8",
        )
    return trace


def prepare(
    whole: RoutingTrace,
    model: MoEModel,
    platform: Platform,
    plan: Path | None,
    rule: TokenRule,
    how: Window,
) -> Bench:
    """Replay both parts of the trace, and place the experts.

    Raises BadInput where trace and plan do not belong together.
    """
    from ..placement.plan import read_plan
    from ..schedule.calibration import Measure
    from ..schedule.moe_time import lpt_timers, plan_timers
    from ..workload.cognitive import cognitive_experts
    from ..workload.replay import split
    from ..workload.rows import replay_rows

    parts = (whole, whole)
    if how.held_out != 0.0:
        parts = split(whole, how.held_out, seed=how.seed)
    profile, held_out = (replay_rows(part, batch=how.batch, steps=how.steps, seed=how.seed) for part in parts)
    if plan is None:
        timers = lpt_timers(model, platform, profile.load, whole.layers)
    else:
        timers = plan_timers(read_plan(plan), model, platform, profile.load, whole.layers)

    def favoured(count: int) -> Any:
        return cognitive_experts(parts[0], count, rule.marks(parts[0]))

    return Bench(
        whole,
        Measure(profile, timers, favoured, model.layers),
        Measure(held_out, timers, favoured, model.layers),
        timers,
        "lpt on the profile part" if plan is None else str(plan),
    )


def apply(bench: Bench, settings: PruningSettings, output: Path | None) -> dict[str, Any]:
    """Prune with given settings; the answer holds figures before and after on held-out steps."""
    from ..workload.pruning import PruningSettings

    before = bench.held_out.point(PruningSettings())
    after = bench.held_out.point(settings)
    _write(bench, settings, output)
    return {
        "settings": asdict(settings),
        "kept_mass": after.kept_mass,
        "experts_per_token": after.experts_per_token,
        "experts_per_token_before": before.experts_per_token,
        "j_before_s": before.j_s,
        "j_after_s": after.j_s,
        "speed_up": before.j_s / after.j_s,
        "dropped_by_weight": after.dropped_by_weight,
        "dropped_by_congestion": after.dropped_by_congestion,
        "pruned_trace": output and str(output),
    }


def calibrated(bench: Bench, variant: VariantName, keep: float | None, output: Path | None) -> dict[str, Any]:
    """Search the grid on the profile part; the answer holds the front, measured on both parts."""
    from ..schedule.calibration import VARIANTS, calibrate, choose, grid
    from ..workload.pruning import PruningSettings

    names = VARIANTS if variant == "all" else (variant,)
    candidates = [s for name in names for s in grid(name, bench.whole.top_k, bench.whole.num_experts)]
    front = calibrate(bench.profile, candidates)
    held_out = [bench.held_out.point(point.settings) for point in front]
    chosen = None if keep is None else choose(front, keep)
    if chosen is not None:
        _write(bench, chosen.settings, output)
    return {
        "variant": variant,
        "tried": len(candidates),
        "j_before_s": bench.held_out.point(PruningSettings()).j_s,
        "front": [_both(*pair) for pair in zip(front, held_out, strict=True)],
        "chosen": chosen and _both(chosen, bench.held_out.point(chosen.settings)),
        "pruned_trace": output and str(output),
    }


def _both(profile: Point, held_out: Point) -> dict[str, Any]:
    entry = profile.to_dict()
    other = held_out.to_dict()
    del other["settings"]
    return {**entry, "held_out": other}


def _write(bench: Bench, settings: PruningSettings, output: Path | None) -> None:
    """Write the whole trace pruned; with congestion, the held-out steps, whose tokens met on the channels."""
    from ..schedule.moe_time import layer_lives
    from ..workload.pruning import prune as prune_trace
    from ..workload.trace import write_trace

    if output is None:
        return
    subject, lives = bench.whole, None
    if settings.congestion:
        subject, lives = bench.held_out.replayed.taken(), layer_lives(bench.timers)
        note("congestion is of tokens that decode together: the measured decode steps are written")
    favoured = bench.held_out.cognitive
    done = prune_trace(
        subject,
        settings,
        cognitive=favoured(settings.cognitive) if favoured and settings.cognitive else None,
        lives=lives,
        model_layers=bench.held_out.model_layers,
    )
    write_trace(done.trace, output)
