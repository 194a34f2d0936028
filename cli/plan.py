"""`moeplan plan`: from recorded traffic to a placement, by the family of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import BadInput, UsageError
from .options import check_outputs, parse_budget, parse_solver_options
from .planning import Request, conclude, cores
from .traffic import Replay, SplitBy, parse_held_out

if TYPE_CHECKING:
    from ..hardware.platform import Platform

_INPUT, _SEARCH, _OUTPUT = "What to plan", "How to search", "What to write"
_CHANNELS, _CORES, _REPLICAS = "On a PIM machine", "On a near-memory machine", "On a GPU cluster"
#: Options that only some families have.
_ONLY = {
    "layout": ("channels",),
    "mode": ("channels", "cores"),
    "side": ("cores",),
    "width": ("cores",),
    "nodes": ("replicas",),
    "ranks_per_node": ("replicas",),
    "load": ("replicas",),
    "slots": ("replicas",),
    "groups": ("replicas",),
}


def plan(
    context: typer.Context,
    platform: Annotated[str, typer.Option(help="Preset or YAML file.", rich_help_panel=_INPUT)],
    model: Annotated[
        str | None,
        typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=_INPUT),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Routing trace (.parquet).", rich_help_panel=_INPUT)
    ] = None,
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
        Literal["auto", "row", "col", "direct", "broadcast"] | None,
        typer.Option(
            help="Channels: how the second matrix of an expert is split (auto, row, col). "
            "Cores: how jobs reach the units (direct, broadcast).",
            rich_help_panel=_CHANNELS,
        ),
    ] = None,
    layout: Annotated[
        Literal["rows", "best"],
        typer.Option(
            help="Whole outputs per bank (as published), or the fastest split over banks.",
            rich_help_panel=_CHANNELS,
        ),
    ] = "rows",
    side: Annotated[
        int, typer.Option(help="Units along the side of a core: 2, 4, 6, 8.", rich_help_panel=_CORES)
    ] = 4,
    width: Annotated[
        int, typer.Option(help="Tokens of a job: one pass over an expert.", rich_help_panel=_CORES)
    ] = 4,
    load: Annotated[
        Path | None,
        typer.Option(help="Counts [L, E] or [S, L, E] (.npy) instead of a trace.", rich_help_panel=_REPLICAS),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of the cluster.", rich_help_panel=_REPLICAS)
    ] = None,
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs of a node.", rich_help_panel=_REPLICAS)
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1, help="Physical slots of a layer (default: one an expert).", rich_help_panel=_REPLICAS
        ),
    ] = None,
    groups: Annotated[
        int,
        typer.Option(min=1, help="Expert groups; a group stays within a node.", rich_help_panel=_REPLICAS),
    ] = 1,
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
    """Decide where the experts of every MoE layer live.

    On the channels of a PIM machine, on the cores of a near-memory machine, or, with replicas, on the ranks
    of a GPU cluster. The plan is compared with a proven lower bound, with the published heuristics, and on
    held-out traffic. Ctrl-C writes the best found so far.
    """
    from ..hardware.platform import load_platform
    from ..placement.planning import Search
    from ..placement.registry import find
    from ..workload.model import load_model

    machine = load_platform(platform)
    family = family_of(machine)
    _refuse_foreign(context, family, machine.name)
    how = Replay(batch, steps, seed, parse_held_out(held_out), split)
    other = how.held_out if isinstance(how.held_out, Path) else None
    check_outputs(
        {"--output": output, "--report": report},
        {"--trace": trace, "--held-out": other, "--load": load, "--model": model, "--platform": platform},
    )
    search = Search(
        solver=find(family, solver).name,
        budget=parse_budget(budget, gap),
        seed=seed,
        options=parse_solver_options(option or []),
    )
    request = Request(
        model=load_model(model) if model is not None else None,
        platform=machine,
        trace=trace,
        replay=how,
        layers=layers,
        search=search,
        jobs=jobs or cores(),
        output=output,
        report=report,
        json=json,
        quiet=quiet,
    )
    if family == "channels":
        from ..placement.channels.problem import Settings
        from .plan_channels import plan_channels_of

        match mode:
            case "direct" | "broadcast":
                raise UsageError(f"--mode {mode} is for near-memory machines", allowed="auto, row, col")
            case None | "auto" | "row" | "col":
                settings = Settings(risk=risk, mode=mode or "auto", layout=layout)
        conclude(plan_channels_of(request, settings), request)


def family_of(platform: Platform) -> str:
    """Return the family that plans a machine. Raises BadInput where nothing can be placed on it."""
    if platform.pim is not None and platform.topology is not None:
        return "channels"
    if platform.nearmem is not None:
        return "cores"
    if platform.topology is not None and platform.topology.kind == "gpu_cluster":
        return "replicas"
    raise BadInput(
        f"platform {platform.name!r} has no PIM channel sites, near-memory cores or GPU cluster for experts",
        fix="see moeplan platforms; for example spimoe-4x8",
    )


def _refuse_foreign(context: typer.Context, family: str, platform: str) -> None:
    """Refuse what the machine's family would silently ignore."""
    for name, families in _ONLY.items():
        source = context.get_parameter_source(name)
        if family not in families and source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} says nothing about {platform}", where=option, fix="leave it out")
