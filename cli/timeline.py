"""`moeplan timeline`: one MoE layer executed task by task, against what max(T_comm, T_gpu, T_pim) expects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import NothingFound, UsageError
from .console import note, show, show_json, table
from .options import LONGEST_CONTEXT, check_outputs, parse_budget, parse_layers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..placement.partition.layer import LayoutName, PartitionLayer
    from ..placement.partition.problem import PartitionProblem, Times
    from ..placement.problem import Bound
    from ..placement.result import Budget
    from ..schedule.layer import Estimate, LayerWork
    from ..schedule.optimal import Optimum
    from ..schedule.timeline import TaskGraph, Timeline
    from ..schedule.work import Routed
    from ..workload.model import MoEModel

_INPUT, _SEARCH, _OUTPUT = "What runs", "How it is split and ordered", "What to write"


@dataclass(frozen=True)
class Source:
    """Where the tokens of the layer come from: a file of counts, or one step of a replayed trace."""

    counts: Path | None
    trace: Path | None
    batch: int
    layer: int | None
    step: int
    gpus: int
    seed: int


@dataclass(frozen=True, eq=False)
class Question:
    """One layer of one GPU, and the question which of its experts run there."""

    layer: PartitionLayer
    routed: Routed
    problem: PartitionProblem


@dataclass(frozen=True, eq=False)
class Row:
    """One mode: its list schedule, and the search for the best order where that was asked for."""

    mode: str
    timeline: Timeline
    bound: Bound
    optimum: Optimum | None


def timeline(
    model: Annotated[
        str, typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=_INPUT)
    ],
    platform: Annotated[
        str, typer.Option(help="Preset or YAML file with GPU and PIM.", rich_help_panel=_INPUT)
    ],
    tokens_per_expert: Annotated[
        Path | None,
        typer.Option(help="Whole numbers, one per expert (text or JSON).", rich_help_panel=_INPUT),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Or a routing trace (.parquet).", rich_help_panel=_INPUT)
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a step of the trace (default: 32).", rich_help_panel=_INPUT),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Absolute id (default: the first MoE layer).", rich_help_panel=_INPUT)
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=0, help="Decode step of the trace (default: 0).", rich_help_panel=_INPUT),
    ] = None,
    gpus: Annotated[
        int,
        typer.Option(
            min=1, help="GPUs that share experts and batch; the busiest is shown.", rich_help_panel=_INPUT
        ),
    ] = 1,
    context: Annotated[
        int,
        typer.Option(
            min=0,
            max=LONGEST_CONTEXT,
            help="Tokens that attention on PIM looks back to (0: none).",
            rich_help_panel=_INPUT,
        ),
    ] = 1024,
    layout: Annotated[
        Literal["tp", "ep"],
        typer.Option(help="Experts over all PIM channels, or each on one.", rich_help_panel=_INPUT),
    ] = "tp",
    policy: Annotated[
        str, typer.Option(help="Which experts run on the GPU; see moeplan solvers.", rich_help_panel=_SEARCH)
    ] = "sieve",
    gpu_experts: Annotated[
        str | None, typer.Option(help="Or name them, as in 3-5,8.", rich_help_panel=_SEARCH)
    ] = None,
    scheduler: Annotated[
        str, typer.Option(help="Time that the decision takes.", rich_help_panel=_SEARCH)
    ] = "20 us",
    mode: Annotated[
        Literal["serial", "per-device", "overlapped", "all"],
        typer.Option(help="What may run at the same time.", rich_help_panel=_SEARCH),
    ] = "all",
    optimal: Annotated[
        bool, typer.Option("--optimal", help="Also search for the best order.", rich_help_panel=_SEARCH)
    ] = False,
    budget: Annotated[
        str,
        typer.Option(help="Of that search: 5s, or 20000it, which repeats exactly.", rich_help_panel=_SEARCH),
    ] = "5s",
    seed: Annotated[int, typer.Option(min=0, help="Of replay and search.", rich_help_panel=_SEARCH)] = 0,
    svg: Annotated[Path | None, typer.Option(help="Gantt picture.", rich_help_panel=_OUTPUT)] = None,
    chrome: Annotated[
        Path | None, typer.Option(help="Trace for ui.perfetto.dev (.json).", rich_help_panel=_OUTPUT)
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Execute one MoE layer on GPU, interconnect and PIM, and say how far the partition's estimate is off.

    The estimate is max(T_comm, T_gpu, T_pim) of Sieve. Attention comes before the router: its projections
    on the GPU, the rest on PIM.
    """
    from ..hardware.platform import load_platform
    from ..hardware.units import TIME, parse
    from ..placement.partition.problem import Decision
    from ..schedule.layer import MODES, estimate, layer_graph
    from ..schedule.work import layer_work
    from ..workload.model import load_model

    if tokens_per_expert is not None:
        from .partition import refuse_with_counts

        refuse_with_counts({"--batch": batch, "--step": step})
    source = Source(tokens_per_expert, trace, batch or 32, layer, step or 0, gpus, seed)
    limits, scheduler_s = parse_budget(budget), parse(scheduler, TIME)
    check_outputs(
        {"--svg": svg, "--chrome": chrome}, {"--trace": trace, "--tokens-per-expert": tokens_per_expert}
    )
    asked = _pose(load_model(model), load_platform(platform), source, layout, context)
    on_gpu = _named(gpu_experts, asked) if gpu_experts is not None else _chosen(policy, asked, limits, seed)
    work = layer_work(asked.layer, asked.problem, asked.routed, on_gpu, scheduler_s=scheduler_s)
    graph, expected = layer_graph(work), asked.problem.times(Decision(on_gpu))
    modes = MODES if mode == "all" else (mode,)
    rows = [_run(graph, each, limits if optimal else None, seed) for each in modes]
    _write(rows, asked, expected.total_s, svg, chrome)
    if json:
        show_json(
            {
                "model": asked.layer.model.name,
                "platform": asked.layer.platform.name,
                "layer": asked.layer.layer,
                "step": step if trace else None,
                "gpus": gpus,
                "layout": layout,
                "policy": "named" if gpu_experts is not None else policy,
                "gpu_experts": work.gpu.ids.tolist(),
                "pim_experts": work.pim.ids.tolist(),
                "expected": _parts(expected.comm_s, expected.gpu_s, expected.pim_s),
                "expected_of_tasks": _parts(*estimate(graph)),
                "timelines": [_answer(row, expected.total_s) for row in rows],
                "svg": svg and str(svg),
                "chrome": chrome and str(chrome),
            }
        )
        return
    _show(rows, work, expected, estimate(graph))


def _pose(model: MoEModel, platform: Platform, source: Source, layout: LayoutName, context: int) -> Question:
    """Find the tokens of the layer, and ask where its experts run."""
    from ..placement.partition.layer import partition_layer
    from ..schedule.work import one_gpu

    if (source.counts is None) == (source.trace is None):
        raise UsageError("give the tokens of the experts", allowed="--tokens-per-expert or --trace")
    if source.counts is not None and source.gpus > 1:
        raise UsageError(
            "counts do not say which GPU a token comes from", where="--gpus", fix="use --trace, or one GPU"
        )
    layer_id = source.layer if source.layer is not None else model.moe_layers[0]
    if source.trace is not None:
        layer_id, routed = _from_trace(model, platform, source, source.trace)
    else:
        assert source.counts is not None
        routed = one_gpu(_counts(source.counts, model.experts), model.top_k)
    layer = partition_layer(model, platform, layer=layer_id, layout=layout, experts=routed.experts.size)
    problem = layer.problem(
        routed.tokens,
        attention_s=layer.attention_s([context] * routed.batch) if context else 0.0,
        comm_s=sum(routed.exchange),
        batch=routed.batch,
    )
    return Question(layer, routed, problem)


def _from_trace(model: MoEModel, platform: Platform, source: Source, path: Path) -> tuple[int, Routed]:
    """Replay the trace up to the step; return the layer's absolute id, and the busiest GPU's work."""
    from ..schedule.work import busiest_gpu
    from .traffic import Replay, read_traffic

    load = read_traffic(path, model, Replay(source.batch, source.step + 1, source.seed, 0.0)).profile
    note(load.note)
    wanted = load.layers[0] if source.layer is None else source.layer
    (layer,) = parse_layers(str(wanted), load.layers, "the trace")
    chosen = load.experts[source.step, :, load.layers.index(layer)]
    return layer, busiest_gpu(chosen, model, platform, source.gpus)


def _counts(path: Path, experts: int) -> NDArray[np.int64]:
    """Read tokens per expert, int64 [E]. Raises BadInput where they are not one whole number per expert."""
    import numpy as np

    from .partition import read_counts

    return np.array(read_counts(path, experts), dtype=np.int64)


def _named(text: str, asked: Question) -> NDArray[np.bool_]:
    """Read a list of absolute expert ids; "" names none."""
    import numpy as np

    from ..workload.model_file import expand_layers

    try:
        ids = expand_layers(text.replace(" ", "").split(",")) if text.strip() else ()
    except ValueError as error:
        raise UsageError(
            f"{text!r} names no experts", where="--gpu-experts", allowed='ids and ranges, as in "3-5,8"'
        ) from error
    own = asked.routed.experts
    strangers = sorted(set(ids) - set(own.tolist()))
    if strangers:
        raise UsageError(
            f"there is no expert {strangers[0]} on this GPU",
            where="--gpu-experts",
            allowed=f"{own[0]} to {own[-1]}",
        )
    return np.isin(own, ids)


def _chosen(policy: str, asked: Question, budget: Budget, seed: int) -> NDArray[np.bool_]:
    """Let a solver of the partition family decide."""
    from ..placement.solve import solve

    decision = solve(asked.problem, policy, budget=budget, seed=seed).decision
    if decision is None:
        raise NothingFound(f"{policy} found no partition within the budget", fix="raise --budget")
    return decision.on_gpu


def _run(graph: TaskGraph, mode: str, budget: Budget | None, seed: int) -> Row:
    from ..schedule.layer import in_mode
    from ..schedule.optimal import lower_bound, optimal
    from ..schedule.timeline import list_schedule

    on_devices = in_mode(graph, mode)
    if budget is None:
        return Row(mode, list_schedule(on_devices), lower_bound(on_devices), None)
    best = optimal(on_devices, budget=budget, seed=seed)
    return Row(mode, best.listed, best.bound, best)


def _write(
    rows: list[Row], asked: Question, expected_s: float, svg: Path | None, chrome: Path | None
) -> None:
    """Write the pictures that were asked for."""
    from ..common.files import write_text
    from ..schedule.chrome_trace import write_chrome_trace
    from ..schedule.gantt import gantt_svg

    drawn = _drawn(rows)
    if svg is not None:
        name = f"{asked.layer.model.name} on {asked.layer.platform.name}, layer {asked.layer.layer}"
        write_text(svg, gantt_svg(drawn, title=name, expected_s=expected_s))
    if chrome is not None:
        write_chrome_trace(drawn, chrome)


def _drawn(rows: list[Row]) -> dict[str, Timeline]:
    """Return the timelines by name; best orders only where they gain something."""
    drawn = {}
    for row in rows:
        drawn[row.mode] = row.timeline
        if row.optimum and row.optimum.timeline.makespan_s < row.timeline.makespan_s:
            drawn[f"{row.mode}, best order"] = row.optimum.timeline
    return drawn


def _parts(t_comm_s: float, t_gpu_s: float, t_pim_s: float) -> dict[str, float]:
    total_s = max(t_comm_s, t_gpu_s, t_pim_s)
    return {"t_comm_s": t_comm_s, "t_gpu_s": t_gpu_s, "t_pim_s": t_pim_s, "total_s": total_s}


def _answer(row: Row, expected_s: float) -> dict[str, Any]:
    line, best = row.timeline, row.optimum
    return {
        "mode": row.mode,
        **_length(line, row.bound, expected_s),
        "busy_share": line.busy_share,
        "critical_path": [
            {
                "task": line.graph.names[task],
                "kind": line.graph.kinds[task],
                "start_s": float(line.start_s[task]),
                "end_s": float(line.end_s[task]),
            }
            for task in line.critical_path
        ],
        "optimal": best
        and {**_length(best.timeline, best.bound, expected_s), "list_gap": best.list_gap, "stop": best.stop},
    }


def _length(line: Timeline, bound: Bound, expected_s: float) -> dict[str, Any]:
    from ..schedule.optimal import gap_to

    return {
        "makespan_s": line.makespan_s,
        "over_expected": line.makespan_s / expected_s - 1.0 if expected_s else None,
        "bound_s": bound.value_s,
        "bound_by": bound.by,
        "gap": gap_to(bound, line),
    }


def _show(rows: list[Row], work: LayerWork, expected: Times, of_tasks: Estimate) -> None:
    from ..hardware.units import format_s
    from ..schedule.gantt import gantt_text

    drawn = _drawn(rows)
    bounds = {row.mode: row.bound for row in rows}
    lines = []
    for name, line in drawn.items():
        length = _length(line, bounds[name.partition(",")[0]], expected.total_s)
        over = length["over_expected"]
        over_text = "-" if over is None else f"{over:+.1%}"
        times = format_s(line.makespan_s), over_text, format_s(length["bound_s"]), f"{length['gap']:.2%}"
        lines.append((name, *times, _critical(line)))
    show(
        f"{work.gpu.ids.size} experts on the GPU, {work.pim.ids.size} on PIM",
        f"max(...) = {_maximum(expected.comm_s, expected.gpu_s, expected.pim_s)}",
        f"the same of the tasks below: {_maximum(*of_tasks)}",
        table(("executed", "time", "over max(...)", "bound", "gap", "critical path"), lines),
        gantt_text(drawn),
    )


def _maximum(t_comm_s: float, t_gpu_s: float, t_pim_s: float) -> str:
    from ..hardware.units import format_s

    parts = f"T_comm {format_s(t_comm_s)}, T_gpu {format_s(t_gpu_s)}, T_pim {format_s(t_pim_s)}"
    return f"{format_s(max(t_comm_s, t_gpu_s, t_pim_s))} ({parts})"


def _critical(line: Timeline) -> str:
    """Say what the critical path is made of, the most first."""
    spent: dict[str, float] = {}
    for task in line.critical_path:
        kind = line.graph.kinds[task]
        spent[kind] = spent.get(kind, 0.0) + float(line.graph.duration_s[task])
    most = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {seconds / line.makespan_s:.0%}" for kind, seconds in most if seconds)
