"""The plan on a terminal: a table of solvers and one line, readable at 80 columns and without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scales import TimeFormat, percent
from .verdict import Row, basis, comparison, own_objective, rows, seen_of_plan, times

if TYPE_CHECKING:
    from rich.table import Table

    from ...placement.plan import PlanFile, Scores


def summary_table(plan: PlanFile) -> Table:
    """Return one row per solver, fastest first: times on profile and held-out steps, bound, gap, stop.

    Where the search minimised more than the profile's mean time, the objective takes the bound's column, and
    a line below says what it counts and what the bound is.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    ranked = rows(plan)
    time = times((scores for row in ranked for scores in (row.profile, row.held_out)), plan)
    unit = _ascii(time.unit)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("solver", overflow="fold")
    counted = own_objective(plan)
    third = f"objective {unit}" if counted else f"bound {unit}"
    for head in (f"profile {unit}", f"held-out {unit}", third, "gap"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("stop", overflow="fold")
    for row in ranked:
        cells = _cells(row, time, plan, objective=bool(counted))
        table.add_row(*(Text(cell) for cell in cells), style="bold" if row.is_plan else "")
    if counted:
        bound = f"{time.number(plan.totals.bound_s)} {unit}"
        table.caption = Text(f"objective: {counted}; gap: to the bound of the objective, {bound}")
        table.caption_justify = "left"
    return table


def headline(plan: PlanFile) -> str:
    """Return the outcome in one line without markup or units beyond ASCII."""
    mine = seen_of_plan(plan)
    beside = f", {comparison(plan)}" if comparison(plan) else ""
    time = _ascii(times([mine], plan).text(mine.total_s))
    return f"{time} on {basis(plan)} steps{beside}; gap {percent(plan.totals.gap)}"


def _cells(row: Row, time: TimeFormat, plan: PlanFile, *, objective: bool) -> tuple[str, ...]:
    def shown(scores: Scores | None) -> str:
        return time.number(scores.total_s) if scores else "-"

    name = f"{row.name} (plan)" if row.is_plan else row.name
    gap = percent(row.gap) if row.gap is not None else "-"
    third = time.number(plan.totals.bound_s)
    if objective:
        third = time.number(row.profile.objective_s) if row.profile else "-"
    return name, shown(row.profile), shown(row.held_out), third, gap, row.stop


def _ascii(text: str) -> str:
    return text.replace("µ", "u")
