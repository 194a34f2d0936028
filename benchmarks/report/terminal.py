"""The plan on a terminal: a table of solvers and one line, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scales import TimeFormat, percent
from .verdict import Row, basis, comparison, rows, seen_of_plan, times

if TYPE_CHECKING:
    from rich.table import Table

    from ...placement.plan import PlanFile, Scores


def summary_table(plan: PlanFile) -> Table:
    """Return one row per solver, fastest first: times J on profile and held-out steps, bound, gap, stop."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    ranked = rows(plan)
    time = times((scores for row in ranked for scores in (row.profile, row.held_out)), plan)
    unit = _ascii(time.unit)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("solver", overflow="fold")
    for head in (f"profile {unit}", f"held-out {unit}", f"bound {unit}", "gap"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("stop", overflow="fold")
    for row in ranked:
        table.add_row(*(Text(cell) for cell in _cells(row, time, plan)), style="bold" if row.is_plan else "")
    return table


def headline(plan: PlanFile) -> str:
    """Return the outcome in one line without markup or units beyond ASCII."""
    mine = seen_of_plan(plan)
    beside = f", {comparison(plan)}" if comparison(plan) else ""
    time = _ascii(times([mine], plan).text(mine.total_s))
    return f"{time} on {basis(plan)} steps{beside}; gap {percent(plan.totals.gap)}"


def _cells(row: Row, time: TimeFormat, plan: PlanFile) -> tuple[str, ...]:
    def shown(scores: Scores | None) -> str:
        return time.number(scores.total_s) if scores else "-"

    name = f"{row.name} (plan)" if row.is_plan else row.name
    gap = percent(row.gap) if row.gap is not None else "-"
    return name, shown(row.profile), shown(row.held_out), time.number(plan.totals.bound_s), gap, row.stop


def _ascii(text: str) -> str:
    return text.replace("µ", "u")
