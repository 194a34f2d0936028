"""`moeplan check`: whether a plan is what it says."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import BadInput, UsageError
from . import parameters
from .check_engine import engine_findings
from .console import show, show_json, table
from .options import named_or_preset, show_layers
from .traffic import Replay, Traffic, read_traffic

if TYPE_CHECKING:
    from ..placement.plan import PlanFile
    from ..placement.verify import Finding
    from ..workload.model import MoEModel

_ENGINE = "The file of an engine"
_WORDS = {True: "ok", False: "WRONG", None: "skipped"}
#: The file of an engine is judged whole: what is neither right nor wrong is loaded, and does not help.
_ENGINE_WORDS = {**_WORDS, None: "warning"}

_Plan = Annotated[Path, typer.Argument(help="A plan (.json), or with --engine the file of an engine.")]
_Trace = Annotated[Path | None, typer.Option(help="The trace that was planned on: score the plan again.")]
_HeldOut = Annotated[Path | None, typer.Option(help="The held-out trace, where it was another one.")]
_Platform = Annotated[str | None, typer.Option(help="The platform, where it is no preset.")]
_EngineName = Annotated[
    str | None,
    typer.Option(
        help="Check the file of an engine: sglang, vllm, vllm-ascend, tensorrt-llm, eplb.",
        rich_help_panel=_ENGINE,
    ),
]
_EpSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Its expert-parallel ranks (default: as FILE.moeplan.json beside it says).",
        rich_help_panel=_ENGINE,
    ),
]
_Nodes = Annotated[
    int | None,
    typer.Option(min=1, help="Its nodes (default: as that file says, else 1).", rich_help_panel=_ENGINE),
]
_Redundant = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Redundant experts it is launched with (default: what the file has).",
        rich_help_panel=_ENGINE,
    ),
]


def check(
    plan: _Plan,
    trace: _Trace = None,
    held_out: _HeldOut = None,
    model: parameters.UnshippedModel = None,
    platform: _Platform = None,
    engine: _EngineName = None,
    ep_size: _EpSize = None,
    nodes: _Nodes = None,
    redundant: _Redundant = None,
    json: parameters.Json = False,
) -> None:
    """Check a plan: schema, feasibility, sums and gaps, and that model and platform are still the same.

    With --trace the placements are scored again. With --engine the file need not be ours: it is held against
    the rules of that engine; a warning marks what the engine loads and what helps nothing. Exits with 3 where
    something is wrong.
    """
    if engine is not None:
        if trace or held_out or platform:
            raise UsageError("--engine goes with --model, --ep-size, --nodes and --redundant alone")
        _conclude(plan, engine_findings(plan, engine, model, ep_size, nodes, redundant), json, engine)
        return
    if ep_size or nodes or redundant is not None:
        raise UsageError("--ep-size, --nodes and --redundant go with --engine", fix="name the engine")
    from ..hardware.platform import load_platform, platform_names
    from ..placement.plan import read_plan
    from ..workload.model import load_model, model_names

    _refuse_engines(plan)
    document = read_plan(plan)
    family = import_module(f"..placement.{document.family}.verify", __package__)
    shapes = named_or_preset(
        load_model, model_names(), model, document.model.name if document.model else None
    )
    machine = named_or_preset(load_platform, platform_names(), platform, document.platform.name)
    findings: list[Finding] = family.verify(document, shapes, machine)
    if trace is not None:
        if shapes is None or machine is None:
            raise UsageError(
                "scoring again needs model and platform", fix="name them with --model and --platform"
            )
        if all(finding.ok for finding in findings):
            steps = _traffic(document, shapes, trace, held_out)
            findings += family.rescore(document, shapes, machine, steps.profile, steps.held_out)
    _conclude(plan, findings, json)


def _refuse_engines(path: Path) -> None:
    """Raise BadInput on the file of an engine, which is judged by the rules of that engine."""
    from ..placement.export.sidecar import engine_of
    from ..workload.readers.kinds import kind_of

    if kind_of(path) == "plan":
        return
    engine = engine_of(path)
    if engine is not None:
        raise BadInput(
            f"{str(path)!r} is not a plan of moeplan: it looks like a file of {engine}",
            fix=f"moeplan check {path} --engine {engine} --model MODEL --ep-size RANKS",
        )


def _conclude(plan: Path, findings: list[Finding], json: bool, engine: str = "") -> None:
    """Print the findings. Raises BadInput where one of them is wrong."""
    _show(plan, findings, json, _ENGINE_WORDS if engine else _WORDS)
    wrong = [finding for finding in findings if finding.ok is False]
    if wrong:
        raise BadInput(
            f"{f'{engine} file' if engine else 'plan'} {str(plan)!r} fails "
            f"{len(wrong)} of {len(findings)} checks",
            where=", ".join(finding.check for finding in wrong),
            fix="correct the file, or export a plan with moeplan export" if engine else "plan again",
        )


def _traffic(document: PlanFile, model: MoEModel, trace: Path, other: Path | None) -> Traffic:
    profile, held_out = document.profile, document.held_out
    by_share = held_out is not None and held_out.split != "whole"
    if other is None and held_out is not None and not by_share:
        raise UsageError(
            "the plan was held against another trace", where=held_out.source, fix="name it with --held-out"
        )
    if other is not None and (held_out is None or by_share):
        raise UsageError("the plan was not held against another trace", fix="leave out --held-out")
    part: float | Path = 0.0 if other is None else other
    how = Replay(profile.batch, profile.steps, document.seed, part)
    if held_out is not None and held_out.split != "whole":
        how = Replay(profile.batch, profile.steps, document.seed, held_out.share, held_out.split)
    planned = show_layers(tuple(entry.layer for entry in document.layers))
    return read_traffic(trace, model, how, planned)


def _show(plan: Path, findings: list[Finding], json: bool, words: dict[bool | None, str]) -> None:
    if json:
        ok = not any(finding.ok is False for finding in findings)
        told = [{**asdict(finding), "result": words[finding.ok]} for finding in findings]
        show_json({"plan": str(plan), "ok": ok, "findings": told})
    else:
        rows = ((finding.check, words[finding.ok], finding.detail) for finding in findings)
        show(table(("check", "result", "detail"), rows, left=3))
