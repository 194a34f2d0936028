"""`python -m moeplan.benchmarks.micro`: how fast the hot paths are, on this machine, in one run."""

from __future__ import annotations

from .channels import annealing_rates, evaluation_ratio


def main() -> None:
    """Print one table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="micro-benchmarks (one core, medians)", title_justify="left")
    for column in ("what", "figure", "measured on"):
        table.add_column(column, overflow="fold")
    for row in (*annealing_rates(), evaluation_ratio()):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
