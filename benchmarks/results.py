"""`python -m moeplan.benchmarks.results [FILE]`: the long tables, made anew, as one Markdown file.

Beside the README, which shows the short ones. Sections that need recorded traces are left as they are where
MOEPLAN_TRACES does not name their folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..common.files import read_text, write_text
from ..placement.result import Budget
from . import ablation, mapping_table, partition_table, pooling, replicas_table, rexpert_row, rexpert_tables
from .blocks import replace_block
from .reproduce.collect import SOURCES, collect
from .reproduce.rows import Row

_SWEPT = (1, 16, 64, 256, 512)
_SEEDS = 10


def main() -> None:
    """Make every section whose block the file has."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/RESULTS.md").resolve()
    text = read_text(path)
    for name, make in _makers().items():
        print(f"making {name}", file=sys.stderr)
        text = replace_block(text, name, make())
        write_text(path, text)


def _makers() -> dict[str, Callable[[], str]]:
    folder = Path(os.environ["MOEPLAN_TRACES"]) if "MOEPLAN_TRACES" in os.environ else None
    makers: dict[str, Callable[[], str]] = {
        "sweep": sweep,
        "reproduced": reproduced,
        "ablation": lambda: ablation.markdown(list(ablation.rows())),
        "rexpert": lambda: rexpert_row.text(rexpert_tables.rows()),
        "pooling": lambda: pooling.tables(folder),
    }
    if folder is not None:
        makers["replicas"] = lambda: replicas(folder)
        makers["mapping"] = lambda: mapping(folder)
    return makers


def sweep() -> str:
    """Policies of GPU and PIM over batch sizes, with what agrees with Sieve's findings and why not."""
    rows = list(partition_table.sweep())
    shown = [row for row in rows if row.layout == "tp" and row.batch in _SWEPT]
    said = (*partition_table.findings(rows), *partition_table.explanations())
    return "\n".join([partition_table.sweep_table(shown), "", *(f"- {sentence}" for sentence in said)])


def mapping(folder: Path) -> str:
    """Held-out comparison of mappings on SPIMOE."""
    sizes = mapping_table.Sizes(seeds=_SEEDS)
    rows = mapping_table.table(list(mapping_table.SOURCES), mapping_table.BATCHES, sizes, folder)
    return mapping_table.markdown(list(rows))


def replicas(folder: Path) -> str:
    """Largest load over its bound, and balancedness on held-out traffic."""
    budget = Budget(time_s=None, iterations=40_000)
    cells = [*replicas_table.drift_cells(budget), *replicas_table.trace_cells(folder, budget)]
    return "\n\n".join([replicas_table.bound_table(), replicas_table.held_out_table(cells)])


def reproduced() -> str:
    """Every published figure beside ours."""
    lines = ["| source | item | published | ours | difference | note |", "|---|---|---:|---:|---:|---|"]
    for source in SOURCES:
        lines += [_line(row) for row in collect(source)]
    return "\n".join(lines)


def _line(row: Row) -> str:
    cells = (row.source, row.item, *row.cells(), row.note)
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


if __name__ == "__main__":
    main()
