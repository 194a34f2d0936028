"""One planning job from its inputs to the files it leaves: what `plan` and `demo` share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .console import note, stderr, warn
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.channels.planning import LayerPlan, Search
    from ..placement.channels.problem import Settings
    from ..placement.plan import PlanFile
    from ..workload.model import MoEModel
    from .traffic import Traffic


@dataclass(frozen=True, eq=False)
class Job:
    """What to plan, how, and where the results go."""

    model: MoEModel
    platform: Platform
    traffic: Traffic
    layers: tuple[int, ...]
    search: Search
    settings: Settings
    jobs: int
    output: Path
    report: Path | None


def run_job(job: Job, *, quiet: bool = False) -> PlanFile:
    """Plan, write plan and report, and print warnings; the first Ctrl-C writes the best found until then."""
    from ..benchmarks.report.page import render
    from ..common.files import write_text
    from ..placement.plan import write_plan

    with keep_best_on_signals() as interrupt:
        document = _plan(job, interrupt, quiet)
        page = render(document) if job.report else ""
        write_plan(document, job.output)
        if job.report is not None:
            write_text(job.report, page)
    for warning in document.warnings:
        warn(warning)
    if interrupted(document):
        note(f"the best found until the interruption is in {job.output}")
    return document


def interrupted(document: PlanFile) -> bool:
    """Tell whether a layer's search was cut short by Ctrl-C or SIGTERM."""
    return any(entry.stop == "interrupted" for entry in document.layers)


def cores() -> int:
    """Return the number of cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def _plan(job: Job, interrupt: threading.Event, quiet: bool) -> PlanFile:
    from ..placement.channels.document import plan_file
    from ..placement.channels.planning import plan_channels

    begun = time.perf_counter()
    with _progress(len(job.layers), visible=not quiet) as on_layer:
        plans = plan_channels(
            job.model,
            job.platform,
            job.traffic.profile,
            job.traffic.held_out,
            search=job.search,
            settings=job.settings,
            layers=job.layers,
            jobs=min(job.jobs, len(job.layers)),
            on_layer=on_layer,
            interrupt=interrupt,
        )
    return plan_file(
        job.model,
        job.platform,
        job.traffic.profile,
        job.traffic.held_out,
        plans,
        search=job.search,
        settings=job.settings,
        source=job.traffic.sources,
        split=job.traffic.split,
        elapsed_s=time.perf_counter() - begun,
    )


@contextmanager
def _progress(layers: int, *, visible: bool) -> Iterator[Callable[[LayerPlan], None]]:
    """Yield what to call when a layer is planned; draws a bar where stderr is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = stderr()
    columns = (TextColumn("planning layers"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    best_s, baseline_s = 0.0, 0.0
    with Progress(
        *columns,
        TextColumn("{task.fields[score]}"),
        console=console,
        transient=True,
        disable=not (visible and console.is_terminal),
    ) as bar:
        task = bar.add_task("", total=layers, score="")

        def on_layer(plan: LayerPlan) -> None:
            nonlocal best_s, baseline_s
            best_s += plan.result.cost.objective_s
            baseline_s += min(b.cost.objective_s for b in plan.baselines.values())
            score = f"best so far {best_s * 1e6:.1f} us, best baselines {baseline_s * 1e6:.1f} us"
            bar.update(task, advance=1, score=score)

        yield on_layer
