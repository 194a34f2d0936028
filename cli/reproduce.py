"""`moeplan reproduce`: published tables and figures, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.errors import UsageError, did_you_mean
from . import parameters
from .console import note, show, show_json, table
from .options import check_outputs

if TYPE_CHECKING:
    from ..benchmarks.reproduce.rows import Row


_Source = Annotated[str, typer.Argument(help="sieve, spimoe, rexpert, eplb or all.")]
_Report = Annotated[Path | None, parameters.page()]


def reproduce(
    source: _Source = "all",
    report: _Report = None,
    json: parameters.Json = False,
) -> None:
    """Make every published table and figure again that can be, and say of the others why not.

    Nothing is tuned to match: a difference stands as it is, with its reason.
    """
    from ..benchmarks.reproduce.collect import SOURCES, collect
    from ..benchmarks.reproduce.page import render
    from ..common.files import write_text

    if source not in (*SOURCES, "all"):
        raise UsageError(f"unknown source {source!r}", fix=did_you_mean(source, (*SOURCES, "all")))
    check_outputs({"--report": report}, {})
    rows: list[Row] = []
    for name in SOURCES if source == "all" else (source,):
        note(f"making {name} again")
        rows += collect(name)
    if report is not None:
        write_text(report, render(rows))
    if json:
        show_json({"rows": [row.as_dict() for row in rows], "report": report and str(report)})
        return
    columns = ("source", "item", "published", "ours", "difference")
    show(table(columns, ((row.source, row.item, *row.cells()) for row in rows), left=2))
    numbers = [row.difference for row in rows if row.difference is not None]
    close = sum(abs(difference) <= 0.1 for difference in numbers)
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.ours is None:
            reasons.setdefault((row.source, row.note), []).append(row.item)
    if reasons:
        missing = ((source, ", ".join(items), note_) for (source, note_), items in reasons.items())
        show(table(("source", "no figure of ours for", "because"), missing, left=3))
    show(f"{len(rows)} rows, {len(numbers)} with a difference, {close} of them within 10 %")
    if report is None:
        show("why they differ: --report page.html, or --json")
