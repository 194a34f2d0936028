"""`moeplan simulate`: a whole decode step of a model on a machine, beside a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import BadInput, UsageError
from . import parameters
from .options import flag_of, is_given, parse_budget, refuse_foreign

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

_PartitionName = Literal["none", "static", "greedy", "dynamic", "oracle"]

_Model = Annotated[str, parameters.model(_INPUT)]
_Trace = Annotated[Path, parameters.trace(_INPUT)]
_Platform = Annotated[str, parameters.platform(_INPUT)]
_Batch = Annotated[int, parameters.batch(_INPUT, help="Requests.")]
_Context = Annotated[
    int, typer.Option(min=1, max=_LONGEST, help="Tokens of every request.", rich_help_panel=_INPUT)
]
_Steps = Annotated[int, parameters.steps(_INPUT, help="Decode steps to run.")]
_HeldOut = Annotated[
    float,
    typer.Option(
        help="Share of requests that is run; solvers and predictors see the others (0: all are both).",
        rich_help_panel=_INPUT,
    ),
]
_Layers = Annotated[
    str | None,
    typer.Option(
        help="MoE layers to run, whose mean stands for the others (default: all of the trace).",
        rich_help_panel=_INPUT,
    ),
]
_Seed = Annotated[int, parameters.seed("Of split, replay and search.", _INPUT)]

_Plan = Annotated[Path | None, typer.Option(help="A plan (.json).", rich_help_panel=_PLACE)]
_Solver = Annotated[
    str | None, typer.Option(help="Or plan now; see moeplan solvers channels.", rich_help_panel=_PLACE)
]
_Budget = Annotated[str, typer.Option(help="Per layer, where a solver searches.", rich_help_panel=_PLACE)]
_ProfileSteps = Annotated[
    int, typer.Option(min=1, help="Decode steps that the solver sees.", rich_help_panel=_PLACE)
]
_Layout = Annotated[
    Literal["rows", "best"],
    typer.Option(
        help="Whole outputs per bank (published), or the fastest split over banks; a plan has its own.",
        rich_help_panel=_PLACE,
    ),
]

_NoPruning = Annotated[
    bool, typer.Option("--no-pruning", help="No adaptive routing.", rich_help_panel=_MACHINE)
]
_Alpha = Annotated[
    float,
    typer.Option(help="Adaptive routing: share of the largest weight to stay.", rich_help_panel=_MACHINE),
]
_KMin = Annotated[
    int | None,
    typer.Option(
        min=1, help="Experts that every token keeps (default: half of top-k).", rich_help_panel=_MACHINE
    ),
]
_AssumeWeights = Annotated[float | None, parameters.assume_weights(_MACHINE, lacking="router weights")]
_NoDynamic = Annotated[
    bool, typer.Option("--no-dynamic", help="Equal sub-batches.", rich_help_panel=_MACHINE)
]
_Partition = Annotated[
    _PartitionName | None,
    typer.Option(
        help="Sub-batches: none, equal, packed by prediction as published, best by prediction (default), "
        "or best.",
        rich_help_panel=_MACHINE,
    ),
]
_SubBatches = Annotated[int, typer.Option(min=1, help="Of the partition static.", rich_help_panel=_MACHINE)]
_NoSparse = Annotated[
    bool, typer.Option("--no-sparse", help="Attention to all that is cached.", rich_help_panel=_MACHINE)
]
_NoEviction = Annotated[
    bool, typer.Option("--no-eviction", help="Keep all keys and values.", rich_help_panel=_MACHINE)
]
_KvSpread = Annotated[
    Literal["heads", "chunks"],
    typer.Option(
        help="Cached keys and values by heads, or chunk by chunk over all cores.", rich_help_panel=_MACHINE
    ),
]
_NoRing = Annotated[
    bool, typer.Option("--no-ring", help="Collectives in the order of ids.", rich_help_panel=_MACHINE)
]

_Policy = Annotated[str, parameters.gpu_policy(_GPU)]
_Gpus = Annotated[int, parameters.expert_gpus(_GPU)]
_TensorParallel = Annotated[int, parameters.tensor_parallel(_GPU)]
_Timing = Annotated[parameters.Timing, parameters.timing(_GPU)]
_Prefill = Annotated[int, parameters.prefill(_GPU)]
_PrefillTokens = Annotated[int, parameters.prefill_tokens(_GPU)]

_Baseline = Annotated[
    str, typer.Option(help="Platform with the GPU to compare with.", rich_help_panel=_OUTPUT)
]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def simulate(
    context_: typer.Context,
    model: _Model,
    trace: _Trace,
    platform: _Platform = "spimoe-4x8",
    batch: _Batch = 32,
    context: _Context = 1024,
    steps: _Steps = 8,
    held_out: _HeldOut = 0.5,
    layers: _Layers = None,
    seed: _Seed = 0,
    plan: _Plan = None,
    solver: _Solver = None,
    budget: _Budget = "2000it",
    profile_steps: _ProfileSteps = 64,
    layout: _Layout = "best",
    no_pruning: _NoPruning = False,
    alpha: _Alpha = 0.3,
    k_min: _KMin = None,
    assume_weights: _AssumeWeights = None,
    no_dynamic: _NoDynamic = False,
    partition: _Partition = None,
    sub_batches: _SubBatches = 4,
    no_sparse: _NoSparse = False,
    no_eviction: _NoEviction = False,
    kv_spread: _KvSpread = "heads",
    no_ring: _NoRing = False,
    policy: _Policy = "sieve",
    gpus: _Gpus = 1,
    tensor_parallel: _TensorParallel = 1,
    timing: _Timing = "timeline",
    prefill: _Prefill = 0,
    prefill_tokens: _PrefillTokens = 1024,
    baseline: _Baseline = "a100-80g",
    json: _Json = False,
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
    refuse_foreign(context_, _ONLY, family, machine.name)
    pieces = _pieces(partition, no_dynamic)
    if plan is not None and solver is not None:
        raise UsageError("--plan and --solver both say where experts live", fix="give one")
    _refuse_unused(context_, plan is not None, no_pruning, pieces)
    if is_given(context_, "prefill_tokens") and not prefill:
        raise UsageError("there is no prompt", where="--prefill-tokens", fix="ask for some with --prefill")
    shapes, gpu = load_model(model), load_platform(baseline)
    if family == "spimoe":
        from .simulate_spimoe import Job, run

        job = Job(
            shapes, machine, gpu, trace, batch, context, steps, held_out, layers, seed, plan,
            solver or "lpt", parse_budget(budget), profile_steps, layout, None if no_pruning else alpha,
            k_min, assume_weights, pieces, sub_batches,
            not no_sparse, not no_eviction, kv_spread, not no_ring,
        )  # fmt: skip
        run(job, json)
        return
    from .simulate_gpu import GpuJob, run_cluster, run_gpu_pim

    asked = GpuJob(
        shapes, machine, trace, batch, context, steps, seed, plan, policy, gpus, tensor_parallel, timing,
        prefill, prefill_tokens,
    )  # fmt: skip
    (run_gpu_pim if family == "gpu_pim" else run_cluster)(asked, json)


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


def _pieces(partition: _PartitionName | None, no_dynamic: bool) -> _PartitionName:
    """How a batch is cut into sub-batches. Raises UsageError where two options say different things."""
    if no_dynamic and partition not in (None, "static"):
        raise UsageError(f"--no-dynamic and --partition {partition} contradict each other", fix="give one")
    return partition or ("static" if no_dynamic else "dynamic")


def _refuse_unused(context: typer.Context, planned: bool, no_pruning: bool, partition: str) -> None:
    """Refuse what another option leaves without effect."""
    unused = (
        (planned, ("budget", "layout"), "--plan, which has its own"),
        (no_pruning, ("alpha", "k_min"), "--no-pruning"),
        (partition != "static", ("sub_batches",), f"the partition {partition}, which finds their number"),
    )
    for applies, names, by in unused:
        for name in names:
            if applies and is_given(context, name):
                option = flag_of(name)
                raise UsageError(f"{option} has no effect with {by}", where=option, fix="leave one out")
