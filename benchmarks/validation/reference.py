"""Tables of independent measurements: CSV files in a folder that the user names; none ships with moeplan."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import BadInput
from ...common.files import read_text


@dataclass(frozen=True)
class Row:
    """One row of a table, and where it stands."""

    values: dict[str, str]
    path: Path
    line: int

    @property
    def where(self) -> str:
        """File and line, for errors."""
        return f"{self.path}, line {self.line}"

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def whole(self, column: str) -> int:
        """Return a whole number >= 1. Raises BadInput where the cell holds none."""
        try:
            number = int(self[column])
        except ValueError:
            number = 0
        if number < 1:
            raise BadInput(
                f"{column} is {self[column]!r}", where=self.where, allowed="a whole number of at least 1"
            )
        return number


def read_rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header that has at least `columns`.

    Raises BadInput, with file and line, where the file is missing, empty, or a line is too short or long.
    """
    reader = csv.DictReader(io.StringIO(read_text(path, "reference table")), strict=True)
    try:
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise BadInput(
                f"reference table {str(path)!r} has no column {', '.join(missing)}", where=f"{path}, line 1"
            )
        row = None
        for values in reader:
            row = Row(values, path, reader.line_num)
            if None in values or None in values.values():
                raise BadInput(
                    f"the row has not the {len(reader.fieldnames or ())} cells of the header",
                    where=row.where,
                    fix="take the whole table",
                )
            yield row
    except csv.Error as error:
        raise BadInput(f"not CSV: {error}", where=f"{path}, line {reader.line_num + 1}") from error
    if row is None:
        raise BadInput(f"reference table {str(path)!r} has no rows", where=f"{path}, line 1")
