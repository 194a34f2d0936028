"""`moeplan pool`: what pooling inside the cores of near-memory dies is worth, under a placement rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .console import show, show_json, table
from .planning import cores
from .traffic import Replay, SplitBy, parse_held_out, read_traffic

if TYPE_CHECKING:
    from ..placement.cores.pooling import PoolScore
    from ..workload.load import Load
    from ..workload.model import MoEModel

_WHAT, _DIE, _SEARCH, _OUTPUT = "What to serve", "On what", "How to place", "What to print"


def pool(
    model: Annotated[
        str, typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=_WHAT)
    ],
    batch: Annotated[int, typer.Option(min=1, help="Tokens of a decode step.", rich_help_panel=_WHAT)],
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Routing trace (.parquet; default: drawn from the fitted routing of the model).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Decode steps to profile, and to hold out.", rich_help_panel=_WHAT)
    ] = 64,
    held_out: Annotated[
        str,
        typer.Option(
            metavar="SHARE|FILE",
            help="Of --trace: share that no placement sees (0: nothing), or another trace of the model.",
            rich_help_panel=_WHAT,
        ),
    ] = "0.5",
    split: Annotated[
        SplitBy,
        typer.Option(help="Of --trace: hold out whole requests, or what came last.", rich_help_panel=_WHAT),
    ] = "request",
    side: Annotated[
        int, typer.Option(help="Units along the side of a core: 2, 4, 6, 8.", rich_help_panel=_DIE)
    ] = 4,
    mode: Annotated[
        Literal["direct", "broadcast"],
        typer.Option(
            help="Every unit its own queue, or idle groups take jobs of their core's other units.",
            rich_help_panel=_DIE,
        ),
    ] = "broadcast",
    width: Annotated[int, typer.Option(help="Tokens of a job.", rich_help_panel=_DIE)] = 4,
    placement: Annotated[
        Literal["contiguous", "lpt", "coactivation", "ours"],
        typer.Option(help="Which experts share a core.", rich_help_panel=_SEARCH),
    ] = "ours",
    seed: Annotated[
        int, typer.Option(min=0, help="Of drawing, split, replay and search.", rich_help_panel=_SEARCH)
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Layers placed side by side (default: cores).", rich_help_panel=_SEARCH),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False,
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
    die_layout(
        shapes, die, mode=mode, width=width, cores=pooling_cores(die)
    )  # refuses before traffic is read
    profile, unseen, source = _steps(
        shapes, trace, Replay(batch, steps, seed, parse_held_out(held_out), split)
    )
    score = measure(
        shapes, die, profile, unseen, placement=placement, mode=mode, width=width, seed=seed,
        jobs=min(jobs or cores(), len(profile.layers)),
    )  # fmt: skip
    asked = {
        "model": shapes.name, "batch": batch, "steps": steps, "side": side, "mode": mode, "width": width,
        "placement": placement, "seed": seed, "source": source, "held_out": unseen is not None,
    }  # fmt: skip
    if json:
        show_json({**asked, **answer(score), "tiles_die": die.is_tiled})
    else:
        _show(asked, score)


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
