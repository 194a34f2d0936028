"""`moeplan sweep-redundancy`: how many redundant experts are worth their memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import UsageError
from .console import show, show_json, table
from .options import parse_budget
from .plan_replicas import ReplicaOptions, pose, traffic_experts
from .planning import Request, cores
from .replica_inputs import refuse_with_counts
from .traffic import Replay, SplitBy, parse_held_out

if TYPE_CHECKING:
    from ..placement.replicas.problem import ReplicaProblem
    from ..placement.replicas.sweep import Redundancy

_STEPS = 5


def sweep_redundancy(
    context: typer.Context,
    platform: Annotated[str, typer.Option(help="A GPU cluster: preset or YAML file.")] = "gpu-cluster",
    load: Annotated[Path | None, typer.Option(help="Counts [L, E] or [S, L, E] (.npy), or .npz.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, for a trace or for times.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Routing trace (.parquet) instead of counts.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Tokens of a decode step.")] = 32,
    steps: Annotated[int, typer.Option(min=1, help="Decode steps to profile, and to hold out.")] = 128,
    held_out: Annotated[str, typer.Option(metavar="SHARE|FILE", help="As in moeplan plan.")] = "0.5",
    split: Annotated[SplitBy, typer.Option(help="Hold out whole requests, or what came last.")] = "request",
    layers: Annotated[str | None, typer.Option(help="Layers, as in 3-5,8.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of the cluster.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs of a node.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="Expert groups; a group stays within a node.")] = 1,
    slots: Annotated[
        str | None, typer.Option(help="Numbers of slots, as in 256,288,320 (default: the first that divide).")
    ] = None,
    solver: Annotated[str, typer.Option(help="See moeplan solvers.")] = "auto",
    budget: Annotated[str, typer.Option(help="Per layer and number of slots.")] = "500ms",
    seed: Annotated[int, typer.Option(min=0, help="Of split, replay and search.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan with several numbers of slots: balance, time and memory against redundancy, and which divide."""
    from ..hardware.platform import load_platform
    from ..placement.planning import Search
    from ..placement.registry import find
    from ..placement.replicas.ranks import nearest_multiples
    from ..placement.replicas.sweep import sweep_redundancy as sweep
    from ..placement.replicas.sweep import usable_slots
    from ..workload.model import load_model

    if load is not None:
        refuse_with_counts(context, split)
    request = Request(
        model=load_model(model) if model is not None else None,
        platform=load_platform(platform),
        trace=trace,
        replay=Replay(batch, steps, seed, parse_held_out(held_out), split),
        layers=layers,
        search=Search(find("replicas", solver).name, parse_budget(budget), seed),
        jobs=cores(),
        output=Path(),
        report=None,
    )
    options = ReplicaOptions(load=load, nodes=nodes, ranks_per_node=ranks_per_node, groups=groups)
    experts, ranks = traffic_experts(request, options)
    numbers = _numbers(slots) if slots is not None else None
    if numbers is None:
        first = -(-experts // ranks) * ranks
        numbers = usable_slots(experts, ranks, first + (_STEPS - 1) * ranks)

    def posed(number: int) -> list[ReplicaProblem]:
        return pose(request, replace(options, slots=number)).problems

    rows = list(sweep(posed, numbers, experts, ranks, request.search))
    if json:
        show_json(
            {
                "experts": experts,
                "ranks": ranks,
                "unit": "seconds" if request.model is not None else "tokens",
                "divides": usable_slots(experts, ranks, max(2 * experts, *numbers)),
                "nearest": {str(n): nearest_multiples(n, ranks) for n in numbers if n % ranks},
                "redundancy": [asdict(row) for row in rows],
            }
        )
        return
    size = request.model.expert_bytes * len(request.model.moe_layers) if request.model is not None else None
    columns = (
        "slots",
        "redundant",
        "a rank",
        "balancedness",
        "worst layer",
        "held out",
        "/ bound",
        "largest load",
    )
    show(
        f"{experts} experts on {ranks} ranks: slots must be a multiple of {ranks}",
        table((*columns, "more memory a rank", ""), (_row(row, ranks, size) for row in rows), left=0),
    )


def _row(row: Redundancy, ranks: int, expert_bytes: float | None) -> tuple[str, ...]:
    from ..hardware.units import format_bytes, format_s

    def digits(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    largest = "-"
    if row.step_s is not None:
        largest = format_s(row.step_s) if expert_bytes is not None else f"{row.step_s:.0f} tokens"
    memory = "-" if expert_bytes is None else format_bytes(row.redundant / ranks * expert_bytes)
    return (
        *(str(row.slots), str(row.redundant), str(row.slots_per_rank)),
        *(digits(row.balancedness), digits(row.worst_balancedness), digits(row.held_out_balancedness)),
        *(digits(row.max_over_bound), largest, memory, row.fault),
    )


def _numbers(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise UsageError(f"{text!r} are no numbers of slots", where="--slots", fix="as in 256,288") from error
    if found[0] < 1:
        raise UsageError(f"{found[0]} slots hold nothing", where="--slots", fix="give positive numbers")
    return found
