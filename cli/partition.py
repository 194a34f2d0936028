"""`moeplan partition`: which experts of a layer the GPU computes, and which PIM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import BadInput, UsageError
from . import parameters
from .console import note, show, show_json, table
from .options import parse_budget, parse_layers
from .traffic import Replay, read_traffic

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.partition.compare import PolicyMeans
    from ..placement.partition.problem import PartitionProblem
    from ..workload.model import MoEModel

FAMILY = "partition"
_INPUT, _SEARCH, _OUTPUT = "What to split", "How to split", "What to print"
Layout = Literal["tp", "ep"]

_Model = Annotated[str, parameters.model(_INPUT)]
_Platform = Annotated[str, parameters.platform(_INPUT, which=" with GPU and PIM")]
_TokensPerExpert = Annotated[
    Path | None,
    typer.Option(
        help="One layer in one step: a whole number per expert (text or JSON).", rich_help_panel=_INPUT
    ),
]
_Trace = Annotated[Path | None, parameters.trace(_INPUT, help="Routing trace (.parquet), all layers.")]
_Batch = Annotated[int | None, parameters.batch(_INPUT, help="Tokens of a step of the trace (default: 32).")]
_Steps = Annotated[int | None, parameters.steps(_INPUT, help="Steps of the trace (default: 16).")]
_Layers = Annotated[
    str | None,
    typer.Option(
        help="Layers, as in 3-5,8 (default: all of the trace; with counts, the first MoE layer).",
        rich_help_panel=_INPUT,
    ),
]
_Layout = Annotated[
    Layout,
    typer.Option(
        help="Every expert over all channels (tp, Sieve), or on one of its own (ep, PIMoE).",
        rich_help_panel=_INPUT,
    ),
]
_Context = Annotated[int, parameters.pim_context(_INPUT)]
_Comm = Annotated[
    str, typer.Option(metavar="TIME", help="Communication between GPUs.", rich_help_panel=_INPUT)
]

_Policy = Annotated[
    str,
    typer.Option(
        metavar="NAME|all",
        help="See moeplan solvers partition; all: the published ones, fast and exact.",
        rich_help_panel=_SEARCH,
    ),
]
_Budget = Annotated[
    str, typer.Option(help="Per layer and step, where a policy searches.", rich_help_panel=_SEARCH)
]
_Seed = Annotated[int, parameters.seed("Of replay and search.", _SEARCH)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def partition(
    model: _Model,
    platform: _Platform,
    tokens_per_expert: _TokensPerExpert = None,
    trace: _Trace = None,
    batch: _Batch = None,
    steps: _Steps = None,
    layers: _Layers = None,
    layout: _Layout = "tp",
    context: _Context = 1024,
    comm: _Comm = "0s",
    policy: _Policy = "all",
    budget: _Budget = "2s",
    seed: _Seed = 0,
    json: _Json = False,
) -> None:
    """Split the experts of MoE layers between a GPU and its PIM channels, by every policy.

    Times are means over layers and steps: total = max(communication, GPU, PIM). The bound is what no split
    can beat.
    """
    from ..hardware.platform import load_platform
    from ..hardware.units import TIME, parse
    from ..placement.partition.compare import compare
    from ..placement.partition.layer import partition_layer
    from ..workload.model import load_model

    shapes, machine = load_model(model), load_platform(platform)
    comm_s, limits, policies = parse(comm, TIME), parse_budget(budget), _policies(policy)
    # Before a trace is replayed: a machine without GPU or PIM, or a model that does not fit, is refused here.
    partition_layer(shapes, machine, layer=shapes.moe_layers[0], layout=layout)
    if (tokens_per_expert is None) == (trace is None):
        raise UsageError(
            "give either --tokens-per-expert or --trace", fix="a file of token counts, or a routing trace"
        )
    if trace is not None:
        how = Replay(batch or 32, steps or 16, seed, 0.0)
        problems = _of_trace(trace, shapes, machine, how, layers, layout, context, comm_s)
    else:
        assert tokens_per_expert is not None
        refuse_with_counts({"--batch": batch, "--steps": steps})
        layer = _one_layer(layers, shapes)
        problems = [_of_counts(tokens_per_expert, shapes, machine, layer, layout, context, comm_s)]
    means = compare(problems, policies, budget=limits, seed=seed)
    if json:
        show_json(
            {"model": shapes.name, "platform": machine.name, "layout": layout, "policies": answer(means)}
        )
    else:
        _show(means, f"{shapes.name} on {machine.name}, layout {layout}")


def answer(means: Iterable[PolicyMeans]) -> list[dict[str, Any]]:
    """What `--json` prints of every policy."""
    return [
        {
            "policy": row.policy,
            "total_s": row.total_s,
            "t_gpu_s": row.t_gpu_s,
            "t_pim_s": row.t_pim_s,
            "t_comm_s": row.t_comm_s,
            "bound_s": row.bound_s,
            "gap": row.gap,
            "gpu_experts": row.gpu_experts,
        }
        for row in means
    ]


def read_counts(path: Path, experts: int) -> list[int]:
    """Read one whole number per expert, separated by spaces, lines or commas, in brackets or not.

    Raises BadInput that names the first word that is none, or how many there are.
    """
    from ..common.files import read_text

    words = re.split(r"[\s,]+", read_text(path, "file of token counts").strip().strip("[]").strip())
    for index, word in enumerate(words):
        if not re.fullmatch(r"\d{1,15}", word):
            raise BadInput(
                f"{word!r} is no token count" if word else "there are no token counts",
                where=f"{path}, value {index + 1}",
                allowed="whole numbers from 0 to 999999999999999, separated by spaces, lines or commas",
                fix="write one number per expert",
            )
    if len(words) != experts:
        raise BadInput(
            f"there are {len(words)} token counts",
            where=str(path),
            allowed=f"{experts} experts",
            fix="give one count per expert, zeros included",
        )
    return [int(word) for word in words]


def refuse_with_counts(options: dict[str, object]) -> None:
    """Raise UsageError where an option of the trace was given beside a file of token counts."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"{name} goes with --trace, not with --tokens-per-expert", fix=f"leave out {name}"
            )


def _one_layer(layers: str | None, model: MoEModel) -> int:
    wanted = model.moe_layers[:1] if layers is None else parse_layers(layers, model.moe_layers, model.name)
    if len(wanted) != 1:
        raise UsageError("token counts are of one layer", where="--layers", fix="name one layer")
    return wanted[0]


def _policies(policy: str) -> tuple[str, ...]:
    from ..placement.partition.compare import COMPARED
    from ..placement.registry import find

    return COMPARED if policy == "all" else (find(FAMILY, policy).name,)


def _of_counts(
    path: Path,
    model: MoEModel,
    platform: Platform,
    layer: int,
    layout: Layout,
    context: int,
    comm_s: float,
) -> PartitionProblem:
    import numpy as np

    from ..placement.partition.layer import partition_layer

    counts = read_counts(path, model.experts)
    posed = partition_layer(model, platform, layer=layer, layout=layout)
    requests = -(-sum(counts) // model.top_k)
    attention_s = requests * posed.attention_s([context]) if context and requests else 0.0
    return posed.problem(np.array(counts), attention_s=attention_s, comm_s=comm_s, batch=requests)


def _of_trace(
    path: Path,
    model: MoEModel,
    platform: Platform,
    how: Replay,
    layers: str | None,
    layout: Layout,
    context: int,
    comm_s: float,
) -> Iterable[PartitionProblem]:
    from ..placement.partition.compare import load_problems

    traffic = read_traffic(path, model, how)
    note(traffic.profile.note)
    return load_problems(
        model,
        platform,
        traffic.profile,
        layout=layout,
        layers=traffic.layers(layers),
        context=context,
        comm_s=comm_s,
    )


def _show(means: list[PolicyMeans], title: str) -> None:
    sieve_s = next((row.total_s for row in means if row.policy == "sieve"), None)
    columns = ("policy", "total us", "GPU us", "PIM us", "comm us", "bound us", "gap", "GPU experts")
    rows = []
    for row in means:
        times = (row.total_s, row.t_gpu_s, row.t_pim_s, row.t_comm_s, row.bound_s)
        cells = [row.policy, *(f"{seconds * 1e6:,.1f}" for seconds in times)]
        cells += [f"{row.gap:.2%}", f"{row.gpu_experts:.1f}"]
        rows.append([*cells, f"{row.total_s / sieve_s:.3f}"] if sieve_s else cells)
    show(table((*columns, "/ sieve") if sieve_s else columns, rows, title=title))
