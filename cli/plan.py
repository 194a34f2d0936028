"""`moeplan plan`: from recorded traffic to a placement, by the family of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import BadInput, UsageError
from ..common.execution import Execution
from .layers import work_folder
from .memory import refuse_beyond
from .options import check_outputs, parse_budget, parse_solver_options
from .planning import Request, conclude, cores
from .replica_inputs import refuse_with_counts
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
    **dict.fromkeys(("backend", "address", "work", "fresh"), ("channels", "cores")),
    **dict.fromkeys(
        (
            *("intra_bandwidth", "inter_bandwidth", "slots_per_rank", "speeds", "dispatch", "sources"),
            *("duplicates", "drift", "traffic_weight", "tile", "current", "max_moves"),
        ),
        ("replicas",),
    ),
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
    ] = "best",
    side: Annotated[
        int | None,
        typer.Option(
            help="Units along the side of a core (default: the platform's).", rich_help_panel=_CORES
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(help="Tokens of a job (default: the platform's tile).", rich_help_panel=_CORES),
    ] = None,
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
    intra_bandwidth: Annotated[
        str | None, typer.Option(help="Of one GPU inside its node: '450 GB/s'.", rich_help_panel=_REPLICAS)
    ] = None,
    inter_bandwidth: Annotated[
        str | None, typer.Option(help="Of one GPU to other nodes: '50 GB/s'.", rich_help_panel=_REPLICAS)
    ] = None,
    slots_per_rank: Annotated[
        str | None, typer.Option(help="Slots of every rank, as in 9,9,8,8.", rich_help_panel=_REPLICAS)
    ] = None,
    speeds: Annotated[
        str | None,
        typer.Option(help="Relative speed of every rank, as in 1,1,0.9.", rich_help_panel=_REPLICAS),
    ] = None,
    dispatch: Annotated[
        Literal["equal", "hash", "nearest", "fixed"],
        typer.Option(
            help="How tokens choose a replica: in turn, by hash (vLLM), nearest (SGLang static), or one "
            "fixed by source rank (vllm-ascend).",
            rich_help_panel=_REPLICAS,
        ),
    ] = "equal",
    sources: Annotated[
        Literal["uniform", "slots"],
        typer.Option(
            help="Tokens come evenly from all ranks, or batch slot b from rank b modulo G.",
            rich_help_panel=_REPLICAS,
        ),
    ] = "uniform",
    duplicates: Annotated[
        bool, typer.Option(help="Allow two replicas of an expert on a rank.", rich_help_panel=_REPLICAS)
    ] = False,
    drift: Annotated[
        float,
        typer.Option(help="Plan against this drift of log loads (0.2 to 0.5).", rich_help_panel=_REPLICAS),
    ] = 0.0,
    traffic_weight: Annotated[
        float, typer.Option(help="Weight on cross-node traffic.", rich_help_panel=_REPLICAS)
    ] = 0.0,
    tile: Annotated[
        int, typer.Option(min=1, help="Pad a replica's tokens to this number.", rich_help_panel=_REPLICAS)
    ] = 1,
    current: Annotated[
        Path | None,
        typer.Option(
            help="Placement that is there: a plan, or slots [L, R] (.npy).", rich_help_panel=_REPLICAS
        ),
    ] = None,
    max_moves: Annotated[
        int | None,
        typer.Option(min=0, help="Slots of a layer that may change.", rich_help_panel=_REPLICAS),
    ] = None,
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
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory of the whole plan, as '8 GiB': refused in advance where it does not fit.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    backend: Annotated[
        Literal["threads", "loky", "dask", "ray"],
        typer.Option(help="Where layers are planned; dask and ray are extras.", rich_help_panel=_SEARCH),
    ] = "threads",
    address: Annotated[
        str,
        typer.Option(help="Of a Dask scheduler or Ray head (default: a local one).", rich_help_panel=_SEARCH),
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The plan.", rich_help_panel=_OUTPUT)] = Path(
        "plan.json"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Also a report (.html).", rich_help_panel=_OUTPUT)
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder of finished layers, until the plan is whole (default: beside the plan).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Plan finished layers anew.", rich_help_panel=_OUTPUT),
    ] = False,
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
    if load is not None:
        refuse_with_counts(context, split)
    how = Replay(batch, steps, seed, parse_held_out(held_out), split)
    other = how.held_out if isinstance(how.held_out, Path) else None
    check_outputs(
        {"--output": output, "--report": report},
        {
            "--trace": trace,
            "--held-out": other,
            "--load": load,
            "--current": current,
            "--model": model,
            "--platform": platform,
        },
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
        execution=Execution(backend, jobs or cores(), address),
        work=work or work_folder(output),
        fresh=fresh,
    )
    ranks = nodes * ranks_per_node if nodes and ranks_per_node else None
    refuse_beyond(
        memory, request, family, load=load, sites=ranks, by_source=sources == "slots", drift=drift > 0.0
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
    if family == "cores":
        from ..placement.cores.problem import Settings as CoreSettings
        from .plan_cores import core_answer, plan_cores_of

        match mode:
            case "auto" | "row" | "col":
                raise UsageError(f"--mode {mode} is for PIM machines", allowed="direct, broadcast")
            case None | "direct" | "broadcast":
                core_settings = CoreSettings(mode=mode or "broadcast", width=width, side=side, risk=risk)
        placed = plan_cores_of(request, core_settings)
        conclude(placed, request, core_answer(placed))
    if family == "replicas":
        from .plan_replicas import ReplicaOptions, conclude_replicas, plan_replicas_of

        replicated = plan_replicas_of(
            request,
            ReplicaOptions(
                load=load, nodes=nodes, ranks_per_node=ranks_per_node, intra_bandwidth=intra_bandwidth,
                inter_bandwidth=inter_bandwidth, slots=slots, slots_per_rank=slots_per_rank, speeds=speeds,
                groups=groups, dispatch=dispatch, sources=sources, duplicates=duplicates, risk=risk,
                drift=drift, traffic_weight=traffic_weight, tile=tile, current=current, max_moves=max_moves,
            ),
        )  # fmt: skip
        conclude_replicas(replicated, request)


def family_of(platform: Platform) -> Literal["channels", "cores", "replicas"]:
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
