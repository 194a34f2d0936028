"""Options that several verbs have, declared once.

An alias is an option whole. A function returns the option for `Annotated[type, function(panel)]`: it takes
the panel of the help that the verb shows it in, and the verb's words where they differ. What only one verb
has stands in that verb's module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .options import LONGEST_CONTEXT

#: How long a layer on GPU and PIM takes: by the maximum of three estimates, or by its tasks in order.
Timing = Literal["estimate", "timeline"]


# What is asked about.


def model(panel: str | None = None) -> Any:
    """`--model`, read by `workload.model.load_model`."""
    return typer.Option(help="Preset, YAML file or Hugging Face config.json.", rich_help_panel=panel)


ModelName = Annotated[str, model()]

#: `--model` beside a file that names a model: needed only where that name is no preset.
UnshippedModel = Annotated[str | None, typer.Option(help="The model, where it is no preset.")]


def platform(panel: str | None = None, *, which: str = "") -> Any:
    """`--platform`, read by `hardware.platform.load_platform`; `which`: of what kind it must be."""
    return typer.Option(help=f"Preset or YAML file{which}.", rich_help_panel=panel)


def trace(panel: str | None = None, *, help: str = "Routing trace (.parquet).") -> Any:
    """`--trace`: a routing trace, or a folder of its parts."""
    return typer.Option(help=help, rich_help_panel=panel)


def layers(panel: str | None = None, *, what: str = "Layers") -> Any:
    """`--layers`: absolute ids of MoE layers that the trace holds, read by `options.parse_layers`."""
    return typer.Option(help=f"{what}, as in 3-5,8 (default: all of the trace).", rich_help_panel=panel)


def assume_weights(panel: str | None = None, *, lacking: str) -> Any:
    """`--assume-weights`: router weights by rank of choice; kept mass then says nothing about the model."""
    return typer.Option(
        metavar="RATIO",
        help=f"For a trace without {lacking}: the i-th choice weighs RATIO**i.",
        rich_help_panel=panel,
    )


# Decode steps.


def batch(panel: str | None = None, *, help: str = "Tokens of a decode step.") -> Any:
    """`--batch`: requests that decode together, each with one token."""
    return typer.Option(min=1, help=help, rich_help_panel=panel)


def steps(panel: str | None = None, *, help: str = "Decode steps to profile, and to hold out.") -> Any:
    """`--steps`: how many decode steps the trace is replayed for."""
    return typer.Option(min=1, help=help, rich_help_panel=panel)


def split(panel: str | None = None) -> Any:
    """`--split`: what a held-out share of a trace is."""
    return typer.Option(help="Hold out whole requests, or what came last.", rich_help_panel=panel)


def seed(help: str | None, panel: str | None = None) -> Any:
    """`--seed`: the same one gives the same answer; `help` names all that it decides."""
    return typer.Option(min=0, help=help, rich_help_panel=panel)


def pim_context(panel: str | None = None) -> Any:
    """`--context` of verbs that time one layer."""
    return typer.Option(
        min=0,
        max=LONGEST_CONTEXT,
        help="Tokens that attention on PIM looks back to (0: none).",
        rich_help_panel=panel,
    )


# GPUs, alone and with PIM.


def nodes(panel: str | None = None) -> Any:
    """`--nodes`: in place of the platform's."""
    return typer.Option(min=1, help="Nodes of the cluster.", rich_help_panel=panel)


def ranks_per_node(panel: str | None = None) -> Any:
    """`--ranks-per-node`: in place of the platform's."""
    return typer.Option(min=1, help="GPUs of a node.", rich_help_panel=panel)


def groups(panel: str | None = None) -> Any:
    """`--groups`: of consecutive expert ids, equally many on every node."""
    return typer.Option(min=1, help="Expert groups; a group stays within a node.", rich_help_panel=panel)


def expert_gpus(panel: str | None = None) -> Any:
    """`--gpus`: ranks of expert parallelism."""
    return typer.Option(min=1, help="GPUs that share the experts.", rich_help_panel=panel)


def tensor_parallel(panel: str | None = None) -> Any:
    """`--tensor-parallel`: ranks of attention; it divides `--gpus`."""
    return typer.Option(min=1, help="GPUs that share attention.", rich_help_panel=panel)


def prefill(panel: str | None = None) -> Any:
    """`--prefill`: prompts whose tokens run in the same step as the decoded ones."""
    return typer.Option(min=0, max=10_000, help="Prompts in every batch.", rich_help_panel=panel)


def prefill_tokens(panel: str | None = None, *, help: str = "Tokens of a prompt.") -> Any:
    """`--prefill-tokens`: the length of each of those prompts."""
    return typer.Option(min=1, max=1_000_000, help=help, rich_help_panel=panel)


def timing(panel: str | None = None) -> Any:
    """`--timing`, of the type `Timing`."""
    return typer.Option(
        help="A layer takes max(T_comm, T_gpu, T_pim), or as long as its tasks.", rich_help_panel=panel
    )


def gpu_policy(panel: str | None = None) -> Any:
    """`--policy`: a solver of the family partition."""
    return typer.Option(help="Which experts run on the GPU; see moeplan solvers.", rich_help_panel=panel)


# How to search.


def solver(panel: str | None = None, *, family: str = "") -> Any:
    """`--solver`, looked up by `placement.registry.find`; `family` where the verb has one alone."""
    return typer.Option(help=f"See moeplan solvers{family and ' ' + family}.", rich_help_panel=panel)


def jobs(what: str, panel: str | None = None) -> Any:
    """`--jobs`: how many of `what` run at a time."""
    return typer.Option(min=1, help=f"{what} side by side (default: cores).", rich_help_panel=panel)


# What to print and to write.


def output(help: str, panel: str | None = None) -> Any:
    """`--output` or `-o`: the file or folder that the verb is there to make."""
    return typer.Option("--output", "-o", help=help, rich_help_panel=panel)


TraceOutput = Annotated[Path, output("The trace (.parquet).")]


def page(panel: str | None = None) -> Any:
    """`--report`: one self-contained page beside the answer."""
    return typer.Option(help="Also a page (.html).", rich_help_panel=panel)


def picture(panel: str | None = None) -> Any:
    """`--svg`."""
    return typer.Option(help="Picture.", rich_help_panel=panel)


def json(panel: str | None = None) -> Any:
    """`--json`: the answer for programs, on stdout."""
    return typer.Option("--json", help="Print one JSON object.", rich_help_panel=panel)


Json = Annotated[bool, json()]

#: `--yaml` of verbs that list presets.
Yaml = Annotated[bool, typer.Option("--yaml", help="Print the preset's file, to start your own from.")]
