"""`moeplan simulate`: a whole decode step of a model on a machine, beside a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import BadInput, UsageError
from .options import parse_budget

if TYPE_CHECKING:
    from ..hardware.platform import Platform

_INPUT, _PLACE, _MACHINE, _GPU, _OUTPUT = (
    "What to run",
    "Where experts live",
    "What a machine with SRAM-PIM does",
    "What GPUs with PIM do",
    "What to print",
)
#: Options that only some families of machines have.
_ONLY = {
    **dict.fromkeys(
        (
            *("held_out", "layers", "solver", "budget", "profile_steps", "layout", "no_pruning", "alpha"),
            *("k_min", "assume_weights", "no_dynamic", "partition", "sub_batches", "no_sparse"),
            *("no_eviction", "kv_spread", "no_ring", "baseline"),
        ),
        ("spimoe",),
    ),
    **dict.fromkeys(
        ("policy", "gpus", "tensor_parallel", "timing", "prefill", "prefill_tokens"), ("gpu_pim",)
    ),
    "plan": ("spimoe", "cluster"),
}

#: Tokens of context up to which a cache is followed, paragraph by paragraph: far beyond any model.
_LONGEST = 10**7


def simulate(
    context_: typer.Context,
    model: Annotated[
        str, typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=_INPUT)
    ],
    trace: Annotated[Path, typer.Option(help="Routing trace (.parquet).", rich_help_panel=_INPUT)],
    platform: Annotated[
        str, typer.Option(help="Preset or YAML file with SRAM-PIM cores.", rich_help_panel=_INPUT)
    ] = "spimoe-4x8",
    batch: Annotated[int, typer.Option(min=1, help="Requests.", rich_help_panel=_INPUT)] = 32,
    context: Annotated[
        int,
        typer.Option(min=1, max=_LONGEST, help="Tokens of every request.", rich_help_panel=_INPUT),
    ] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Decode steps to run.", rich_help_panel=_INPUT)] = 8,
    held_out: Annotated[
        float,
        typer.Option(
            help="Share of requests that is run; solvers and predictors see the others (0: all are both).",
            rich_help_panel=_INPUT,
        ),
    ] = 0.5,
    layers: Annotated[
        str | None,
        typer.Option(
            help="MoE layers to run, whose mean stands for the others (default: all of the trace).",
            rich_help_panel=_INPUT,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of split, replay and search.", rich_help_panel=_INPUT)
    ] = 0,
    plan: Annotated[Path | None, typer.Option(help="A plan (.json).", rich_help_panel=_PLACE)] = None,
    solver: Annotated[
        str | None, typer.Option(help="Or plan now; see moeplan solvers channels.", rich_help_panel=_PLACE)
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Per layer, where a solver searches.", rich_help_panel=_PLACE)
    ] = ("2000it"),
    profile_steps: Annotated[
        int, typer.Option(min=1, help="Decode steps that the solver sees.", rich_help_panel=_PLACE)
    ] = 64,
    layout: Annotated[
        Literal["rows", "best"],
        typer.Option(
            help="Whole outputs per bank (published), or the fastest split over banks; a plan has its own.",
            rich_help_panel=_PLACE,
        ),
    ] = "best",
    no_pruning: Annotated[
        bool, typer.Option("--no-pruning", help="No adaptive routing.", rich_help_panel=_MACHINE)
    ] = False,
    alpha: Annotated[
        float,
        typer.Option(help="Adaptive routing: share of the largest weight to stay.", rich_help_panel=_MACHINE),
    ] = 0.3,
    k_min: Annotated[
        int | None,
        typer.Option(
            min=1, help="Experts that every token keeps (default: half of top-k).", rich_help_panel=_MACHINE
        ),
    ] = None,
    assume_weights: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help="For a trace without router weights: the i-th choice weighs RATIO**i.",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    no_dynamic: Annotated[
        bool,
        typer.Option("--no-dynamic", help="Equal sub-batches.", rich_help_panel=_MACHINE),
    ] = False,
    partition: Annotated[
        Literal["none", "static", "greedy", "dynamic", "oracle"] | None,
        typer.Option(
            help="Sub-batches: none, equal, packed by prediction as published, best by prediction (default), "
            "or best.",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    sub_batches: Annotated[
        int, typer.Option(min=1, help="Of the partition static.", rich_help_panel=_MACHINE)
    ] = 4,
    no_sparse: Annotated[
        bool, typer.Option("--no-sparse", help="Attention to all that is cached.", rich_help_panel=_MACHINE)
    ] = False,
    no_eviction: Annotated[
        bool, typer.Option("--no-eviction", help="Keep all keys and values.", rich_help_panel=_MACHINE)
    ] = False,
    kv_spread: Annotated[
        Literal["heads", "chunks"],
        typer.Option(
            help="Cached keys and values by heads, or chunk by chunk over all cores.",
            rich_help_panel=_MACHINE,
        ),
    ] = "heads",
    no_ring: Annotated[
        bool,
        typer.Option("--no-ring", help="Collectives in the order of ids.", rich_help_panel=_MACHINE),
    ] = False,
    policy: Annotated[
        str, typer.Option(help="Which experts run on the GPU; see moeplan solvers.", rich_help_panel=_GPU)
    ] = "sieve",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the experts.", rich_help_panel=_GPU)] = 1,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="GPUs that share attention.", rich_help_panel=_GPU)
    ] = 1,
    timing: Annotated[
        Literal["estimate", "timeline"],
        typer.Option(
            help="A layer takes max(T_comm, T_gpu, T_pim), or as long as its tasks.", rich_help_panel=_GPU
        ),
    ] = "timeline",
    prefill: Annotated[
        int, typer.Option(min=0, max=10_000, help="Prompts in every batch.", rich_help_panel=_GPU)
    ] = 0,
    prefill_tokens: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Tokens of a prompt.", rich_help_panel=_GPU)
    ] = 1024,
    baseline: Annotated[
        str, typer.Option(help="Platform with the GPU to compare with.", rich_help_panel=_OUTPUT)
    ] = "a100-80g",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Run decode steps of a whole model and say what a token takes, and what of it.

    SRAM-PIM machines (spimoe-4x8): attention on its cores, experts on HBM-PIM channels, sub-batch by
    sub-batch, beside a GPU. GPUs with PIM (b200-hbmpim): experts of every step split between both, beside all
    on the GPU. GPU clusters (h20x32): experts where a plan puts them, beside experts in order.
    """
    from ..hardware.platform import load_platform
    from ..workload.model import load_model

    machine = load_platform(platform)
    family = family_of(machine)
    _refuse_foreign(context_, family, machine.name)
    if no_dynamic and partition not in (None, "static"):
        raise UsageError(f"--no-dynamic and --partition {partition} contradict each other", fix="give one")
    if plan is not None and solver is not None:
        raise UsageError("--plan and --solver both say where experts live", fix="give one")
    pieces = partition or ("static" if no_dynamic else "dynamic")
    _refuse_unused(context_, plan is not None, no_pruning, pieces)
    shapes, gpu = load_model(model), load_platform(baseline)
    if family != "spimoe":
        from .simulate_gpu import GpuJob, run_cluster, run_gpu_pim

        asked = GpuJob(
            shapes, machine, trace, batch, context, steps, seed, plan, policy, gpus, tensor_parallel, timing,
            prefill, prefill_tokens,
        )  # fmt: skip
        (run_gpu_pim if family == "gpu_pim" else run_cluster)(asked, json)
    else:
        from .simulate_spimoe import Job, run

        run(
            Job(
                shapes, machine, gpu, trace, batch, context, steps, held_out, layers, seed, plan,
                solver or "lpt", parse_budget(budget), profile_steps, layout, None if no_pruning else alpha,
                k_min, assume_weights, pieces, sub_batches,
                not no_sparse, not no_eviction, kv_spread, not no_ring,
            ),
            json,
        )  # fmt: skip


def family_of(platform: Platform) -> str:
    """Return the family of decode simulations that a machine has. Raises BadInput where there is none."""
    if platform.sram_pim is not None:
        return "spimoe"
    if platform.gpu is not None and platform.pim is not None:
        return "gpu_pim"
    if platform.topology is not None and platform.topology.kind == "gpu_cluster":
        return "cluster"
    near = "whole steps on near-memory dies: moeplan provision"
    raise BadInput(
        f"there is no simulation of whole decode steps for platform {platform.name!r}",
        allowed="platforms with SRAM-PIM cores beside PIM channels, GPUs with PIM, and GPU clusters",
        fix=near if platform.nearmem is not None else "for example spimoe-4x8, b200-hbmpim or h20x32",
    )


def _refuse_foreign(context: typer.Context, family: str, platform: str) -> None:
    """Refuse what the machine's family would silently ignore."""
    for name, families in _ONLY.items():
        if family not in families and _is_given(context, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} says nothing about {platform}", where=option, fix="leave it out")


def _refuse_unused(context: typer.Context, planned: bool, no_pruning: bool, partition: str) -> None:
    """Refuse what another option leaves without effect."""
    unused = (
        (planned, ("budget", "layout"), "--plan, which has its own"),
        (no_pruning, ("alpha", "k_min"), "--no-pruning"),
        (partition != "static", ("sub_batches",), f"the partition {partition}, which finds their number"),
    )
    for applies, names, by in unused:
        for name in names:
            if applies and _is_given(context, name):
                option = "--" + name.replace("_", "-")
                raise UsageError(f"{option} has no effect with {by}", where=option, fix="leave one out")


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
