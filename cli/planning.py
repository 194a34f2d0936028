"""One planning job from its options to the files it leaves: what planning shares over all families."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from ..common.errors import UsageError
from ..common.execution import Execution
from .console import note, show, show_json, warn
from .signals import EXIT_INTERRUPTED
from .watching import count

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.plan import BaselineEntry, LayerEntry, PlanFile
    from ..placement.planning import Planned, Search
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from .traffic import Replay, Traffic

#: How a plan's warning about layers begins that an interruption left out.
UNPLANNED: Final = "interrupted: layers "


@dataclass(frozen=True, eq=False)
class Request:
    """What every family is asked: on what, how to search, and where the results go."""

    model: MoEModel | None
    platform: Platform
    trace: Path | None
    replay: Replay
    layers: str | None
    search: Search
    jobs: int
    output: Path
    report: Path | None
    json: bool = False
    quiet: bool = False
    execution: Execution = field(default_factory=Execution)
    """Where layers are planned; `jobs` of them at a time."""
    work: Path | None = None
    """Folder of finished layers; None: nothing is kept until the plan is whole."""
    fresh: bool = False
    """Begin anew, whatever the work folder holds."""

    def needed_model(self) -> MoEModel:
        """Return the model. Raises UsageError where none was named."""
        if self.model is None:
            raise UsageError(
                f"planning on {self.platform.name} needs a model",
                where="--model",
                fix="name a preset (see moeplan models), a YAML file or a config.json",
            )
        return self.model

    def traffic(self) -> Traffic:
        """Read and replay the trace. Raises UsageError where none was named, BadInput where it is wrong."""
        from .traffic import read_traffic

        model = self.needed_model()
        if self.trace is None:
            raise UsageError(
                f"planning on {self.platform.name} needs a routing trace",
                where="--trace",
                fix="import one with moeplan trace import, or draw one with moeplan trace synth",
            )
        return read_traffic(self.trace, model, self.replay, self.layers)

    def inputs(self, family: str, settings: object, profile: Load, held_out: Load | None) -> dict[str, str]:
        """Name everything that planned layers depend on, for a work folder."""
        from importlib import metadata

        search = self.search
        return {
            "moeplan": metadata.version("moeplan"),
            "family": family,
            "model": self.needed_model().fingerprint,
            "platform": self.platform.fingerprint,
            "profile steps": profile.fingerprint,
            "held-out steps": held_out.fingerprint if held_out else "none",
            "settings": str(settings),
            "solver": search.solver,
            "seed": str(search.seed),
            "budget": str(search.budget),
            "options": str(dict(search.options or {})),
        }


def deliver(document: PlanFile, request: Request) -> None:
    """Write plan and report, and print the document's warnings."""
    from ..common.files import write_text
    from ..placement.plan import write_plan

    page = None
    if request.report is not None:
        from ..benchmarks.report.page import render

        page = render(document)
    write_plan(document, request.output)
    if request.report is not None and page is not None:
        write_text(request.report, page)
    for warning in document.warnings:
        warn(warning)
    if interrupted(document):
        note(f"the best found until the interruption is in {request.output}")


def conclude(document: PlanFile, request: Request, more: dict[str, Any] | None = None) -> None:
    """Print the answer, with `more` keys in its JSON; exit with 130 where the search was interrupted."""
    if request.json:
        show_json({**answer(document, request), **(more or {})})
    elif not request.quiet:
        show_plan(document, request.output, request.report)
    if interrupted(document):
        raise typer.Exit(EXIT_INTERRUPTED)


def answer(document: PlanFile, request: Request) -> dict[str, Any]:
    """Return what `--json` prints of a plan of any family."""
    totals = document.totals
    return {
        "solver": document.solver,
        "family": document.family,
        "model": document.model and document.model.name,
        "platform": document.platform.name,
        "seed": document.seed,
        "profile": totals.profile.model_dump(),
        "held_out": totals.held_out and totals.held_out.model_dump(),
        "bound_s": totals.bound_s,
        "gap": totals.gap,
        "stop": "interrupted" if interrupted(document) else totals.stop,
        "baselines": {n: _scores(b) for n, b in totals.baselines.items() if not _as_published(n)},
        "published": {n: _scores(b) for n, b in totals.baselines.items() if _as_published(n)},
        "layers": [_layer(entry) for entry in document.layers],
        "plan": str(request.output),
        "report": request.report and str(request.report),
        "warnings": list(document.warnings),
        "elapsed_s": document.elapsed_s,
    }


def _as_published(baseline: str) -> bool:
    """Tell whether a baseline searches the recorded steps, or has a layout of its own.

    Such a one may do better on the profile than a plan for steps not seen, or answers another question.
    """
    return baseline == "spimoe" or baseline.endswith("_rows")


def _scores(entry: BaselineEntry) -> dict[str, float | None]:
    profile, held_out = entry.profile, entry.held_out
    return {
        "profile_s": None if profile is None else profile.total_s,
        "objective_s": None if profile is None else profile.objective_s,
        "held_out_s": None if held_out is None else held_out.total_s,
    }


def show_plan(document: PlanFile, output: Path, report: Path | None) -> None:
    """Print the outcome for people: one line, a table of solvers, and where the files are."""
    from ..benchmarks.report.terminal import headline, summary_table

    show(headline(document), summary_table(document), f"plan:   {output}")
    if report is None:
        show(f"report: moeplan report {output} -o report.html")
    else:
        show(f"report: {report}")


def interrupted(document: PlanFile) -> bool:
    """Tell whether a layer's search was cut short by Ctrl-C or SIGTERM, or a layer is missing for it."""
    cut = any(entry.stop == "interrupted" for entry in document.layers)
    return cut or any(warning.startswith(UNPLANNED) for warning in document.warnings)


def cores() -> int:
    """Return the number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


@contextmanager
def progress(
    layers: int, *, visible: bool, tokens: bool = False
) -> Iterator[Callable[[Planned[Any] | LayerEntry], None]]:
    """Yield what to call when a layer is planned; draws a bar where stderr is a terminal.

    `tokens`: the scores are the fullest ranks' tokens, as in plans without a model.
    """
    from ..placement.planning import Planned

    best_s, baseline_s = 0.0, 0.0
    with count("planning layers", layers, visible=visible) as advance:

        def on_layer(plan: Planned[Any] | LayerEntry) -> None:
            nonlocal best_s, baseline_s
            if isinstance(plan, Planned):
                best_s += plan.result.cost.objective_s
                baseline_s += min(b.cost.objective_s for b in plan.baselines.values())
            else:
                best_s += plan.profile.objective_s
                known = [b.profile.objective_s for b in plan.baselines.values() if b.profile]
                baseline_s += min(known, default=plan.profile.objective_s)
            best, others = (
                f"{score:,.0f} tokens" if tokens else f"{score * 1e6:.1f} us"
                for score in (best_s, baseline_s)
            )
            advance(f"best so far {best}, best baselines {others}")

        yield on_layer


def _layer(entry: LayerEntry) -> dict[str, Any]:
    return {
        "layer": entry.layer,
        "profile_s": entry.profile.total_s,
        "held_out_s": entry.held_out and entry.held_out.total_s,
        "bound_s": entry.bound_s,
        "gap": entry.gap,
        "stop": entry.stop,
    }
