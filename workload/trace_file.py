"""One trace file: opened once, read a row group and a few columns at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import require_file
from .trace_format import TraceHeader, check_schema, layer_columns, read_header

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


@dataclass(frozen=True, eq=False)
class TraceFile:
    """What a trace file says of itself.

    - `optional`: which of "weights", "step" and "phase" it has; `rows`: tokens of its row groups.
    - `largest`: the largest value of request and step, "step" only where it is there.
    """

    path: Path
    header: TraceHeader
    optional: tuple[str, ...]
    rows: tuple[int, ...]
    largest: dict[str, int]
    _metadata: pq.FileMetaData = field(repr=False)

    @property
    def tokens(self) -> int:
        """Rows of the file."""
        return sum(self.rows)

    def reader(self) -> GroupReader:
        """A handle of its own, to be used by one thread at a time."""
        return GroupReader(self)


def open_file(path: Path) -> TraceFile:
    """Read header and row groups, no tokens.

    Raises BadInput where the file is missing, truncated, no trace of moeplan, or lacks a column.
    """
    import pyarrow.parquet as pq

    require_file(path, "trace")
    with whole_file(path), pq.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    header = read_header(schema.metadata or {}, path)
    optional = check_schema(schema, header, path)
    rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    opened = TraceFile(path, header, optional, tuple(rows), {}, metadata)
    if opened.tokens == 0:
        raise BadInput(f"trace {str(path)!r}: the trace holds no tokens")
    for name in ("request", *(("step",) if "step" in optional else ())):
        opened.largest[name] = _largest(opened, name)
    return opened


def _largest(file: TraceFile, name: str) -> int:
    """The largest value of a plain column, from the file's statistics where it has them."""
    groups = [file._metadata.row_group(i) for i in range(len(file.rows)) if file.rows[i]]
    leaves = [groups[0].column(i).path_in_schema for i in range(groups[0].num_columns)]
    columns = [group.column(leaves.index(name)) for group in groups]
    if all(column.is_stats_set and column.statistics.has_min_max for column in columns):
        return int(max(column.statistics.max for column in columns))
    reader = file.reader()
    return int(max(reader.plain(i, (name,))[name].max() for i, rows in enumerate(file.rows) if rows))


@contextmanager
def whole_file(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into BadInput that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(
            f"trace {str(path)!r} is not a whole Parquet file: {str(error).splitlines()[0]}",
            fix="copy it again, or make it anew with moeplan trace import",
        ) from error


class GroupReader:
    """Reads columns of row groups; only the bytes of these columns are read."""

    def __init__(self, file: TraceFile) -> None:
        import pyarrow.parquet as pq

        self._file = file
        with whole_file(file.path):
            self._parquet = pq.ParquetFile(
                file.path, metadata=file._metadata, page_checksum_verification=True, pre_buffer=False
            )

    def plain(self, group: int, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        """Columns [T] of a row group out of request, position, step, phase; checked."""
        read = self._read(group, list(names))
        columns = {name: self._numbers(read[name], name) for name in names}
        for name, values in columns.items():
            if values.min(initial=0) < 0:
                row = int((values < 0).argmax())
                raise BadInput(
                    f"trace {str(self._file.path)!r}: {name!r} value {values[row]} is out of range",
                    where=f"row {sum(self._file.rows[:group]) + row}",
                    allowed=f"0 to {np.iinfo(values.dtype).max}",
                )
        return columns

    def codes(self, group: int, layers: tuple[int, ...]) -> Iterator[NDArray[Any]]:
        """Expert ids as stored, [T, K] of every layer, in order; see `TraceHeader.decode`."""
        return self._layers(group, "experts", layers, self._file.header.id_type)

    def weights(self, group: int, layers: tuple[int, ...]) -> Iterator[NDArray[np.float32]]:
        """Router weights [T, K] of every layer, in order."""
        return self._layers(group, "weights", layers, np.dtype("<f4"))

    def _layers(
        self, group: int, what: str, layers: tuple[int, ...], kind: np.dtype[Any]
    ) -> Iterator[NDArray[Any]]:
        header = self._file.header
        names = layer_columns(header, what, layers)
        read = self._read(group, names)
        if header.version == 1:
            wide = self._numbers(read[what], what).reshape(-1, len(header.layers), header.top_k)
            for layer in layers:
                yield np.ascontiguousarray(wide[:, header.layers.index(layer)])
            return
        for name in names:
            array = self._whole(read.pop(name), name)
            width = header.top_k * kind.itemsize
            data = np.frombuffer(array.buffers()[1], dtype=np.uint8, count=len(array) * width,
                                 offset=array.offset * width)  # fmt: skip
            yield data.view(kind).reshape(-1, header.top_k)

    def _read(self, group: int, names: list[str]) -> dict[str, pa.ChunkedArray]:
        with whole_file(self._file.path):
            table = self._parquet.read_row_group(group, columns=names, use_threads=False)
        return {name: table.column(name) for name in names}

    def _whole(self, column: pa.ChunkedArray, name: str) -> pa.Array:
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        self._check_nulls(array.null_count, name)
        return array

    def _numbers(self, column: pa.ChunkedArray, name: str) -> NDArray[Any]:
        import pyarrow as pa

        array = self._whole(column, name)
        if pa.types.is_fixed_size_list(array.type):
            array = array.flatten()
            self._check_nulls(array.null_count, name)
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values

    def _check_nulls(self, nulls: int, name: str) -> None:
        if nulls:
            raise BadInput(f"trace {str(self._file.path)!r}: column {name!r} has {nulls} empty values")
