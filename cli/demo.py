"""`moeplan demo`: a plan from data that ships with moeplan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import BadInput
from ..common.execution import Execution
from ..common.files import atomic_path
from . import parameters
from .console import show
from .options import check_outputs
from .plan_channels import plan_channels_of
from .planning import Request, cores, interrupted
from .signals import EXIT_INTERRUPTED
from .traffic import Replay, read_traffic

TRACE = Path(__file__).parent / "data" / "demo.parquet"
MODEL, PLATFORM = "deepseek-v2-lite", "spimoe-4x8"
BATCH, STEPS, SEED = 32, 128, 0


_Folder = Annotated[Path, parameters.output("Folder for trace, plan and report; made where missing.")]


def demo(
    folder: _Folder = Path("moeplan-demo"),
) -> None:
    """Plan a small synthetic trace in seconds, and see what a plan looks like."""
    from ..hardware.platform import load_platform
    from ..placement.channels.problem import Settings
    from ..placement.planning import Search
    from ..placement.result import Budget
    from ..workload.model import load_model

    model, platform = load_model(MODEL), load_platform(PLATFORM)
    how = Replay(BATCH, STEPS, SEED, held_out=0.5)
    traffic = read_traffic(TRACE, model, how)
    search = Search(solver="annealing", budget=Budget(time_s=None, iterations=40_000), seed=SEED)
    trace, plan, report = _outputs(folder)
    layers = traffic.layers(None)
    execution = Execution("threads", cores())
    request = Request(model, platform, TRACE, how, None, search, cores(), plan, report, execution=execution)
    document = plan_channels_of(request, Settings(), traffic)
    with atomic_path(trace) as temporary:
        shutil.copyfile(TRACE, temporary)
    from ..benchmarks.report.terminal import headline, summary_table

    show(
        f"{len(layers)} layers of {MODEL} on {PLATFORM}, batch {BATCH}, synthetic routing",
        headline(document),
        summary_table(document),
        f"plan:   {plan}",
        f"report: {report} (open it in a browser)",
        "",
        "next:",
        f"  moeplan check {plan} --trace {trace}",
        f"  moeplan trace stats {trace}",
        f"  moeplan plan --model {MODEL} --platform {PLATFORM} --trace {trace} --batch 64 --budget 5s",
        "  moeplan trace import YOURS.npz --model MODEL -o trace.parquet",
    )
    if interrupted(document):
        raise typer.Exit(EXIT_INTERRUPTED)


def _outputs(folder: Path) -> tuple[Path, Path, Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot make the folder {str(folder)!r}: {error.strerror}", fix="name another with -o"
        ) from error
    trace, plan, report = folder / "trace.parquet", folder / "plan.json", folder / "report.html"
    check_outputs({"trace": trace, "plan": plan, "report": report}, {})
    return trace, plan, report
