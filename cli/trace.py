"""Make and look at routing traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import UsageError
from .console import show, show_json, table
from .options import check_outputs, parse_layers, show_layers

if TYPE_CHECKING:
    from ..workload.stats import LoadStatistics, TraceStatistics
    from ..workload.trace import RoutingTrace

_UNIONS = (1, 8, 64)
_KNOBS = "Routing (strengths are in log space, 0 switches a part off)"

_Model = Annotated[str, typer.Option(help="Preset, YAML file or Hugging Face config.json.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="The trace (.parquet).")]


def app() -> typer.Typer:
    """The verbs of `moeplan trace`."""
    verbs = typer.Typer(no_args_is_help=True)
    verbs.command("import")(import_arrays)
    verbs.command()(synth)
    verbs.command()(stats)
    return verbs


def import_arrays(
    arrays: Annotated[Path, typer.Argument(help="A numpy archive (.npz).")],
    model: _Model,
    output: _Output,
    source: Annotated[str | None, typer.Option(help="Where the choices come from, for people.")] = None,
) -> None:
    """Turn numpy arrays into a trace.

    Keys of the archive: experts [tokens, layers, top-k]; optionally weights (same shape), request,
    position, step, phase [tokens], layers (absolute ids) and num_experts.
    """
    from ..workload.model import load_model
    from ..workload.readers.arrays import read_arrays
    from ..workload.trace import write_trace

    shapes = load_model(model)
    check_outputs({"--output": output}, {"the archive": arrays, "--model": model})
    trace = read_arrays(arrays, shapes)
    if source is not None:
        trace = replace(trace, source=source)
    write_trace(trace, output)
    show(_summary(trace, output))


def synth(
    model: _Model,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the trace.")],
    requests: Annotated[int, typer.Option(min=1, help="Requests that the tokens are shared among.")],
    output: _Output,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    layers: Annotated[
        str | None, typer.Option(help="Layers to draw, as in 3-5,8 (default: all MoE layers).")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Requests that run side by side; divides --requests (default: all).",
            rich_help_panel=_KNOBS,
        ),
    ] = None,
    skew: Annotated[
        float, typer.Option(help="Spread of the experts' popularity.", rich_help_panel=_KNOBS)
    ] = 0.9,
    skew_spread: Annotated[
        float, typer.Option(help="Spread of the skew over layers.", rich_help_panel=_KNOBS)
    ] = 0.2,
    cold_tail: Annotated[
        float, typer.Option(help="Share of experts that are hardly used.", rich_help_panel=_KNOBS)
    ] = 0.1,
    cold_depth: Annotated[
        float, typer.Option(help="By how much those are less popular.", rich_help_panel=_KNOBS)
    ] = 2.0,
    drift: Annotated[
        float, typer.Option(help="Spread of popularity over steps.", rich_help_panel=_KNOBS)
    ] = 0.3,
    drift_memory: Annotated[
        float, typer.Option(help="Correlation of popularity from step to step.", rich_help_panel=_KNOBS)
    ] = 0.98,
    persistence: Annotated[
        float, typer.Option(help="Strength of a request's own taste.", rich_help_panel=_KNOBS)
    ] = 1.5,
    coactivation: Annotated[
        float, typer.Option(help="Pull of a token towards one group of experts.", rich_help_panel=_KNOBS)
    ] = 3.0,
    group_size: Annotated[int, typer.Option(help="Experts of such a group.", rich_help_panel=_KNOBS)] = 8,
) -> None:
    """Draw a synthetic trace; the same seed gives the same bytes."""
    from ..workload.model import load_model
    from ..workload.synthetic import SyntheticRouting, synthesize
    from ..workload.trace import write_trace

    side_by_side = _side_by_side(tokens, requests, concurrency)
    shapes = load_model(model)
    if layers is not None:
        shapes = replace(shapes, moe_layers=parse_layers(layers, shapes.moe_layers, shapes.name))
    check_outputs({"--output": output}, {"--model": model})
    routing = SyntheticRouting(
        tokens_per_request=-(-tokens // requests),
        concurrency=side_by_side,
        skew=skew,
        skew_spread=skew_spread,
        cold_tail=cold_tail,
        cold_depth=cold_depth,
        drift=drift,
        drift_memory=drift_memory,
        persistence=persistence,
        coactivation=coactivation,
        group_size=group_size,
    )
    trace = synthesize(shapes, tokens=tokens, seed=seed, routing=routing)
    write_trace(trace, output)
    show(_summary(trace, output))


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
    trace: Annotated[Path, typer.Argument(help="A trace (.parquet).")],
    batch: Annotated[int, typer.Option(min=1, help="Tokens of a decode step.")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="Decode steps to replay.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Of the replay.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how skewed, persistent and co-activated the routing of a trace is, layer by layer."""
    from ..workload.replay import replay
    from ..workload.stats import load_statistics, trace_statistics
    from ..workload.trace import read_trace

    read = read_trace(trace)
    load = replay(read, batch=batch, steps=steps, seed=seed)
    by_step, by_token = load_statistics(load, _UNIONS), trace_statistics(read)
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
        f"{trace}: {_content(read)}",
        f"{steps} steps of batch {batch}: {load.note}",
        _table(read, by_step, by_token),
    )


def _summary(trace: RoutingTrace, output: Path) -> str:
    return f"trace: {output}\n{_content(trace)}"


def _content(trace: RoutingTrace) -> str:
    import numpy as np

    requests = int(np.unique(trace.request).size)
    return (
        f"{trace.tokens} tokens of {requests} requests, layers {show_layers(trace.layers)} of {trace.model}, "
        f"{trace.num_experts} experts, top-{trace.top_k}"
    )


def _table(trace: RoutingTrace, by_step: LoadStatistics, by_token: TraceStatistics) -> Any:
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
