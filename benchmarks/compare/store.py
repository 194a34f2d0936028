"""Where finished cells are kept: a folder of Parquet files, one a cell, that only grows.

A cell's file is complete or not there at all, whatever kills the comparison, so a second run finds exactly
what is missing. The folder as a whole reads as one Parquet dataset.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import BadInput
from ...common.files import atomic_path
from .cell import Cell, Finished, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Ends that say something about the machine or the moment, not about the cell: a later run tries them again.
_TRANSIENT = ("failed", "timeout", "memory")


class Store:
    """The cells in `folder`, which is made where it is missing. Raises BadInput where it cannot be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"cannot make the folder {str(folder)!r}: {error.strerror}", fix="name another with -o"
            ) from error

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not here, or that failed before, in their order."""
        return [
            cell
            for cell in cells
            if not self._path(cell).is_file() or self.read(cell).outcome.status in _TRANSIENT
        ]

    def absent(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not here at all, in their order."""
        return [cell for cell in cells if not self._path(cell).is_file()]

    def write(self, finished: Finished) -> None:
        """Keep a finished cell, atomically."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        row: dict[str, Any] = {
            **asdict(finished.cell),
            **asdict(finished.outcome),
            "version": finished.version,
        }
        row["anytime"] = json.dumps(row["anytime"])
        with atomic_path(self._path(finished.cell)) as temporary:
            pq.write_table(pa.Table.from_pylist([row], schema=_schema()), temporary)

    def read(self, cell: Cell) -> Finished:
        """Return a cell that is here. Raises BadInput where its file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._path(cell)
        try:
            (row,) = pq.read_table(path, schema=_schema()).to_pylist()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise BadInput(
                f"{str(path)!r} is no finished cell", fix="delete it: the cell will run again"
            ) from error
        row["anytime"] = tuple((int(i), s, best) for i, s, best in json.loads(row["anytime"]))
        version = row.pop("version")
        mine = {name: row.pop(name) for name in asdict(cell)}
        return Finished(Cell(**mine), Outcome(**row), version)

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.parquet"


def _schema() -> Any:
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int64()
    return pa.schema([
        ("instance", text), ("solver", text), ("seed", whole), ("budget_s", number),
        ("budget_iterations", whole),
        ("status", text), ("reason", text), ("objective_s", number), ("total_s", number),
        ("held_out_s", number), ("bound_s", number), ("bound_by", text), ("stop", text),
        ("iterations", whole), ("elapsed_s", number), ("peak_bytes", whole),
        ("problem", text), ("anytime", text), ("version", text),
    ])  # fmt: skip
