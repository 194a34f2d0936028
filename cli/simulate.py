"""`moeplan simulate`: a whole decode step of a model on a machine, beside a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..common.errors import BadInput, UsageError
from .options import parse_budget

if TYPE_CHECKING:
    from ..hardware.platform import Platform

_INPUT, _PLACE, _MACHINE, _OUTPUT = (
    "What to run",
    "Where experts live",
    "What the machine does",
    "What to print",
)

#: Tokens of context up to which a cache is followed, paragraph by paragraph: far beyond any model.
_LONGEST = 10**7


def simulate(
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
    baseline: Annotated[
        str, typer.Option(help="Platform with the GPU to compare with.", rich_help_panel=_OUTPUT)
    ] = "a100-80g",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Run decode steps of a whole model and say what a token takes, and what of it.

    Attention runs on SRAM-PIM cores and experts on HBM-PIM channels, sub-batch by sub-batch; the GPU runs the
    same model, batch and context by rooflines.
    """
    from ..hardware.platform import load_platform
    from ..workload.model import load_model

    if no_dynamic and partition not in (None, "static"):
        raise UsageError(f"--no-dynamic and --partition {partition} contradict each other", fix="give one")
    if plan is not None and solver is not None:
        raise UsageError("--plan and --solver both say where experts live", fix="give one")
    shapes, machine, gpu = load_model(model), load_platform(platform), load_platform(baseline)
    if family_of(machine) == "spimoe":
        from .simulate_spimoe import Job, run

        run(
            Job(
                shapes, machine, gpu, trace, batch, context, steps, held_out, layers, seed, plan,
                solver or "lpt", parse_budget(budget), profile_steps, layout, None if no_pruning else alpha,
                k_min, assume_weights, partition or ("static" if no_dynamic else "dynamic"), sub_batches,
                not no_sparse, not no_eviction, kv_spread, not no_ring,
            ),
            json,
        )  # fmt: skip


def family_of(platform: Platform) -> str:
    """Return the family of decode simulations that a machine has. Raises BadInput where there is none."""
    if platform.sram_pim is not None:
        return "spimoe"
    raise BadInput(
        f"there is no simulation of whole decode steps for platform {platform.name!r}",
        allowed="platforms with SRAM-PIM cores beside PIM channels",
        fix="for example spimoe-4x8; single layers on GPU and PIM: moeplan timeline",
    )
