"""`moeplan plan`: from a trace to an expert-to-channel plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .console import show, show_json
from .options import check_outputs, parse_budget, parse_solver_options
from .planning import Job, cores, interrupted, run_job
from .signals import EXIT_INTERRUPTED
from .traffic import Replay, SplitBy, parse_held_out, read_traffic

if TYPE_CHECKING:
    from ..placement.plan import LayerEntry, PlanFile

FAMILY = "channels"
_INPUT, _SEARCH, _OUTPUT = "What to plan", "How to search", "What to write"


def plan(
    model: Annotated[
        str,
        typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=_INPUT),
    ],
    platform: Annotated[str, typer.Option(help="Preset or YAML file.", rich_help_panel=_INPUT)],
    trace: Annotated[Path, typer.Option(help="Routing trace (.parquet).", rich_help_panel=_INPUT)],
    batch: Annotated[int, typer.Option(min=1, help="Tokens of a decode step.", rich_help_panel=_INPUT)] = 32,
    steps: Annotated[
        int, typer.Option(min=1, help="Decode steps to profile, and to hold out.", rich_help_panel=_INPUT)
    ] = 128,
    held_out: Annotated[
        str,
        typer.Option(
            metavar="SHARE|FILE",
            help="Share of the trace that no solver sees (0: nothing), or another trace of the model.",
            rich_help_panel=_INPUT,
        ),
    ] = "0.5",
    split: Annotated[
        SplitBy, typer.Option(help="Hold out whole requests, or what came last.", rich_help_panel=_INPUT)
    ] = "request",
    layers: Annotated[
        str | None,
        typer.Option(help="Layers to plan, as in 3-5,8 (default: all of the trace).", rich_help_panel=_INPUT),
    ] = None,
    mode: Annotated[
        Literal["auto", "row", "col"],
        typer.Option(
            help="How the second matrix of an expert is split over channels.", rich_help_panel=_INPUT
        ),
    ] = "auto",
    layout: Annotated[
        Literal["rows", "best"],
        typer.Option(
            help="Whole outputs per bank (as published), or the fastest split over banks.",
            rich_help_panel=_INPUT,
        ),
    ] = "rows",
    risk: Annotated[
        float,
        typer.Option(help="Standard deviations over steps added to the mean.", rich_help_panel=_INPUT),
    ] = 0.0,
    solver: Annotated[str, typer.Option(help="See moeplan solvers.", rich_help_panel=_SEARCH)] = "auto",
    budget: Annotated[
        str,
        typer.Option(
            help="Per layer: 2s, 500ms, 20000it, or 2s,20000it. Iterations repeat exactly.",
            rich_help_panel=_SEARCH,
        ),
    ] = "2s",
    gap: Annotated[
        float,
        typer.Option(help="Stop a layer when this gap to the bound is proven.", rich_help_panel=_SEARCH),
    ] = 0.0,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the solver; repeatable.", rich_help_panel=_SEARCH),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of split, replay and search.", rich_help_panel=_SEARCH)
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Layers planned side by side (default: cores).", rich_help_panel=_SEARCH),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The plan.", rich_help_panel=_OUTPUT)] = Path(
        "plan.json"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Also a report (.html).", rich_help_panel=_OUTPUT)
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=_OUTPUT),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress bar and no table.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Decide which channels of a PIM machine hold the experts of every MoE layer.

    The plan is compared with a proven lower bound, with the published heuristics, and on held-out steps.
    Ctrl-C writes the best found so far.
    """
    from ..hardware.platform import load_platform
    from ..placement.channels.planning import Search
    from ..placement.channels.problem import Settings
    from ..placement.registry import find
    from ..workload.model import load_model

    how = Replay(batch, steps, seed, parse_held_out(held_out), split)
    search = Search(
        solver=find(FAMILY, solver).name,
        budget=parse_budget(budget, gap),
        seed=seed,
        options=parse_solver_options(option or []),
    )
    settings = Settings(risk=risk, mode=mode, layout=layout)
    other = how.held_out if isinstance(how.held_out, Path) else None
    check_outputs(
        {"--output": output, "--report": report},
        {"--trace": trace, "--held-out": other, "--model": model, "--platform": platform},
    )
    shapes, machine = load_model(model), load_platform(platform)
    traffic = read_traffic(trace, shapes, how)
    document = run_job(
        Job(
            shapes,
            machine,
            traffic,
            traffic.layers(layers),
            search,
            settings,
            jobs or cores(),
            output,
            report,
        ),
        quiet=quiet,
    )
    if json:
        show_json(answer(document, output, report))
    elif not quiet:
        _show(document, output, report)
    if interrupted(document):
        raise typer.Exit(EXIT_INTERRUPTED)


def answer(document: PlanFile, output: Path, report: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    totals = document.totals
    return {
        "solver": document.solver,
        "family": document.family,
        "model": document.model.name,
        "platform": document.platform.name,
        "seed": document.seed,
        "profile": totals.profile.model_dump(),
        "held_out": totals.held_out and totals.held_out.model_dump(),
        "bound_s": totals.bound_s,
        "gap": totals.gap,
        "stop": totals.stop,
        "baselines": {
            name: {
                "profile_s": entry.profile and entry.profile.total_s,
                "held_out_s": entry.held_out and entry.held_out.total_s,
            }
            for name, entry in totals.baselines.items()
        },
        "layers": [_layer(entry) for entry in document.layers],
        "plan": str(output),
        "report": report and str(report),
        "warnings": list(document.warnings),
        "elapsed_s": document.elapsed_s,
    }


def _layer(entry: LayerEntry) -> dict[str, Any]:
    return {
        "layer": entry.layer,
        "profile_s": entry.profile.total_s,
        "held_out_s": entry.held_out and entry.held_out.total_s,
        "bound_s": entry.bound_s,
        "gap": entry.gap,
        "stop": entry.stop,
    }


def _show(document: PlanFile, output: Path, report: Path | None) -> None:
    from ..benchmarks.report.terminal import headline, summary_table

    show(headline(document), summary_table(document), f"plan:   {output}")
    if report is None:
        show(f"report: moeplan report {output} -o report.html")
    else:
        show(f"report: {report}")
