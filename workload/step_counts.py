"""Counts of every recorded decode step, a few steps at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from .checks import check_choices
from .stream import Group, Progress, Readers, TraceStream, ignore
from .trace import with_file
from .trace_file import TraceFile

#: Counts that are in memory at a time.
_CHUNK_BYTES: Final = 1 << 26


def step_counts(
    stream: TraceStream, on_progress: Progress = ignore
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield recorded steps [s], ascending, and the tokens of their experts [s, L, E], until the trace ends.

    Steps without a token are left out. Memory: one row group and 64 MiB of counts, however long the trace
    is; `scan.count_stream` with `every` gives all steps at once.

    Raises BadInput where the trace has no steps, they do not ascend, or choices are impossible.
    """
    if "step" not in stream.optional:
        raise BadInput("the trace has no decode steps", fix="record them, or count windows of rows")
    readers, done, last = stream.readers(), 0, -1
    pending: NDArray[np.int64] = np.zeros((1, len(stream.layers), stream.num_experts), dtype=np.int64)
    for group in stream.groups:
        rows = readers.rows(group, ("step",))
        if not rows.kept.size:
            continue
        step = rows.columns["step"].astype(np.int64)
        _check_order(step, last, stream, group)
        for steps, counts in _counted(stream, readers, group, rows.kept, step):
            if steps[0] == last:
                counts[0] += pending[0]
            elif last >= 0:
                yield np.array([last]), pending
            if steps.size > 1:
                yield steps[:-1], counts[:-1]
            last, pending = int(steps[-1]), counts[-1:].copy()
        done += rows.kept.size
        on_progress(done, stream.tokens)
    yield np.array([last]), pending


def _counted(
    stream: TraceStream, readers: Readers, group: Group, kept: NDArray[np.int64], step: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Steps of a row group, a chunk at a time, and their counts."""
    file = stream.files[group.file]
    every_row = kept.size == group.rows
    codes = [c if every_row else c[kept] for c in readers.of(group).codes(group.index, stream.layers)]
    steps, begins = np.unique(step, return_index=True)
    ends = np.append(begins[1:], step.size)
    size = max(1, _CHUNK_BYTES // (8 * len(codes) * stream.num_experts))
    for first in range(0, steps.size, size):
        chosen = slice(first, first + size)
        rows = slice(int(begins[chosen][0]), int(ends[chosen][-1]))
        window = np.searchsorted(steps[chosen], step[rows])
        counts = np.zeros((len(codes), steps[chosen].size, stream.num_experts), dtype=np.int64)
        for place, each in enumerate(codes):
            where = group.file_row + kept[rows]
            _count(stream, file, stream.layers[place], each[rows], window, counts[place], where)
        yield steps[chosen], counts.transpose(1, 0, 2)


def _count(
    stream: TraceStream,
    file: TraceFile,
    layer: int,
    codes: NDArray[Any],
    window: NDArray[np.int64],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    from .scan_kernels import count_layer

    codes.flags.writeable = False  # one type for the kernel
    seen, nobody = np.empty(stream.num_experts, dtype=np.int64), np.empty(0, dtype=np.int64)
    carried, pairs = np.empty((0, stream.top_k), dtype=np.int16), np.empty((0, 0), dtype=np.uint32)
    wrong, _ = count_layer(codes, file.header.dropped_code, window, nobody, carried, counts, pairs, seen)
    if wrong >= 0:
        experts = file.header.decode(codes[wrong : wrong + 1])[:, None]
        first_row = int(rows[wrong])
        with_file(
            file.path, lambda: check_choices(experts, (layer,), stream.num_experts, first_row=first_row)
        )


def _check_order(step: NDArray[np.int64], last: int, stream: TraceStream, group: Group) -> None:
    before = np.append(last, step[:-1])
    if (step < before).any():
        at = int((step < before).argmax())
        raise BadInput(
            f"trace {str(stream.files[group.file].path)!r} goes back from step {before[at]} to {step[at]}",
            allowed="rows in the order of recording, in which steps ascend",
            fix="count windows with scan.count_stream, which takes rows in any order",
        )
