"""`moeplan pool`: what pooling inside the cores of near-memory dies is worth, under a placement rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import UsageError
from . import parameters
from .console import show, show_json, table
from .planning import cores
from .traffic import Replay, SplitBy, parse_held_out, read_traffic

if TYPE_CHECKING:
    from ..placement.cores.pooling import PoolScore
    from ..schedule.fetch import FetchPoint, Policy
    from ..workload.load import Load
    from ..workload.model import MoEModel

_WHAT, _DIE, _SEARCH, _OUTPUT = "What to serve", "On what", "How to place", "What to print"
#: Batches behind the oldest for which the exchange of latency for occupancy is shown, and the default.
_DEPTHS, _DEPTH = (0, 1, 2, 4, 8, 16), 4

_Model = Annotated[str, parameters.model(_WHAT)]
_Batch = Annotated[int, parameters.batch(_WHAT)]
_Trace = Annotated[
    Path | None,
    parameters.trace(
        _WHAT, help="Routing trace (.parquet; default: drawn from the fitted routing of the model)."
    ),
]
_Steps = Annotated[int, parameters.steps(_WHAT)]
_HeldOut = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE|FILE",
        help="Of --trace: share that no placement sees (default: 0.5; 0: nothing), or another trace of "
        "the model.",
        rich_help_panel=_WHAT,
    ),
]
_Split = Annotated[
    SplitBy | None,
    typer.Option(
        help="Of --trace: hold out whole requests (default), or what came last.", rich_help_panel=_WHAT
    ),
]

_Side = Annotated[int, typer.Option(help="Units along the side of a core: 2, 4, 6, 8.", rich_help_panel=_DIE)]
_Mode = Annotated[
    Literal["direct", "broadcast"],
    typer.Option(
        help="Every unit its own queue, or idle groups take jobs of their core's other units.",
        rich_help_panel=_DIE,
    ),
]
_Width = Annotated[int, typer.Option(help="Tokens of a job.", rich_help_panel=_DIE)]
_Fetch = Annotated[
    Literal["fifo", "load-aware"] | None,
    typer.Option(
        help="Also queue the steps as batches: one after the other, or cores that would idle run tokens "
        "of those behind.",
        rich_help_panel=_DIE,
    ),
]
_FetchDepth = Annotated[
    int | None, typer.Option(min=0, help=f"Batches that queue (default: {_DEPTH}).", rich_help_panel=_DIE)
]

_Placement = Annotated[
    Literal["contiguous", "lpt", "coactivation", "ours"],
    typer.Option(help="Which experts share a core.", rich_help_panel=_SEARCH),
]
_Seed = Annotated[int, parameters.seed("Of drawing, split, replay and search.", _SEARCH)]
_Jobs = Annotated[int | None, parameters.jobs("Layers placed", _SEARCH)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def pool(
    model: _Model,
    batch: _Batch,
    trace: _Trace = None,
    steps: _Steps = 64,
    held_out: _HeldOut = None,
    split: _Split = None,
    side: _Side = 4,
    mode: _Mode = "broadcast",
    width: _Width = 4,
    fetch: _Fetch = None,
    fetch_depth: _FetchDepth = None,
    placement: _Placement = "ours",
    seed: _Seed = 0,
    jobs: _Jobs = None,
    json: _Json = False,
) -> None:
    """Measure MFU, occupancy and rounds of a layer's experts on ReXpert's die.

    Actual MFU is ideal MFU, how full the issued jobs are, times occupancy, how many groups work while the
    slowest still does. Placements see the profiled steps; figures are of the steps held out.
    """
    from ..placement.cores.layout import die_layout, pooling_cores, published_die
    from ..placement.cores.pooling import pool as measure
    from ..workload.model import load_model

    die = published_die(side)
    shapes = load_model(model)
    if trace is None and (held_out is not None or split is not None):
        raise UsageError("--held-out and --split are of a trace, and there is none", fix="give --trace")
    depth = _depth(fetch, fetch_depth, steps)
    # Refuses before traffic is read.
    die_layout(shapes, die, mode=mode, width=width, cores=pooling_cores(die))
    how = Replay(batch, steps, seed, parse_held_out(held_out or "0.5"), split or "request")
    profile, unseen, source = _steps(shapes, trace, how)
    score = measure(
        shapes, die, profile, unseen, placement=placement, mode=mode, width=width, seed=seed,
        jobs=min(jobs or cores(), len(profile.layers)),
    )  # fmt: skip
    asked = {
        "model": shapes.name, "batch": batch, "steps": steps, "side": side, "mode": mode, "width": width,
        "placement": placement, "seed": seed, "source": source, "held_out": unseen is not None,
    }  # fmt: skip
    curve = None if fetch is None else _curve(score, unseen or profile, depth)
    if json:
        fetched = None if fetch is None or curve is None else _fetched(curve, fetch, depth)
        show_json({**asked, **answer(score), "tiles_die": die.is_tiled, "fetch": fetched})
    else:
        _show(asked, score)
        if curve is not None:
            _show_curve(curve, fetch, depth)


def _depth(fetch: str | None, depth: int | None, steps: int) -> int:
    """Batches that queue. Raises UsageError where they say nothing, or are more than the steps allow."""
    if fetch is None and depth is not None:
        raise UsageError("--fetch-depth is of a queue, and there is none", fix="give --fetch load-aware")
    if depth is not None and depth >= steps:
        raise UsageError(
            f"{steps} steps never queue {depth} behind the first",
            where="--fetch-depth",
            allowed=f"0 to {steps - 1}",
            fix="take more --steps",
        )
    return min(_DEPTH, steps - 1) if depth is None else depth


def _curve(score: PoolScore, load: Load, depth: int) -> tuple[FetchPoint, ...]:
    """Both policies at every depth, on the places that the score's placement gives."""
    import numpy as np

    from ..schedule.fetch import latency_curve

    layout = score.layout
    return latency_curve(
        load.counts()[:, [load.layers.index(layer.layer) for layer in score.layers]],
        np.array([layer.place_of for layer in score.layers]),
        cores=layout.places,
        groups=layout.servers,
        width=layout.width,
        depths=sorted({depth, *(other for other in _DEPTHS if other < load.steps)}),
    )


def _fetched(curve: tuple[FetchPoint, ...], policy: Policy, depth: int) -> dict[str, Any]:
    """What `--json` says of a queue: the point that was asked for, and the curve."""
    asked = next(point for point in curve if (point.depth, point.policy) == (depth, policy))
    return {**_point(asked), "curve": [_point(point) for point in curve]}


def _point(point: FetchPoint) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "depth": point.depth,
        "rounds": point.rounds,
        "ideal_mfu": point.ideal_mfu,
        "occupancy": point.occupancy,
        "actual_mfu": point.actual_mfu,
        "mean_wait_rounds": point.mean_wait,
        "longest_wait_rounds": point.longest_wait,
    }


def answer(score: PoolScore) -> dict[str, Any]:
    """Return what `--json` says of a score."""
    layout = score.layout
    return {
        **{name: getattr(score, name) for name in ("ideal_mfu", "occupancy", "actual_mfu", "adjusted_mfu")},
        "rounds": score.rounds,
        "rounds_bound": score.rounds_bound,
        "round_stretch": score.stretch,
        "effective_mfu": score.effective_mfu,
        "multicast_p99_bytes_per_s": score.multicast_p99_bytes_per_s,
        "multicast_peak_bytes_per_s": score.multicast_peak_bytes_per_s,
        "round_s": layout.round_s,
        "step_s": score.step_s,
        "cores": layout.cores,
        "groups": layout.groups,
        "shards": layout.shards,
        "dies": layout.dies,
        "layers": [
            {
                "layer": layer.layer,
                "occupancy": layer.cascade.occupancy,
                "rounds": layer.cascade.rounds,
                "rounds_bound": layer.rounds_bound,
            }
            for layer in score.layers
        ],
    }


def _steps(model: MoEModel, trace: Path | None, how: Replay) -> tuple[Load, Load | None, str]:
    """Profile, held-out steps, and where they come from."""
    from ..benchmarks.pooling import drawn_steps

    if trace is None:
        return *drawn_steps(model, batch=how.batch, steps=how.steps, seed=how.seed), "fitted routing"
    traffic = read_traffic(trace, model, how)
    return traffic.profile, traffic.held_out, traffic.sources[0]


def _show(asked: dict[str, Any], score: PoolScore) -> None:
    from ..hardware.units import format_s

    layout = score.layout
    title = (
        f"{asked['model']}, batch {asked['batch']}, {layout.cores} cores of {layout.groups} units, "
        f"{asked['mode']}, {asked['placement']} placement"
    )
    rows = [
        ("ideal MFU", f"{score.ideal_mfu:.3f}"),
        ("occupancy", f"{score.occupancy:.3f}"),
        ("actual MFU", f"{score.actual_mfu:.3f}"),
        ("rounds", f"{score.rounds:.3f}"),
        ("rounds, at least", f"{score.rounds_bound:.3f}"),
        ("round stretch", f"{score.stretch:.2f}"),
        ("effective MFU", f"{score.effective_mfu:.3f}"),
        ("all layers of a step", format_s(score.step_s)),
    ]
    unseen = "held-out steps" if asked["held_out"] else "profiled steps"
    show(title, table(("mean over layers and steps", unseen), rows))


def _show_curve(curve: tuple[FetchPoint, ...], policy: str | None, depth: int) -> None:
    rows = [
        (
            f"{point.policy}{' (asked)' if (point.depth, point.policy) == (depth, policy) else ''}",
            point.depth,
            f"{point.rounds:.3f}",
            f"{point.occupancy:.3f}",
            f"{point.actual_mfu:.3f}",
            f"{point.mean_wait:.2f}",
            point.longest_wait,
        )
        for point in curve
    ]
    columns = ("fetch", "depth", "rounds a batch", "occupancy", "actual MFU", "mean wait", "longest wait")
    show(table(columns, rows, title="batches in a queue of so many behind the oldest; waits in rounds"))
