"""Traces larger than memory: one or many files, read a row group and a few layers at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput, UsageError
from .readers.kinds import require_trace
from .trace import RoutingTrace, with_file
from .trace_file import GroupReader, TraceFile, open_file

#: Called with the tokens that are done and all tokens.
Progress = Callable[[int, int], None]

#: Traces whose experts take less than this in memory are better read whole.
IN_MEMORY_BYTES: Final = 1 << 28
_INT32_MAX: Final = 2**31 - 1


def ignore(done: int, tokens: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, eq=False)
class RowChoice:
    """Which rows belong to a part of a trace.

    - `requests`: ascending ids of whole requests, or None; then the rows from `row` on, or with `step` those
      of a later step and those of just this step from `row` on.
    - `inside`: whether the part holds these rows, or all others.
    """

    inside: bool
    requests: NDArray[np.int64] | None = None
    row: int = 0
    step: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that `mask` looks at."""
        if self.requests is not None:
            return ("request",)
        return () if self.step is None else ("step",)

    def mask(self, rows: NDArray[np.int64], columns: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Rows of the part among `rows` [T], of which `columns` [T] are known."""
        if self.requests is not None:
            chosen = np.isin(columns["request"], self.requests)
        else:
            chosen = rows >= self.row
            if self.step is not None:
                chosen = (columns["step"] > self.step) | ((columns["step"] == self.step) & chosen)
        result: NDArray[np.bool_] = chosen == self.inside
        return result


@dataclass(frozen=True)
class Group:
    """A row group: its file, its number there, its first row in the file and in the trace, its rows."""

    file: int
    index: int
    file_row: int
    first_row: int
    rows: int


@dataclass(frozen=True, eq=False)
class TraceStream:
    """A trace on disk, or a part of it; nothing of its tokens is held in memory.

    - `files`: of one model, layers and columns; their rows follow each other. Requests and steps of a later
      file are other ones than those of the files before: their numbers are raised beyond those.
    - `layers`: absolute ids of the layers that are read; others cost nothing.
    - `choices`: parts of parts; a row belongs to the stream where all of them hold.
    - `tokens`: T, rows of the stream.

    Made by `open_trace`.
    """

    files: tuple[TraceFile, ...]
    layers: tuple[int, ...]
    tokens: int
    choices: tuple[RowChoice, ...] = ()

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.files[0].header.model

    @property
    def num_experts(self) -> int:
        """E, the experts of a layer."""
        return self.files[0].header.num_experts

    @property
    def top_k(self) -> int:
        """K, the experts of a token."""
        return self.files[0].header.top_k

    @property
    def source(self) -> str:
        """Where the choices come from; of several files the distinct answers, in order."""
        return "; ".join(dict.fromkeys(file.header.source for file in self.files))

    @property
    def optional(self) -> tuple[str, ...]:
        """Which of "weights", "step" and "phase" there are."""
        return self.files[0].optional

    @property
    def in_memory_bytes(self) -> int:
        """What the choices of the chosen layers take as a `RoutingTrace`."""
        return self.tokens * len(self.layers) * self.top_k * np.dtype(np.int16).itemsize

    @property
    def is_large(self) -> bool:
        """Whether the trace should not be read whole."""
        return self.in_memory_bytes > IN_MEMORY_BYTES

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All row groups, in order; parts have those of the whole trace."""
        found, first = [], 0
        for number, file in enumerate(self.files):
            begun = first
            for index, rows in enumerate(file.rows):
                found.append(Group(number, index, first - begun, first, rows))
                first += rows
        return tuple(group for group in found if group.rows)

    @cached_property
    def offsets(self) -> dict[str, tuple[int, ...]]:
        """What is added to the requests and steps of every file."""
        added = {}
        for name in self.files[0].largest:
            ends = [0, *np.cumsum([file.largest[name] + 1 for file in self.files]).tolist()]
            added[name] = tuple(ends[:-1])
        return added

    def with_layers(self, layers: Sequence[int]) -> TraceStream:
        """The same rows, of which only these layers are read. Raises UsageError on a layer it lacks."""
        strangers = [layer for layer in layers if layer not in self.layers]
        if strangers or not layers:
            raise UsageError(
                f"the trace has no layer {strangers[0]}" if strangers else "no layer is named",
                allowed=", ".join(map(str, self.layers)),
            )
        return replace(self, layers=tuple(sorted(set(layers))))

    def part(self, choice: RowChoice, tokens: int) -> TraceStream:
        """The rows that `choice` chooses of these, `tokens` in number."""
        return replace(self, choices=(*self.choices, choice), tokens=tokens)

    def readers(self) -> Readers:
        """Handles of its own for a thread."""
        return Readers(self)

    def blocks(self, on_progress: Progress = ignore) -> Iterator[RoutingTrace]:
        """Yield the rows as consecutive traces, a row group (or its part) each; checked.

        Raises BadInput that names the file on impossible choices.
        """
        readers, done = self.readers(), 0
        for group in self.groups:
            rows = readers.rows(group, ("request", "position", *self._plain))
            if rows.kept.size:
                yield with_file(self.files[group.file].path, partial(self._block, readers, group, rows))
                done += rows.kept.size
                on_progress(done, self.tokens)

    def read(self) -> RoutingTrace:
        """Read the chosen rows and layers into memory; checked.

        Raises BadInput that names the file on impossible choices.
        """
        if len(self.files) > 1:
            return _joined(list(self.blocks()), self.source)
        readers, at = self.readers(), 0
        shape = (self.tokens, len(self.layers), self.top_k)
        experts = np.empty(shape, dtype=np.int16)
        weights = np.empty(shape, dtype=np.float32) if "weights" in self.optional else None
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in ("request", "position", *self._plain)}
        for group in self.groups:
            rows = readers.rows(group, tuple(columns))
            for name, values in columns.items():
                values.append(rows.columns[name])
            place = slice(at, at + rows.kept.size)
            readers.fill(group, rows.kept, experts[place], None if weights is None else weights[place])
            at += rows.kept.size
        plain = {name: np.concatenate(values) for name, values in columns.items()}
        return with_file(self.files[0].path, lambda: self._trace(experts, weights, plain))

    @property
    def _plain(self) -> tuple[str, ...]:
        return tuple(name for name in ("step", "phase") if name in self.optional)

    def _block(self, readers: Readers, group: Group, rows: Rows) -> RoutingTrace:
        shape = (rows.kept.size, len(self.layers), self.top_k)
        experts = np.empty(shape, dtype=np.int16)
        weights = np.empty(shape, dtype=np.float32) if "weights" in self.optional else None
        readers.fill(group, rows.kept, experts, weights)
        return self._trace(experts, weights, rows.columns)

    def _trace(
        self, experts: NDArray[np.int16], weights: NDArray[np.float32] | None, plain: dict[str, NDArray[Any]]
    ) -> RoutingTrace:
        return RoutingTrace(
            experts=experts,
            weights=weights,
            request=plain["request"],
            position=plain["position"],
            step=plain.get("step"),
            phase=plain.get("phase"),
            model=self.model,
            layers=self.layers,
            num_experts=self.num_experts,
            top_k=self.top_k,
            source=self.source,
        )


def _joined(blocks: list[RoutingTrace], source: str) -> RoutingTrace:
    def whole(name: str) -> Any:
        parts = [getattr(block, name) for block in blocks]
        return None if parts[0] is None else np.concatenate(parts)

    names = ("experts", "weights", "request", "position", "step", "phase")
    return replace(blocks[0], source=source, **{name: whole(name) for name in names})


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a group that belong to a stream: which of its rows [t], and plain columns [t] of them."""

    kept: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]


class Readers:
    """Open handles on the files of a stream; for one thread at a time."""

    def __init__(self, stream: TraceStream) -> None:
        self._stream = stream
        self._open: tuple[int, GroupReader] | None = None

    def of(self, group: Group) -> GroupReader:
        """The handle on the file of a group."""
        if self._open is None or self._open[0] != group.file:
            self._open = (group.file, self._stream.files[group.file].reader())
        return self._open[1]

    def rows(self, group: Group, names: tuple[str, ...]) -> Rows:
        """Rows of the group that belong to the stream, with these columns."""
        stream = self._stream
        needed = dict.fromkeys([*names, *(name for choice in stream.choices for name in choice.columns)])
        columns = self.of(group).plain(group.index, tuple(needed)) if needed else {}
        for name, offsets in stream.offsets.items():
            if name in columns and offsets[group.file]:
                columns[name] = columns[name].astype(np.int64) + offsets[group.file]
        kept = np.arange(group.rows)
        if stream.choices:
            masks = (choice.mask(kept + group.first_row, columns) for choice in stream.choices)
            kept = np.flatnonzero(np.logical_and.reduce(list(masks)))
            columns = {name: values[kept] for name, values in columns.items()}
        return Rows(kept, {name: columns[name] for name in names})

    def fill(
        self,
        group: Group,
        kept: NDArray[np.int64],
        experts: NDArray[np.int16],
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Read the stream's layers of these rows of a group into `experts` [t, L, K], and their weights."""
        stream, reader = self._stream, self.of(group)
        header = stream.files[group.file].header
        rows: Any = slice(None) if kept.size == group.rows else kept
        if not kept.size:
            return
        for place, codes in enumerate(reader.codes(group.index, stream.layers)):
            experts[:, place] = header.decode(codes[rows])
        if weights is not None:
            for place, values in enumerate(reader.weights(group.index, stream.layers)):
                weights[:, place] = values[rows]


def open_trace(path: str | Path | Sequence[str | Path]) -> TraceStream:
    """Open a trace without reading its tokens.

    `path` is a file, a folder whose `*.parquet` files are taken in the order of their names, or a sequence
    of files in their order. Files must be of one model and have the same layers, experts, top-k and columns.

    Raises BadInput where there is no file, one is no trace (it says what to do with other kinds of files), or
    they do not belong together.
    """
    paths = _paths(path)
    for each in paths:
        require_trace(each)
    files = tuple(open_file(each) for each in paths)
    for file in files[1:]:
        _check_same(files[0], file)
    stream = TraceStream(files, files[0].header.layers, sum(file.tokens for file in files))
    for name in ("request", "step"):
        if name in stream.offsets and sum(file.largest[name] + 1 for file in files) > _INT32_MAX + 1:
            raise BadInput(
                f"the files together have {name} numbers beyond {_INT32_MAX}",
                where=str(files[-1].path),
                fix="number from 0 in every file, or use fewer files",
            )
    return stream


def _paths(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(path, str | Path):
        paths = [Path(each) for each in path]
        if not paths:
            raise BadInput("no trace is named", fix="name at least one file")
        return paths
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise BadInput(f"cannot read folder {str(folder)!r}: {error.strerror}") from error
    found = [each for each in entries if each.suffix == ".parquet" and not each.name.startswith(".")]
    if not found:
        what = "holds no traces" if entries else "is empty"
        raise BadInput(
            f"folder {str(folder)!r} {what}",
            allowed="files of moeplan trace import, record or synth whose names end in .parquet",
            fix="name a trace, or a folder of them",
        )
    return found


def _check_same(first: TraceFile, other: TraceFile) -> None:
    def described(file: TraceFile) -> dict[str, Any]:
        header = file.header
        return {
            "model": header.model,
            "layers": ", ".join(map(str, header.layers)),
            "experts": header.num_experts,
            "top-k": header.top_k,
            "optional columns": ", ".join(file.optional) or "none",
        }

    expected, found = described(first), described(other)
    for name, value in expected.items():
        if found[name] != value:
            raise BadInput(
                f"{str(other.path)!r} and {str(first.path)!r} are not parts of one trace",
                where=f"{name}: {found[name]} and {value}",
                allowed="traces of one model with the same layers and columns",
                fix="keep the traces of different recordings in folders of their own",
            )
