"""Where finished cells are kept: a folder of Parquet files, one a cell, that only grows.

A cell's file is complete or not there at all, whatever kills the comparison, so a second run finds exactly
what is missing. The folder as a whole reads as one Parquet dataset.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ...common.errors import BadInput
from ...common.files import atomic_path
from .cell import Cell, Finished, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Ends that say something about the machine or the moment, not about the cell: a later run tries them again.
_TRANSIENT = ("failed", "timeout", "memory")


class Store:
    """The cells in `folder`, which is made where it is missing. Raises BadInput where it cannot be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[Cell] = []
        """Cells whose files `missing` found damaged; they run again."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"cannot make the folder {str(folder)!r}: {error.strerror}", fix="name another with -o"
            ) from error

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that are not here, or that failed before or are damaged, in their order.

        Afterwards `damaged` says which of them are. Raises BadInput where something that is no file stands
        in a cell's place.
        """
        self.damaged = []
        waiting = []
        for cell in cells:
            kept = self._kept(cell)
            if kept is None and self._path(cell).exists():
                self.damaged.append(cell)
            if kept is None or kept.outcome.status in _TRANSIENT:
                waiting.append(cell)
        return waiting

    def finished(self, cells: Iterable[Cell]) -> list[Finished]:
        """Return those of the cells that are here whole, in their order."""
        return [kept for kept in map(self._kept, cells) if kept is not None]

    def _kept(self, cell: Cell) -> Finished | None:
        """Return a cell; None where it is not here, or damaged."""
        path = self._path(cell)
        if not path.exists():
            return None
        if not path.is_file():
            raise BadInput(
                f"{str(path)!r} is no regular file, and a finished cell is to be kept there",
                fix="remove it or move it away, then run the same command again",
            )
        try:
            return self.read(cell)
        except BadInput:
            return None

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
            row["anytime"] = tuple((int(i), s, best) for i, s, best in json.loads(row["anytime"]))
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise _damaged(path) from error
        version = row.pop("version")
        mine = {name: row.pop(name) for name in asdict(cell)}
        if Cell(**mine) != cell or row["status"] not in get_args(Status):
            raise _damaged(path)
        return Finished(cell, Outcome(**row), version)

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.parquet"


def _damaged(path: Path) -> BadInput:
    return BadInput(f"{str(path)!r} is no finished cell", fix="delete it: the cell will run again")


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
