"""`moeplan pareto`: what policies make of every batch size, for the user and for the machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import UsageError
from .console import show, show_json, table
from .options import LONGEST_CONTEXT, check_outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..benchmarks.pareto import Point
    from ..schedule.decode import Policy, Setup
    from ..workload.load import Load

_INPUT, _OUTPUT = "What to serve", "What to write"


def pareto(
    model: Annotated[str, typer.Option(help="Preset, YAML file or config.json.", rich_help_panel=_INPUT)],
    platform: Annotated[
        str, typer.Option(help="Preset or YAML file with GPU and PIM.", rich_help_panel=_INPUT)
    ] = "b200-hbmpim",
    gpus: Annotated[
        int, typer.Option(min=1, help="GPUs that share the experts.", rich_help_panel=_INPUT)
    ] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="GPUs that share attention.", rich_help_panel=_INPUT)
    ] = 1,
    batches: Annotated[
        str, typer.Option(help="Requests in a step, of all GPUs together.", rich_help_panel=_INPUT)
    ] = "8,16,32,64,128,256,512",
    contexts: Annotated[
        str, typer.Option(help="Tokens that every request attends to.", rich_help_panel=_INPUT)
    ] = "1024",
    prefill: Annotated[
        int, typer.Option(min=0, max=10_000, help="Prompts in every batch.", rich_help_panel=_INPUT)
    ] = 0,
    prefill_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Tokens of a prompt (1024).", rich_help_panel=_INPUT),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Routing trace (default: synthetic).", rich_help_panel=_INPUT)
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Decode steps, with a trace (default: 4).", rich_help_panel=_INPUT),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Solver of the family partition; repeatable (default: as in Sieve).", rich_help_panel=_INPUT
        ),
    ] = None,
    timing: Annotated[
        Literal["estimate", "timeline"],
        typer.Option(
            help="A layer takes max(T_comm, T_gpu, T_pim), or as long as its tasks.", rich_help_panel=_INPUT
        ),
    ] = "estimate",
    seed: Annotated[int, typer.Option(min=0, help="Of routing and prompts.", rich_help_panel=_INPUT)] = 0,
    svg: Annotated[Path | None, typer.Option(help="Picture.", rich_help_panel=_OUTPUT)] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead.", rich_help_panel=_OUTPUT)
    ] = False,
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
    points: list[Point] = []
    for context in _numbers(contexts, "--contexts"):
        asked = dataclasses.replace(setup, context=context)
        points += sweep(asked, sizes, loads, _policies(policy or []))
    if svg is not None:
        draw(points, svg)
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
    return [known.get(name) or Policy(find("partition", name).name) for name in names] or list(POLICIES)


def _numbers(text: str, option: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > LONGEST_CONTEXT or len(set(found)) < len(found):
        raise UsageError(
            f"{text!r} is no list of different whole numbers above 0",
            where=option,
            fix="for example 8,32,128",
        )
    return found


def _answer(points: list[Point], timing: str, svg: Path | None, json: bool) -> None:
    if json:
        rows = [dataclasses.asdict(point) for point in points]
        answer: dict[str, Any] = {"timing": timing, "points": rows, "svg": svg and str(svg)}
        show_json(answer)
        return
    columns = (
        "policy", "context", "batch", "TPOT ms", "tokens/s/user", "tokens/s/GPU",
        "comm us", "GPU us", "PIM us",
    )  # fmt: skip
    cells = (
        (
            p.policy, p.context, p.batch, f"{p.tpot_s * 1e3:.3f}", f"{p.tokens_per_s_per_user:,.1f}",
            f"{p.tokens_per_s_per_gpu:,.0f}", *(f"{s * 1e6:,.0f}" for s in (p.comm_s, p.gpu_s, p.pim_s)),
        )
        for p in points
    )  # fmt: skip
    first = points[0]
    title = f"{first.model} on {first.gpus} GPU{'s' if first.gpus > 1 else ''}, {timing} of every layer"
    show(table(columns, cells, title=title))
    if svg is not None:
        show(f"picture: {svg}")
