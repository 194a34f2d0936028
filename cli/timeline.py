"""`moeplan timeline`: one MoE layer executed task by task, against what max(T_comm, T_gpu, T_pim) expects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import NothingFound, UsageError
from . import parameters
from .console import note, show_json
from .options import check_outputs, is_given, parse_budget, parse_layers
from .partition import FAMILY, Layout, read_counts, refuse_with_counts
from .timeline_answer import Executed, Row, answer, show_executed, write_pictures
from .traffic import Replay, read_traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..placement.partition.layer import PartitionLayer
    from ..placement.partition.problem import PartitionProblem
    from ..placement.registry import SolverInfo
    from ..placement.result import Budget
    from ..schedule.timeline import TaskGraph
    from ..schedule.work import Routed
    from ..workload.model import MoEModel

_INPUT, _SEARCH, _OUTPUT = "What runs", "How it is split and ordered", "What to write"

_Model = Annotated[str, parameters.model(_INPUT)]
_Platform = Annotated[str, parameters.platform(_INPUT, which=" with GPU and PIM")]
_TokensPerExpert = Annotated[
    Path | None, typer.Option(help="Whole numbers, one per expert (text or JSON).", rich_help_panel=_INPUT)
]
_Trace = Annotated[Path | None, parameters.trace(_INPUT, help="Or a routing trace (.parquet).")]
_Batch = Annotated[int | None, parameters.batch(_INPUT, help="Tokens of a step of the trace (default: 32).")]
_Layer = Annotated[
    int | None, typer.Option(help="Absolute id (default: the first MoE layer).", rich_help_panel=_INPUT)
]
_Step = Annotated[
    int | None, typer.Option(min=0, help="Decode step of the trace (default: 0).", rich_help_panel=_INPUT)
]
_Gpus = Annotated[
    int,
    typer.Option(
        min=1, help="GPUs that share experts and batch; the busiest is shown.", rich_help_panel=_INPUT
    ),
]
_Context = Annotated[int, parameters.pim_context(_INPUT)]
_Layout = Annotated[
    Layout, typer.Option(help="Experts over all PIM channels, or each on one.", rich_help_panel=_INPUT)
]

_Policy = Annotated[str, parameters.gpu_policy(_SEARCH)]
_GpuExperts = Annotated[str | None, typer.Option(help="Or name them, as in 3-5,8.", rich_help_panel=_SEARCH)]
_Scheduler = Annotated[str, typer.Option(help="Time that the decision takes.", rich_help_panel=_SEARCH)]
_Mode = Annotated[
    Literal["serial", "per-device", "overlapped", "all"],
    typer.Option(help="What may run at the same time.", rich_help_panel=_SEARCH),
]
_Optimal = Annotated[
    bool, typer.Option("--optimal", help="Also search for the best order.", rich_help_panel=_SEARCH)
]
_Budget = Annotated[
    str, typer.Option(help="Of that search: 5s, or 20000it, which repeats exactly.", rich_help_panel=_SEARCH)
]
_Seed = Annotated[int, parameters.seed("Of replay and search.", _SEARCH)]

_Svg = Annotated[Path | None, typer.Option(help="Gantt picture.", rich_help_panel=_OUTPUT)]
_Chrome = Annotated[
    Path | None, typer.Option(help="Trace for ui.perfetto.dev (.json).", rich_help_panel=_OUTPUT)
]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


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


def timeline(
    command: typer.Context,
    model: _Model,
    platform: _Platform,
    tokens_per_expert: _TokensPerExpert = None,
    trace: _Trace = None,
    batch: _Batch = None,
    layer: _Layer = None,
    step: _Step = None,
    gpus: _Gpus = 1,
    context: _Context = 1024,
    layout: _Layout = "tp",
    policy: _Policy = "sieve",
    gpu_experts: _GpuExperts = None,
    scheduler: _Scheduler = "20 us",
    mode: _Mode = "all",
    optimal: _Optimal = False,
    budget: _Budget = "5s",
    seed: _Seed = 0,
    svg: _Svg = None,
    chrome: _Chrome = None,
    json: _Json = False,
) -> None:
    """Execute one MoE layer on GPU, interconnect and PIM, and say how far the partition's estimate is off.

    The estimate is max(T_comm, T_gpu, T_pim) of Sieve. Attention comes before the router: its projections
    on the GPU, the rest on PIM.
    """
    from ..hardware.platform import load_platform
    from ..hardware.units import TIME, parse
    from ..placement.partition.problem import Decision
    from ..placement.registry import find
    from ..schedule.layer import MODES, estimate, layer_graph
    from ..schedule.work import layer_work
    from ..workload.model import load_model

    if tokens_per_expert is not None:
        refuse_with_counts({"--batch": batch, "--step": step})
    source = Source(tokens_per_expert, trace, batch or 32, layer, step or 0, gpus, seed)
    limits, scheduler_s = parse_budget(budget), parse(scheduler, TIME)
    check_outputs(
        {"--svg": svg, "--chrome": chrome}, {"--trace": trace, "--tokens-per-expert": tokens_per_expert}
    )
    _refuse_idle(command, gpu_experts is not None, find(FAMILY, policy), optimal)
    asked = _pose(load_model(model), load_platform(platform), source, layout, context)
    on_gpu = _named(gpu_experts, asked) if gpu_experts is not None else _chosen(policy, asked, limits, seed)
    work = layer_work(asked.layer, asked.problem, asked.routed, on_gpu, scheduler_s=scheduler_s)
    graph, expected = layer_graph(work), asked.problem.times(Decision(on_gpu))
    modes = MODES if mode == "all" else (mode,)
    rows = tuple(_run(graph, each, limits if optimal else None, seed) for each in modes)
    at = None if trace is None else source.step
    found = Executed(asked.layer, at, work, expected, estimate(graph), rows)
    write_pictures(found, svg, chrome)
    if not json:
        show_executed(found)
        return
    show_json(
        {
            "model": asked.layer.model.name,
            "platform": asked.layer.platform.name,
            "layer": asked.layer.layer,
            "step": found.step,
            "gpus": gpus,
            "layout": layout,
            "policy": "named" if gpu_experts is not None else policy,
            **answer(found),
            "svg": svg and str(svg),
            "chrome": chrome and str(chrome),
        }
    )


def _refuse_idle(command: typer.Context, is_named: bool, policy: SolverInfo, optimal: bool) -> None:
    """Raise UsageError on an option that would change nothing, before a trace is replayed."""
    if is_named and is_given(command, "policy"):
        raise UsageError(
            "--policy chooses the experts that --gpu-experts names", where="--policy", fix="leave one out"
        )
    if is_given(command, "budget") and not optimal and (is_named or not policy.anytime):
        raise UsageError(
            "--budget limits nothing here: there is no search", where="--budget",
            fix="add --optimal, or leave it out",
        )  # fmt: skip


def _check_step(source: Source, path: Path) -> None:
    """Raise UsageError on a step that the trace does not have without repeating itself."""
    from ..workload.stream import open_trace

    tokens = open_trace(path).tokens
    steps = tokens // source.batch
    if source.step >= steps > 0:
        raise UsageError(
            f"there is no step {source.step}: {tokens} tokens make {steps} steps of {source.batch}",
            where="--step", allowed=f"0 to {steps - 1}",
            fix="name an earlier step, a smaller --batch, or a longer trace",
        )  # fmt: skip


def _pose(model: MoEModel, platform: Platform, source: Source, layout: Layout, context: int) -> Question:
    """Find the tokens of the layer, and ask where its experts run."""
    from ..placement.partition.layer import partition_layer
    from ..schedule.work import one_gpu

    if (source.counts is None) == (source.trace is None):
        raise UsageError("give the tokens of the experts", allowed="--tokens-per-expert or --trace")
    if source.counts is not None and source.gpus > 1:
        raise UsageError(
            "counts do not say which GPU a token comes from", where="--gpus", fix="use --trace, or one GPU"
        )
    partition_layer(model, platform, layout=layout)  # refuses what does not fit before a trace is replayed
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

    _check_step(source, path)
    load = read_traffic(path, model, Replay(source.batch, source.step + 1, source.seed, 0.0)).profile
    note(load.note)
    wanted = load.layers[0] if source.layer is None else source.layer
    (layer,) = parse_layers(str(wanted), load.layers, "the trace", "--layer")
    chosen = load.experts[source.step, :, load.layers.index(layer)]
    return layer, busiest_gpu(chosen, model, platform, source.gpus)


def _counts(path: Path, experts: int) -> NDArray[np.int64]:
    """Read tokens per expert, int64 [E]. Raises BadInput where they are not one whole number per expert."""
    import numpy as np

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
