"""`python -m moeplan.benchmarks.micro`: how fast the hot paths are, on this machine, in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import channels, hardware, partition, ring, streaming

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Wide enough for the longest row, on a terminal and in a log alike.
_WIDTH = 200


def main() -> None:
    """Print one table of rates and ratios, and one of rings."""
    figures = (row for room in (hardware, channels, partition, streaming) for row in room.rows())
    _print("micro-benchmarks (one core, medians)", ("what", "figure", "measured on"), figures)
    rows = ring.run()
    cells = ([str(value) for value in row.values()] for row in rows)
    _print("rings: exact beside heuristics, random core sets", tuple(rows[0]), cells)


def _print(title: str, columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=_WIDTH).print(table)


if __name__ == "__main__":
    main()
