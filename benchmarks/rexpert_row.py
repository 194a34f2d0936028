"""One figure of a published table beside ours, and how many of them are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure, in the unit that the table prints; `published` None: an input, or not printed.

    `decimals`: of a published figure of two digits, to which ours is rounded before the two are compared.
    """

    table: str
    name: str
    ours: float
    published: float | None
    unit: str = ""
    note: str = ""
    decimals: int | None = None

    @property
    def error(self) -> float | None:
        """Signed relative error."""
        if not self.published:
            return None
        ours = self.ours if self.decimals is None else round(self.ours, self.decimals)
        return (ours - self.published) / self.published


def text(found: Iterable[Row]) -> str:
    """Return Markdown, one table of rows after the other."""
    head = ["", "| quantity | ours | published | error | |", "|---|--:|--:|--:|---|"]
    lines: list[str] = []
    title = ""
    for row in found:
        if row.table != title:
            title = row.table
            lines += ["", f"## {title}", *head]
        error = "" if row.error is None else f"{row.error:+.1%}" + " rounded" * (row.decimals is not None)
        published = "" if row.published is None else f"{row.published:g}"
        note = "; ".join(part for part in (row.unit, row.note) if part)
        lines.append(f"| {row.name} | {row.ours:.4g} | {published} | {error} | {note} |")
    return "\n".join(lines).strip()


def worst(table: str, found: Sequence[Row]) -> str:
    """Return a sentence on the largest error of a table."""
    compared = [row for row in found if row.table == table and row.error is not None]
    row = max(compared, key=lambda row: abs(row.error or 0.0))
    return f"{table}: {len(compared)} figures, largest error {row.error:+.1%} ({row.name})"
