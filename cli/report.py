"""`moeplan report`: a plan as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import parameters
from .console import show
from .options import check_outputs

_Plan = Annotated[Path, typer.Argument(help="A plan (.json).")]
_Output = Annotated[Path, parameters.output("The page.")]


def report(
    plan: _Plan,
    output: _Output = Path("report.html"),
) -> None:
    """Draw a plan as one self-contained HTML page.

    It shows load per channel before and after, gap over time, and what the published heuristics get.
    """
    from ..benchmarks.report.page import render
    from ..common.files import write_text
    from ..placement.plan import read_plan

    check_outputs({"--output": output}, {"the plan": plan}, (".html", ".htm"))
    write_text(output, render(read_plan(plan)))
    show(f"report: {output}")
