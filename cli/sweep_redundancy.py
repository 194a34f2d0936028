"""`moeplan sweep-redundancy`: how many redundant experts are worth their memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import parameters
from .console import show, show_json, table
from .options import parse_budget, parse_numbers
from .plan_replicas import ReplicaOptions, pose, traffic_experts
from .planning import Request, cores
from .replica_inputs import refuse_with_counts
from .traffic import Replay, SplitBy, parse_held_out

if TYPE_CHECKING:
    from ..placement.replicas.problem import ReplicaProblem
    from ..placement.replicas.sweep import Redundancy
    from ..workload.model import MoEModel

_STEPS = 5


_Platform = Annotated[str, typer.Option(help="A GPU cluster: preset or YAML file.")]
_Load = Annotated[Path | None, typer.Option(help="Counts [L, E] or [S, L, E] (.npy), or .npz.")]
_Model = Annotated[str | None, typer.Option(help="Model, for a trace or for times.")]
_Trace = Annotated[Path | None, parameters.trace(help="Routing trace (.parquet) instead of counts.")]
_Batch = Annotated[int, parameters.batch()]
_Steps = Annotated[int, parameters.steps()]
_HeldOut = Annotated[str, typer.Option(metavar="SHARE|FILE", help="As in moeplan plan.")]
_Split = Annotated[SplitBy, parameters.split()]
_Layers = Annotated[str | None, typer.Option(help="Layers, as in 3-5,8.")]
_Nodes = Annotated[int | None, parameters.nodes()]
_RanksPerNode = Annotated[int | None, parameters.ranks_per_node()]
_Groups = Annotated[int, parameters.groups()]
_Slots = Annotated[
    str | None, typer.Option(help="Numbers of slots, as in 256,288,320 (default: the first that divide).")
]
_Solver = Annotated[str, parameters.solver()]
_Budget = Annotated[str, typer.Option(help="Per layer and number of slots.")]
_Seed = Annotated[int, parameters.seed("Of split, replay and search.")]


def sweep_redundancy(
    context: typer.Context,
    platform: _Platform = "gpu-cluster",
    load: _Load = None,
    model: _Model = None,
    trace: _Trace = None,
    batch: _Batch = 32,
    steps: _Steps = 128,
    held_out: _HeldOut = "0.5",
    split: _Split = "request",
    layers: _Layers = None,
    nodes: _Nodes = None,
    ranks_per_node: _RanksPerNode = None,
    groups: _Groups = 1,
    slots: _Slots = None,
    solver: _Solver = "auto",
    budget: _Budget = "500ms",
    seed: _Seed = 0,
    json: parameters.Json = False,
) -> None:
    """Plan with several numbers of slots: balance, time and memory against redundancy, and which divide."""
    from ..hardware.platform import load_platform
    from ..placement.planning import Search
    from ..placement.registry import find
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
    swept = _sweep(
        request,
        ReplicaOptions(load=load, nodes=nodes, ranks_per_node=ranks_per_node, groups=groups),
        slots,
    )
    if json:
        show_json(_answer(swept, request.model))
    else:
        _show(swept, request.model)


@dataclass(frozen=True, eq=False)
class _Swept:
    """What every number of slots reaches, for so many experts on so many ranks."""

    experts: int
    ranks: int
    numbers: list[int]
    rows: list[Redundancy]


def _sweep(request: Request, options: ReplicaOptions, slots: str | None) -> _Swept:
    """Plan with the numbers of slots of the option; None: the first that divide."""
    from ..placement.replicas.sweep import sweep_redundancy as sweep
    from ..placement.replicas.sweep import usable_slots

    experts, ranks = traffic_experts(request, options)
    if slots is not None:
        numbers = sorted(set(parse_numbers(slots, "--slots", int, "256,288")))
    else:
        first = -(-experts // ranks) * ranks
        numbers = usable_slots(experts, ranks, first + (_STEPS - 1) * ranks)

    def posed(number: int) -> list[ReplicaProblem]:
        return pose(request, replace(options, slots=number)).problems

    return _Swept(experts, ranks, numbers, list(sweep(posed, numbers, experts, ranks, request.search)))


def _answer(swept: _Swept, model: MoEModel | None) -> dict[str, Any]:
    """What `--json` prints."""
    from ..placement.replicas.ranks import nearest_multiples
    from ..placement.replicas.sweep import usable_slots

    experts, ranks, numbers = swept.experts, swept.ranks, swept.numbers
    return {
        "experts": experts,
        "ranks": ranks,
        "unit": "seconds" if model is not None else "tokens",
        "divides": usable_slots(experts, ranks, max(2 * experts, *numbers)),
        "nearest": {str(n): nearest_multiples(n, ranks) for n in numbers if n % ranks},
        "redundancy": [asdict(row) for row in swept.rows],
    }


def _show(swept: _Swept, model: MoEModel | None) -> None:
    ranks = swept.ranks
    size = model.expert_bytes * len(model.moe_layers) if model is not None else None
    columns = (
        *("slots", "redundant", "a rank", "balancedness", "worst layer", "held out", "/ bound"),
        *("largest load", "more memory a rank", ""),
    )
    show(
        f"{swept.experts} experts on {ranks} ranks: slots must be a multiple of {ranks}",
        table(columns, (_row(row, ranks, size) for row in swept.rows), left=0),
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
