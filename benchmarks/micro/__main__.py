"""`python -m moeplan.benchmarks.micro`: how fast the hot paths are, on this machine, in one run."""

from __future__ import annotations

from . import channels, hardware, partition


def main() -> None:
    """Print one table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="micro-benchmarks (one core, medians)", title_justify="left")
    for column in ("what", "figure", "measured on"):
        table.add_column(column, overflow="fold")
    for room in (hardware, channels, partition):
        for row in room.rows():
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
