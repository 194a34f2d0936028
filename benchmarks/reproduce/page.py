"""All rows as one page with sortable tables, a section a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report.sheet import Column, Section, Table, render_sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rows import Row

_HEAD = (
    Column("item"), Column("published"), Column("ours"), Column("difference"), Column("note", words=True),
)  # fmt: skip


def render(rows: Sequence[Row]) -> str:
    """Return the page."""
    numbers = [row.difference for row in rows if row.difference is not None]
    close = sum(abs(difference) <= 0.1 for difference in numbers)
    lead = (
        f"{len(rows)} published figures, {len(numbers)} with a number of ours beside them, {close} of those "
        "within 10 %. Nothing is tuned to match."
    )
    sections = [
        Section(
            source, table=Table(_HEAD, tuple((False, _cells(row)) for row in rows if row.source == source))
        )
        for source in dict.fromkeys(row.source for row in rows)
    ]
    return render_sheet("published figures, made again", "Ours beside theirs", lead, sections)


def _cells(row: Row) -> tuple[str, ...]:
    return (row.item, *row.cells(), row.note)
