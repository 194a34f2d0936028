"""`moeplan validate`: how far each timing model is from independent measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import parameters
from .console import note, show, show_json, table
from .options import check_outputs

if TYPE_CHECKING:
    from ..benchmarks.validation.report import Summary

_ROUNDING = 1e-12
_COLUMNS = ("model", "bar: median, worst", "worst case", "cases", "median", "p95", "worst")


_Reference = Annotated[
    Path | None,
    typer.Option(
        envvar="MOEPLAN_REFERENCE",
        help="Folder with pim_gemv.csv and noc_rounds.csv; without it only published figures count.",
    ),
]
_Figure = Annotated[Path | None, typer.Option(help="Draw predicted against reference (.svg).")]


def validate(
    reference: _Reference = None,
    json: parameters.Json = False,
    figure: _Figure = None,
) -> None:
    """Compare every timing model with independent simulators and published figures.

    Errors are relative, without sign. A bar says what is asked of a model, where something is; a band is
    the error band that the model states for transfers in conflict, and the share of cases within.
    """
    from ..benchmarks.validation.report import collect, summarize

    check_outputs({"--figure": figure}, {})
    cases = collect(reference)
    summaries = summarize(cases)
    if json:
        show_json({"models": [_described(summary) for summary in summaries]})
    else:
        show(table(_COLUMNS, (_row(summary) for summary in summaries), left=3))
    if figure is not None:
        from ..benchmarks.validation.figure import render
        from ..common.files import write_text

        write_text(figure, render(cases))
        note(f"figure: {figure}")
    if reference is None:
        note("no --reference: simulators are not compared, only published figures are")


def _described(summary: Summary) -> dict[str, Any]:
    keys = ("name", "cases", "median_abs_error", "p95_abs_error", "worst_abs_error", "worst_case")
    return {key: getattr(summary, key) for key in keys}


def _row(summary: Summary) -> Iterator[object]:
    yield summary.name
    yield _bar(summary)
    yield summary.worst_case if summary.worst_abs_error > _ROUNDING else ""
    yield summary.cases
    for error in (summary.median_abs_error, summary.p95_abs_error, summary.worst_abs_error):
        yield f"{100 * error:.2g} %" if error > _ROUNDING else "0"


def _bar(summary: Summary) -> str:
    """Write what is asked, how many cases the stated band covers, and whether all of it holds."""
    bar = summary.bar
    if bar is None:
        return "none"
    parts = ["exact"] if bar.worst == 0.0 else [f"{bar.median:.0%}"]
    parts += [f"{bar.worst:.0%}"] if bar.worst else []
    parts += [f"band {summary.covered:.0%}"] if summary.covered is not None else []
    return f"{', '.join(parts)}: {'holds' if summary.holds else 'MISSED'}"
