"""`moeplan plan`: from recorded traffic to a placement, by the family of the machine."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from ..common.errors import BadInput, UsageError
from ..common.execution import Execution
from . import plan_parameters as ask
from .layers import work_folder
from .memory import refuse_beyond
from .options import check_outputs, parse_budget, parse_solver_options, refuse_foreign
from .plan_channels import plan_channels_of
from .plan_cores import core_answer, plan_cores_of
from .plan_replicas import ReplicaOptions, conclude_replicas, plan_replicas_of
from .planning import Request, conclude, cores
from .replica_inputs import refuse_with_counts
from .traffic import Replay, parse_held_out

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.planning import Search

#: Options that only some families have, and which.
_ONLY = {
    "layout": ("channels",),
    "mode": ("channels", "cores"),
    "side": ("cores",),
    "width": ("cores",),
    **dict.fromkeys(("backend", "address", "work", "fresh"), ("channels", "cores")),
    **{field.name: ("replicas",) for field in fields(ReplicaOptions) if field.name != "risk"},
}


def plan(
    context: typer.Context,
    platform: ask.Platform,
    model: ask.Model = None,
    trace: ask.Trace = None,
    batch: ask.Batch = 32,
    steps: ask.Steps = 128,
    held_out: ask.HeldOut = "0.5",
    split: ask.Split = "request",
    layers: ask.Layers = None,
    mode: ask.Mode = None,
    layout: ask.Layout = "best",
    side: ask.Side = None,
    width: ask.Width = None,
    load: ask.Load = None,
    nodes: ask.Nodes = None,
    ranks_per_node: ask.RanksPerNode = None,
    slots: ask.Slots = None,
    groups: ask.Groups = 1,
    intra_bandwidth: ask.IntraBandwidth = None,
    inter_bandwidth: ask.InterBandwidth = None,
    slots_per_rank: ask.SlotsPerRank = None,
    speeds: ask.Speeds = None,
    dispatch: ask.Dispatch = "equal",
    sources: ask.Sources = "uniform",
    duplicates: ask.Duplicates = False,
    drift: ask.Drift = None,
    traffic_weight: ask.TrafficWeight = 0.0,
    tile: ask.Tile = 1,
    current: ask.Current = None,
    max_moves: ask.MaxMoves = None,
    risk: ask.Risk = 0.0,
    solver: ask.Solver = "auto",
    budget: ask.Budget = "2s",
    gap: ask.Gap = 0.0,
    option: ask.SolverOptions = None,
    seed: ask.Seed = 0,
    jobs: ask.Jobs = None,
    memory: ask.Memory = None,
    backend: ask.Backend = "threads",
    address: ask.Address = "",
    output: ask.Output = Path("plan.json"),
    report: ask.Report = None,
    work: ask.Work = None,
    fresh: ask.Fresh = False,
    json: ask.Json = False,
    quiet: ask.Quiet = False,
) -> None:
    """Decide where the experts of every MoE layer live.

    On the channels of a PIM machine, on the cores of a near-memory machine, or, with replicas, on the ranks
    of a GPU cluster. The plan is compared with a proven lower bound, with the published heuristics, and on
    held-out traffic. Ctrl-C writes the best found so far.
    """
    from ..hardware.platform import load_platform
    from ..workload.model import load_model

    machine = load_platform(platform)
    family = family_of(machine)
    refuse_foreign(context, _ONLY, family, machine.name)
    if load is not None:
        refuse_with_counts(context, split)
    how = Replay(batch, steps, seed, parse_held_out(held_out), split)
    other = how.held_out if isinstance(how.held_out, Path) else None
    check_outputs(
        {"--output": output, "--report": report},
        {"--trace": trace, "--held-out": other, "--load": load, "--current": current,
         "--model": model, "--platform": platform},
        (".json",),
    )  # fmt: skip
    search = _search(family, solver, budget, gap, seed, option or [])
    side_by_side = jobs or cores()
    request = Request(
        load_model(model) if model is not None else None, machine, trace, how, layers, search, side_by_side,
        output, report, json, quiet, Execution(backend, side_by_side, address),
        work or work_folder(output), fresh,
    )  # fmt: skip
    replicas = ReplicaOptions(
        load=load, nodes=nodes, ranks_per_node=ranks_per_node, intra_bandwidth=intra_bandwidth,
        inter_bandwidth=inter_bandwidth, slots=slots, slots_per_rank=slots_per_rank, speeds=speeds,
        groups=groups, dispatch=dispatch, sources=sources, duplicates=duplicates, risk=risk,
        drift=drift, traffic_weight=traffic_weight, tile=tile, current=current, max_moves=max_moves,
    )  # fmt: skip
    ranks = nodes * ranks_per_node if nodes and ranks_per_node else None
    refuse_beyond(
        memory, request, family, load=load, sites=ranks, by_source=sources == "slots", drift=bool(drift)
    )
    if family == "channels":
        _on_channels(request, mode, layout, risk)
    elif family == "cores":
        _on_cores(request, mode, side, width, risk)
    else:
        conclude_replicas(plan_replicas_of(request, replicas), request)


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


def _search(family: str, solver: str, budget: str, gap: float, seed: int, options: list[str]) -> Search:
    from ..placement.planning import Search
    from ..placement.registry import find

    name = find(family, solver).name
    return Search(name, parse_budget(budget, gap), seed, options=parse_solver_options(options))


def _on_channels(request: Request, mode: ask.ModeName | None, layout: ask.LayoutName, risk: float) -> None:
    """Plan and print. Raises UsageError where the mode is one of cores."""
    from ..placement.channels.problem import Settings

    match mode:
        case "direct" | "broadcast":
            raise UsageError(f"--mode {mode} is for near-memory machines", allowed="auto, row, col")
        case None | "auto" | "row" | "col":
            settings = Settings(risk=risk, mode=mode or "auto", layout=layout)
    conclude(plan_channels_of(request, settings), request)


def _on_cores(
    request: Request, mode: ask.ModeName | None, side: int | None, width: int | None, risk: float
) -> None:
    """Plan and print. Raises UsageError where the mode is one of channels."""
    from ..placement.cores.problem import Settings

    match mode:
        case "auto" | "row" | "col":
            raise UsageError(f"--mode {mode} is for PIM machines", allowed="direct, broadcast")
        case None | "direct" | "broadcast":
            settings = Settings(mode=mode or "broadcast", width=width, side=side, risk=risk)
    placed = plan_cores_of(request, settings)
    conclude(placed, request, core_answer(placed))
