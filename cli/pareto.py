"""`moeplan pareto`: what policies make of every batch size, for the user and for the machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import UsageError
from . import parameters
from .console import show, show_json, table, warn
from .options import LONGEST_CONTEXT, check_outputs, parse_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..benchmarks.pareto import Point
    from ..schedule.decode import Policy, Setup
    from ..workload.load import Load

_INPUT, _OUTPUT = "What to serve", "What to write"

_Model = Annotated[str, parameters.model(_INPUT)]
_Platform = Annotated[str, parameters.platform(_INPUT, which=" with GPU and PIM")]
_Gpus = Annotated[int, parameters.expert_gpus(_INPUT)]
_TensorParallel = Annotated[int, parameters.tensor_parallel(_INPUT)]
_Batches = Annotated[
    str, typer.Option(help="Requests in a step, of all GPUs together.", rich_help_panel=_INPUT)
]
_Contexts = Annotated[str, typer.Option(help="Tokens that every request attends to.", rich_help_panel=_INPUT)]
_Prefill = Annotated[int, parameters.prefill(_INPUT)]
_PrefillTokens = Annotated[int | None, parameters.prefill_tokens(_INPUT, help="Tokens of a prompt (1024).")]
_Trace = Annotated[Path | None, parameters.trace(_INPUT, help="Routing trace (default: synthetic).")]
_Steps = Annotated[int | None, parameters.steps(_INPUT, help="Decode steps, with a trace (default: 4).")]
_Policies = Annotated[
    list[str] | None,
    typer.Option(
        help="Solver of the family partition; repeatable (default: as in Sieve).", rich_help_panel=_INPUT
    ),
]
_Timing = Annotated[parameters.Timing, parameters.timing(_INPUT)]
_Seed = Annotated[int, parameters.seed("Of routing and prompts.", _INPUT)]

_Svg = Annotated[Path | None, parameters.picture(_OUTPUT)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def pareto(
    model: _Model,
    platform: _Platform = "b200-hbmpim",
    gpus: _Gpus = 1,
    tensor_parallel: _TensorParallel = 1,
    batches: _Batches = "8,16,32,64,128,256,512",
    contexts: _Contexts = "1024",
    prefill: _Prefill = 0,
    prefill_tokens: _PrefillTokens = None,
    trace: _Trace = None,
    steps: _Steps = None,
    policy: _Policies = None,
    timing: _Timing = "estimate",
    seed: _Seed = 0,
    svg: _Svg = None,
    json: _Json = False,
) -> None:
    """Sweep batch sizes and contexts: tokens per second and user against tokens per second and GPU.

    Policies run on the same steps: all experts on the GPU or on PIM, PIMoE, Sieve, and the proven optimum of
    Sieve's estimate.
    """
    from ..benchmarks.pareto import draw, sweep
    from ..hardware.platform import load_platform
    from ..schedule.decode import Prefill, Setup
    from ..workload.model import load_model

    check_outputs({"--svg": svg}, {"--trace": trace, "--model": model, "--platform": platform})
    if steps is not None and trace is None:
        raise UsageError("only a trace has steps to choose", where="--steps", fix="name one with --trace")
    if prefill_tokens is not None and not prefill:
        raise UsageError("there is no prompt", where="--prefill-tokens", fix="ask for some with --prefill")
    sizes = _numbers(batches, "--batches")
    for size in sizes:
        if size % gpus:
            raise UsageError(
                f"{size} requests cannot be split evenly over {gpus} GPUs",
                where="--batches",
                fix=f"choose multiples of {gpus}",
            )
    shapes = load_model(model)
    setup = Setup(
        shapes, load_platform(platform), gpus=gpus, tensor_parallel=tensor_parallel,
        prefill=Prefill(prefill, prefill_tokens or 1024), timing=timing,
    )  # fmt: skip
    loads = _loads(setup, model, trace, steps or 4, seed)
    policies = _policies(policy or [])
    points: list[Point] = []
    for context in _numbers(contexts, "--contexts"):
        asked = dataclasses.replace(setup, context=context)
        points += sweep(asked, sizes, loads, policies)
    if svg is not None:
        draw(points, svg)
    _warn_of_memory(points)
    _answer(points, timing, svg, json)


def _loads(setup: Setup, model: str, trace: Path | None, steps: int, seed: int) -> Callable[[int], Load]:
    from ..benchmarks.pareto import synthetic_load
    from .traffic import Replay, read_traffic

    if trace is None:
        return lambda batch: synthetic_load(model, batch, seed)
    return lambda batch: read_traffic(trace, setup.model, Replay(batch, steps, seed, 0.0)).profile


def _policies(names: list[str]) -> list[Policy]:
    from ..placement.registry import find
    from ..schedule.decode import POLICIES, Policy

    known = {policy.solver: policy for policy in POLICIES}
    chosen = [known.get(name) or Policy(find("partition", name).name) for name in names]
    solvers = [policy.solver for policy in chosen]
    if len(set(solvers)) < len(solvers):
        raise UsageError(
            f"{', '.join(names)} are no different policies", where="--policy", allowed="each once"
        )
    return chosen or list(POLICIES)


def _numbers(text: str, option: str) -> list[int]:
    found = parse_numbers(text, option, int, "8,32,128")
    if max(found) > LONGEST_CONTEXT or len(set(found)) < len(found):
        raise UsageError(
            f"{text!r} are no different numbers", where=option, allowed=f"1 to {LONGEST_CONTEXT}, each once"
        )
    return found


def _warn_of_memory(points: list[Point]) -> None:
    unfit = [point for point in points if not point.memory.fits]
    if unfit:
        worst = max(unfit, key=lambda point: point.memory.memory_bytes)
        warn(
            f"{len(unfit)} of {len(points)} points do not fit; at context {worst.context} and batch "
            f"{worst.batch} {worst.memory.shortage}"
        )


def _row(point: Point) -> dict[str, Any]:
    row = dataclasses.asdict(point)
    del row["memory"]
    return row | point.memory.figures


def _answer(points: list[Point], timing: str, svg: Path | None, json: bool) -> None:
    if json:
        rows = [_row(point) for point in points]
        answer: dict[str, Any] = {"timing": timing, "points": rows, "svg": svg and str(svg)}
        show_json(answer)
        return
    all_fit = all(point.memory.fits for point in points)
    columns = (
        "policy", "context", "batch", "TPOT ms", "tokens/s/user", "tokens/s/GPU",
        "comm us", "GPU us", "PIM us",
        *(() if all_fit else ("fits",)),
    )  # fmt: skip
    cells = (
        (
            p.policy, p.context, p.batch, f"{p.tpot_s * 1e3:.3f}", f"{p.tokens_per_s_per_user:,.1f}",
            f"{p.tokens_per_s_per_gpu:,.0f}", *(f"{s * 1e6:,.0f}" for s in (p.comm_s, p.gpu_s, p.pim_s)),
            *(() if all_fit else ("yes" if p.memory.fits else "no",)),
        )
        for p in points
    )  # fmt: skip
    first = points[0]
    title = f"{first.model} on {first.gpus} GPU{'s' if first.gpus > 1 else ''}, {timing} of every layer"
    show(table(columns, cells, title=title))
    if svg is not None:
        show(f"picture: {svg}")
