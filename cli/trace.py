"""Make and look at routing traces."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import BadInput, UsageError
from . import parameters
from .console import show, show_json, table
from .options import check_outputs, parse_layers
from .trace_calibrate import calibrate
from .trace_import import import_recording
from .trace_record import record
from .trace_text import content, summary
from .verbs import Verb
from .watching import watch

if TYPE_CHECKING:
    from ..workload.load import Load
    from ..workload.stats import LoadStatistics, TraceStatistics
    from ..workload.stream import TraceStream

_UNIONS = (1, 8, 64)
#: A choice of a few experts packs into half a byte, one of 256 into about one.
_PACKED_BYTES = 0.4
_KNOBS = "Routing (strengths are in log space, 0 switches a part off)"

_Tokens = Annotated[int, typer.Option(min=1, help="Tokens of the trace.")]
_Requests = Annotated[int, typer.Option(min=1, help="Requests that the tokens are shared among.")]
_SynthSeed = Annotated[int, parameters.seed(None)]
_Layers = Annotated[str | None, typer.Option(help="Layers to draw, as in 3-5,8 (default: all MoE layers).")]

_Preset = Annotated[
    str | None,
    typer.Option(
        help="Fitted routing: a model's name, or a file of trace calibrate. Options below override it.",
        rich_help_panel=_KNOBS,
    ),
]
_Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Requests that run side by side; divides --requests (default: all).",
        rich_help_panel=_KNOBS,
    ),
]
_Skew = Annotated[float, typer.Option(help="Spread of the experts' popularity.", rich_help_panel=_KNOBS)]
_SkewSpread = Annotated[float, typer.Option(help="Spread of the skew over layers.", rich_help_panel=_KNOBS)]
_Head = Annotated[
    float, typer.Option(help="Factor on the popularity of the likelier half.", rich_help_panel=_KNOBS)
]
_Ceiling = Annotated[
    float,
    typer.Option(help="Standard deviations that no popularity exceeds (0: none).", rich_help_panel=_KNOBS),
]
_ColdTail = Annotated[
    float, typer.Option(help="Share of experts that are hardly used.", rich_help_panel=_KNOBS)
]
_ColdDepth = Annotated[
    float, typer.Option(help="By how much those are less popular.", rich_help_panel=_KNOBS)
]
_ColdSpread = Annotated[
    float, typer.Option(help="Spread of the share of cold experts over layers.", rich_help_panel=_KNOBS)
]
_Drift = Annotated[float, typer.Option(help="Spread of popularity over steps.", rich_help_panel=_KNOBS)]
_DriftMemory = Annotated[
    float, typer.Option(help="Correlation of popularity from step to step.", rich_help_panel=_KNOBS)
]
_Persistence = Annotated[
    float, typer.Option(help="Strength of a request's own taste.", rich_help_panel=_KNOBS)
]
_Coactivation = Annotated[
    float, typer.Option(help="Pull of a token towards one group of experts.", rich_help_panel=_KNOBS)
]
_GroupSize = Annotated[int, typer.Option(help="Experts of such a group.", rich_help_panel=_KNOBS)]
_Even = Annotated[
    bool, typer.Option(help="Evenly spaced popularities, in random order.", rich_help_panel=_KNOBS)
]
_Sampler = Annotated[
    str,
    typer.Option(
        help="race, or draws (the same distribution, several times faster).", rich_help_panel=_KNOBS
    ),
]

_Trace = Annotated[Path, typer.Argument(help="A trace (.parquet), or a folder of its parts.")]
_Batch = Annotated[int, parameters.batch()]
_Steps = Annotated[int, parameters.steps(help="Decode steps to replay.")]
_ReplaySeed = Annotated[int, parameters.seed("Of the replay.")]


def app() -> typer.Typer:
    """The verbs of `moeplan trace`."""
    verbs = typer.Typer(no_args_is_help=True)
    verbs.command("import", cls=Verb)(import_recording)
    verbs.command(cls=Verb)(record)
    verbs.command(cls=Verb)(synth)
    verbs.command(cls=Verb)(stats)
    verbs.command(cls=Verb)(calibrate)
    return verbs


def synth(
    context: typer.Context,
    model: parameters.ModelName,
    tokens: _Tokens,
    requests: _Requests,
    output: parameters.TraceOutput,
    seed: _SynthSeed = 0,
    layers: _Layers = None,
    preset: _Preset = None,
    concurrency: _Concurrency = None,
    skew: _Skew = 0.9,
    skew_spread: _SkewSpread = 0.2,
    head: _Head = 1.0,
    ceiling: _Ceiling = 0.0,
    cold_tail: _ColdTail = 0.1,
    cold_depth: _ColdDepth = 2.0,
    cold_spread: _ColdSpread = 0.0,
    drift: _Drift = 0.3,
    drift_memory: _DriftMemory = 0.98,
    persistence: _Persistence = 1.5,
    coactivation: _Coactivation = 3.0,
    group_size: _GroupSize = 8,
    even: _Even = False,
    sampler: _Sampler = "race",
) -> None:
    """Draw a synthetic trace; the same seed gives the same bytes."""
    from ..workload.model import load_model
    from ..workload.routing_presets import find_routing
    from ..workload.stream import open_trace
    from ..workload.synthetic import SyntheticRouting, synthesize_blocks
    from ..workload.trace_writer import write_blocks

    side_by_side = _side_by_side(tokens, requests, concurrency)
    shapes = load_model(model)
    if layers is not None:
        shapes = replace(shapes, moe_layers=parse_layers(layers, shapes.moe_layers, shapes.name))
    check_outputs({"--output": output}, {"--model": model, "--preset": preset}, (".parquet",))
    knobs = _chosen_knobs(context, every=preset is None)
    routing = replace(
        SyntheticRouting() if preset is None else find_routing(preset),
        **{**knobs, "tokens_per_request": -(-tokens // requests), "concurrency": side_by_side},
    )
    _refuse_beyond_disk(tokens * len(shapes.moe_layers) * shapes.top_k, output)
    blocks = synthesize_blocks(shapes, tokens=tokens, seed=seed, routing=routing)
    with watch("drawing", tokens) as on_progress:
        write_blocks(blocks, output, on_block=lambda done: on_progress(done, tokens))
    show(summary(open_trace(output), output))


def _refuse_beyond_disk(choices: int, output: Path) -> None:
    """Raise BadInput before anything is drawn where so many choices cannot fit, however well they pack."""
    needed, free = choices * _PACKED_BYTES, shutil.disk_usage(output.resolve().parent).free
    if needed > free:
        raise BadInput(
            f"a trace of this size takes at least {needed / 1e9:,.0f} GB, {free / 1e9:,.0f} GB are free",
            where=str(output.resolve().parent),
            fix="ask for fewer tokens or layers, or write to a larger disk",
        )


def _chosen_knobs(context: typer.Context, *, every: bool) -> dict[str, Any]:
    """Values of the options that are named like a parameter of the routing: all, or those that were given."""
    from ..workload.synthetic import SyntheticRouting

    names = {field.name for field in fields(SyntheticRouting)} - {"concurrency", "tokens_per_request"}
    sources = {name: context.get_parameter_source(name) for name in names}
    given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    return {name: value for name, value in context.params.items() if name in (names if every else given)}


def _side_by_side(tokens: int, requests: int, concurrency: int | None) -> int:
    """Requests that run at a time. Raises UsageError where they cannot come out as asked."""
    if tokens < requests:
        raise UsageError(f"{tokens} tokens are too few for {requests} requests", fix="raise --tokens")
    if concurrency is None or concurrency == requests:
        return requests
    if requests % concurrency or tokens % requests:
        raise UsageError(
            f"{requests} requests cannot share {tokens} tokens evenly, {concurrency} at a time",
            where="--concurrency",
            allowed="requests a multiple of concurrency, tokens a multiple of requests",
            fix="change one of them, or leave out --concurrency",
        )
    return concurrency


def stats(
    trace: _Trace,
    batch: _Batch = 128,
    steps: _Steps = 64,
    seed: _ReplaySeed = 0,
    json: parameters.Json = False,
) -> None:
    """Show how skewed, persistent and co-activated the routing of a trace is, layer by layer."""
    from ..workload.stats import load_statistics
    from ..workload.stream import open_trace

    read = open_trace(trace)
    load, by_token = _measured(read, batch=batch, steps=steps, seed=seed)
    by_step = load_statistics(load, _UNIONS)
    if json:
        described = {
            "trace": str(trace),
            "model": read.model,
            "layers": list(read.layers),
            "experts": read.num_experts,
            "top_k": read.top_k,
            "source": read.source,
        }
        show_json(
            {**described, "replay": by_step.to_dict() | {"note": load.note}, "tokens": by_token.to_dict()}
        )
        return
    show(
        f"{trace}: {content(read, by_token.requests)}",
        f"{steps} steps of batch {batch}: {load.note}",
        _table(read, by_step, by_token),
    )


def _measured(stream: TraceStream, *, batch: int, steps: int, seed: int) -> tuple[Load, TraceStatistics]:
    """Replay and statistics: of a large trace without holding it, of another one after checking all of it."""
    from ..workload.replay import replay
    from ..workload.scan import stream_statistics
    from ..workload.stats import trace_statistics
    from ..workload.stream_replay import replay_stream

    if not stream.is_large:
        read = stream.read()
        return replay(read, batch=batch, steps=steps, seed=seed), trace_statistics(read)
    with watch("replaying", batch * steps) as on_progress:
        load = replay_stream(stream, batch=batch, steps=steps, seed=seed, on_progress=on_progress)
    with watch("counting", stream.tokens) as on_progress:
        return load, stream_statistics(stream, on_progress=on_progress)


def _table(trace: TraceStream, by_step: LoadStatistics, by_token: TraceStatistics) -> Any:
    figures = {
        "Gini": by_step.gini,
        "hottest/mean": by_step.hottest_over_mean,
        "top-8 share": by_step.top8_share,
        **{f"U({b})": figure for b, figure in by_step.union.items()},
        "persistence": by_step.persistence,
        "overlap": by_token.overlap,
        "pair distance": by_token.pair_distance,
    }
    known = {name: figure for name, figure in figures.items() if figure is not None}
    lifts = {lift.layer: f"{lift.lift:.1f} {lift.experts}" for lift in by_token.top_lifts}
    rows = [
        (str(layer), *(f"{figure.per_layer[i]:.3g}" for figure in known.values()), lifts.get(layer, ""))
        for i, layer in enumerate(trace.layers)
    ]
    mean = ("mean", *(f"{figure.mean:.3g}" for figure in known.values()), "")
    return table(("layer", *known, "top lift (pair)"), [*rows, mean])
