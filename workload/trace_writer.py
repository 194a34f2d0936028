"""Writing traces block by block: a row group in memory, and the file whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import atomic_path
from .checks import DROPPED
from .trace_format import (
    METADATA_KEY,
    PLAIN_COLUMNS,
    ROW_GROUP_ROWS,
    TraceHeader,
    column_types,
    header_of,
    layer_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .trace import RoutingTrace

#: Zstandard at its fastest: routing has little to gain from more.
_LEVEL: Final = 1
_ARRAYS: Final = ("experts", "weights", *PLAIN_COLUMNS)


class TraceWriter:
    """Gathers blocks into row groups; made by `trace_writer`.

    `tokens`: written or waiting so far.
    """

    def __init__(self, parquet: pq.ParquetWriter, first: RoutingTrace, header: TraceHeader) -> None:
        self._parquet, self._header = parquet, header
        self._present = tuple(name for name in _ARRAYS if getattr(first, name) is not None)
        self._waiting: list[dict[str, NDArray[Any]]] = []
        self.tokens = 0

    def write(self, block: RoutingTrace) -> None:
        """Append the rows of a block. Raises BadInput where it is of another trace than the first."""
        self._check(block)
        self._waiting.append({name: getattr(block, name) for name in self._present})
        self.tokens += block.tokens
        waiting = sum(part["request"].size for part in self._waiting)
        while waiting >= ROW_GROUP_ROWS:
            self._write_group(ROW_GROUP_ROWS)
            waiting -= ROW_GROUP_ROWS

    def finish(self) -> None:
        """Write the last row group."""
        rows = sum(part["request"].size for part in self._waiting)
        if rows:
            self._write_group(rows)

    def _check(self, block: RoutingTrace) -> None:
        present = tuple(name for name in _ARRAYS if getattr(block, name) is not None)
        if present != self._present:
            raise BadInput(f"a block has the columns {', '.join(present)}, not {', '.join(self._present)}")
        for name in ("model", "layers", "num_experts", "top_k"):
            if getattr(block, name) != getattr(self._header, name):
                raise BadInput(
                    f"a block has {name} {getattr(block, name)}, not {getattr(self._header, name)}",
                    fix="write blocks of one trace into one file",
                )

    def _write_group(self, rows: int) -> None:
        import pyarrow as pa

        arrays = self._take(rows)
        types = column_types(self._header)
        columns: dict[str, pa.Array] = {}
        codes = self._header.encode(arrays["experts"])
        self._add_layers(columns, "experts", codes, types)
        if "weights" in arrays:
            self._add_layers(columns, "weights", arrays["weights"].astype("<f4", copy=False), types)
        for name in PLAIN_COLUMNS:
            if name in arrays:
                columns[name] = pa.array(arrays[name], type=types[name])
        schema = self._parquet.schema
        table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        self._parquet.write_table(table, row_group_size=rows)

    def _add_layers(
        self, columns: dict[str, pa.Array], what: str, values: NDArray[Any], types: dict[str, pa.DataType]
    ) -> None:
        """Add a column of bytes for every layer of values [T, L, K]."""
        import pyarrow as pa

        for index, name in enumerate(layer_columns(self._header, what, self._header.layers)):
            data = pa.py_buffer(np.ascontiguousarray(values[:, index]))
            columns[name] = pa.Array.from_buffers(types[name], values.shape[0], [None, data])

    def _take(self, rows: int) -> dict[str, NDArray[Any]]:
        """Remove the first `rows` waiting rows; blocks are only copied where several make a group."""
        taken: list[dict[str, NDArray[Any]]] = []
        while rows:
            part = self._waiting.pop(0)
            if part["request"].size > rows:
                self._waiting.insert(0, {name: values[rows:] for name, values in part.items()})
                part = {name: values[:rows] for name, values in part.items()}
            taken.append(part)
            rows -= part["request"].size
        if len(taken) == 1:
            return taken[0]
        return {name: np.concatenate([part[name] for part in taken]) for name in self._present}


@contextmanager
def trace_writer(path: str | Path, first: RoutingTrace, *, dropped: bool = False) -> Iterator[TraceWriter]:
    """Yield what takes the blocks of a trace, the one like `first`, which is not written by itself.

    The file appears at `path` when the block ends well; where it raises, nothing is left behind. `dropped`
    says that experts may be missing (-1), for which ids of 256 experts need a second byte. The bytes depend
    on the rows alone and not on how they are cut into blocks.

    Raises BadInput where `path` cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = header_of(first, dropped=dropped)
    types = column_types(header)
    wide = {
        name
        for what in ("experts", "weights")
        if getattr(first, what) is not None
        for name in layer_columns(header, what, header.layers)
    }
    plain = [name for name in PLAIN_COLUMNS if getattr(first, name) is not None]
    fields = [pa.field(name, types[name], nullable=False) for name in types if name in wide or name in plain]
    schema = pa.schema(fields, metadata={METADATA_KEY: header.to_json()})
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=plain,
            write_statistics=plain,
            write_page_checksum=True,
        ) as parquet,
    ):
        writer = TraceWriter(parquet, first, header)
        yield writer
        writer.finish()


def write_blocks(
    blocks: Iterable[RoutingTrace],
    path: str | Path,
    *,
    dropped: bool = False,
    on_block: Callable[[int], None] | None = None,
) -> int:
    """Write consecutive blocks of one trace; return the number of tokens.

    `on_block` is called with the tokens so far. Raises BadInput where there is no block, blocks do not
    belong together, or `path` cannot be written; nothing is left behind then. See `trace_writer`.
    """
    remaining = iter(blocks)
    first = next(remaining, None)
    if first is None:
        raise BadInput("the trace holds no tokens")
    with trace_writer(path, first, dropped=dropped) as writer:
        writer.write(first)
        if on_block:
            on_block(writer.tokens)
        for block in remaining:
            writer.write(block)
            if on_block:
                on_block(writer.tokens)
    return writer.tokens


def has_dropped(trace: RoutingTrace) -> bool:
    """Whether an expert of the trace was dropped."""
    starts = range(0, trace.tokens, ROW_GROUP_ROWS)
    return any(bool((trace.experts[first : first + ROW_GROUP_ROWS] == DROPPED).any()) for first in starts)
