"""Counts and statistics of a streamed trace, in memory that does not grow with its tokens.

Layers are shared among lanes, one thread each. A lane reads its own columns and walks the row groups in
order, so that nothing is added up across threads and results do not depend on their number.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput, UsageError
from .checks import check_choices
from .counts import CountLoad
from .neighbours import Carrier, Neighbours
from .stats import TraceStatistics, token_statistics
from .stream import Group, Progress, Readers, Rows, TraceStream, ignore
from .trace import with_file

#: Row groups that lanes may be behind: enough to keep them busy.
_AHEAD: Final = 2
_NO_PAIRS: Final = np.empty((0, 0), dtype=np.uint32)
_NOBODY: Final = np.empty(0, dtype=np.int64)
#: Counts [S, L, E] larger than this are refused.
_MOST_COUNT_BYTES: Final = 1 << 30


@dataclass(frozen=True, eq=False)
class Scan:
    """What one pass over a trace counted.

    - `counts` int64 [S, L, E]: tokens of every expert in S windows.
    - `pairs` int64 [L, E, E]: tokens that chose both (see `load.count_pairs`), or None.
    - `shared` [L]: experts that tokens share with the request's next token, over `followed` such pairs of
      tokens; 0 where that was not asked for.
    - `tokens`, `requests`: T and R; `requests` is 0 where that was not asked for.
    """

    counts: NDArray[np.int64]
    pairs: NDArray[np.int64] | None
    shared: NDArray[np.int64]
    followed: int
    tokens: int
    requests: int


@dataclass(frozen=True, eq=False)
class _Task:
    """A row group as every lane gets it; `window` [t] of its kept rows."""

    group: Group
    kept: NDArray[np.int64]
    window: NDArray[np.int64]
    near: Neighbours | None


class _Lane:
    """Some layers of a trace: their counts so far, and what is carried from one row group to the next."""

    def __init__(self, stream: TraceStream, windows: int, *, pairs: bool) -> None:
        shape = (len(stream.layers), stream.num_experts)
        self._stream = stream
        self._readers: Readers | None = None
        self.counts = np.zeros((shape[0], windows, shape[1]), dtype=np.int64)
        self.pairs = np.zeros((*shape, stream.num_experts), dtype=np.int64) if pairs else None
        self.shared = np.zeros(len(stream.layers), dtype=np.int64)
        self._carried = np.zeros((len(stream.layers), 0, stream.top_k), dtype=np.int16)
        self._seen = np.empty(stream.num_experts, dtype=np.int64)

    def take(self, task: _Task) -> int:
        """Count a row group; return its rows."""
        from .scan_kernels import count_layer

        stream, near = self._stream, task.near
        if self._readers is None:
            self._readers = stream.readers()
        header = stream.files[task.group.file].header
        if near is not None and near.room > self._carried.shape[1]:
            shape = (len(stream.layers), max(near.room, 2 * self._carried.shape[1]), stream.top_k)
            grown = np.zeros(shape, dtype=np.int16)
            grown[:, : self._carried.shape[1]] = self._carried
            self._carried = grown
        rows: Any = slice(None) if task.kept.size == task.group.rows else task.kept
        named = _NO_PAIRS if self.pairs is None else np.zeros(self.pairs.shape[1:], dtype=np.uint32)
        for place, whole in enumerate(self._readers.of(task.group).codes(task.group.index, stream.layers)):
            codes = whole[rows]
            codes.flags.writeable = False  # one type for the kernel, whether rows were chosen or not
            wrong, shared = count_layer(
                codes, header.dropped_code, task.window, _NOBODY if near is None else near.before,
                self._carried[place], self.counts[place], named, self._seen,
            )  # fmt: skip
            if wrong >= 0:
                _complain(stream, task, place, int(wrong), codes)
            self.shared[place] += shared
            if self.pairs is not None:
                self.pairs[place] += named
                named[:] = 0
            if near is not None:
                self._carried[place, near.slots] = codes[near.rows]
        return int(task.kept.size)

    def both(self) -> NDArray[np.int64] | None:
        """Pairs [L, E, E] in either order, and the experts' own counts on the diagonal."""
        if self.pairs is None:
            return None
        pairs = self.pairs + self.pairs.transpose(0, 2, 1)
        diagonal = np.arange(pairs.shape[1])
        pairs[:, diagonal, diagonal] = self.counts.sum(axis=1)
        return pairs


def _complain(stream: TraceStream, task: _Task, place: int, row: int, codes: NDArray[Any]) -> None:
    """Raise what is wrong with a row of codes."""
    file = stream.files[task.group.file]
    experts = file.header.decode(codes[row : row + 1])[:, None]
    first_row = task.group.file_row + int(task.kept[row])
    layers = (stream.layers[place],)
    with_file(file.path, lambda: check_choices(experts, layers, stream.num_experts, first_row=first_row))


def scan(
    stream: TraceStream,
    *,
    windows: int = 1,
    every: int | None = None,
    pairs: bool = True,
    overlap: bool = True,
    threads: int | None = None,
    on_progress: Progress = ignore,
) -> Scan:
    """Count a trace in one pass: per window, layer and expert, pairs of experts, and overlap of tokens.

    Windows are `windows` equal runs of rows, or `every` so many recorded steps one window. `threads` is the
    number of cores by default. Memory: one row group, counts [S, L, E] and pairs [L, E, E] of
    int64, and for `overlap` the last token of every request under way, plus 32 bytes a request.

    Raises UsageError on a number below 1 or counts that would not fit into 1 GiB, BadInput on impossible
    choices (file, row and layer are named) and, with `overlap`, where positions of a request go back.
    """
    wanted = _windows(stream, windows, every)
    ids, lengths = request_lengths(stream) if overlap else (_NOBODY, _NOBODY)
    carrier = Carrier(ids, lengths) if overlap else None
    shares = _shares(stream, threads)
    lanes = [_Lane(stream.with_layers(layers), wanted, pairs=pairs) for layers in shares]
    readers, first, followed, done = stream.readers(), 0, 0, 0
    names = (*(("request", "position") if overlap else ()), *(("step",) if every else ()))
    waiting: deque[list[Future[int]]] = deque()
    with ExitStack() as stack:
        workers = [stack.enter_context(ThreadPoolExecutor(1)) for _ in lanes]
        stack.callback(lambda: [future.cancel() for futures in waiting for future in futures])
        for group in stream.groups:
            rows = readers.rows(group, names)
            if not rows.kept.size:
                continue
            near = _near(carrier, rows, stream, group)
            followed += near.pairs if near else 0
            if every:
                window = rows.columns["step"].astype(np.int64) // every
            else:
                window = np.arange(first, first + rows.kept.size) * wanted // stream.tokens
            first += rows.kept.size
            task = _Task(group, rows.kept, window, near)
            waiting.append(
                [worker.submit(lane.take, task) for worker, lane in zip(workers, lanes, strict=True)]
            )
            while len(waiting) > _AHEAD:
                done += _finished(waiting)
                on_progress(done, stream.tokens)
        while waiting:
            done += _finished(waiting)
            on_progress(done, stream.tokens)
    return _joined(lanes, followed=followed, tokens=stream.tokens, requests=int(ids.size))


def _joined(lanes: list[_Lane], *, followed: int, tokens: int, requests: int) -> Scan:
    pairs = [both for both in (lane.both() for lane in lanes) if both is not None]
    return Scan(
        counts=np.concatenate([lane.counts for lane in lanes]).transpose(1, 0, 2),
        pairs=np.concatenate(pairs) if pairs else None,
        shared=np.concatenate([lane.shared for lane in lanes]),
        followed=followed,
        tokens=tokens,
        requests=requests,
    )


def _finished(waiting: deque[list[Future[int]]]) -> int:
    """Wait for the oldest row group; return its rows."""
    rows = [future.result() for future in waiting[0]]
    waiting.popleft()
    return rows[0]


def _near(carrier: Carrier | None, rows: Rows, stream: TraceStream, group: Group) -> Neighbours | None:
    if carrier is None:
        return None
    request, position = (rows.columns[name].astype(np.int64) for name in ("request", "position"))
    return with_file(stream.files[group.file].path, lambda: carrier.next(request, position))


def _shares(stream: TraceStream, threads: int | None) -> list[tuple[int, ...]]:
    """Layers of every lane. A wide column holds all layers, and is better read once."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be at least 1, not {threads}")
    lanes = min(threads or cores(), len(stream.layers))
    if any(file.header.version == 1 for file in stream.files):
        lanes = 1
    parts = np.array_split(np.array(stream.layers), lanes)
    return [tuple(int(layer) for layer in part) for part in parts]


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _windows(stream: TraceStream, windows: int, every: int | None) -> int:
    """S, the number of windows."""
    if every is not None:
        if every < 1:
            raise UsageError(f"a window needs at least one step, not {every}")
        if "step" not in stream.optional:
            raise BadInput("the trace has no decode steps", fix="count windows of rows")
        windows = (stream.offsets["step"][-1] + stream.files[-1].largest["step"]) // every + 1
    elif not 1 <= windows <= stream.tokens:
        raise UsageError(f"{windows} windows of {stream.tokens} tokens", allowed=f"1 to {stream.tokens}")
    needed = windows * len(stream.layers) * stream.num_experts * 8
    if needed > _MOST_COUNT_BYTES:
        least = -(-needed // _MOST_COUNT_BYTES)
        raise UsageError(
            f"counts of {windows} windows would take {needed / 2**30:.1f} GiB",
            allowed=f"{_MOST_COUNT_BYTES / 2**30:.0f} GiB",
            fix=f"make the windows {least} times as long, name fewer layers, or walk with step_counts",
        )
    return windows


def request_lengths(stream: TraceStream) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids [R] of all requests, ascending, and their tokens [R]; reads the column `request` alone."""
    ids, lengths = _NOBODY, _NOBODY
    waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    readers = stream.readers()
    for group in stream.groups:
        found, tokens = np.unique(readers.rows(group, ("request",)).columns["request"], return_counts=True)
        waiting.append((found.astype(np.int64), tokens.astype(np.int64)))
        # Merging at every group would cost groups times requests.
        if sum(part.size for part, _ in waiting) > max(ids.size, 1 << 20):
            ids, lengths = _merged([(ids, lengths), *waiting])
            waiting = []
    return _merged([(ids, lengths), *waiting])


def _merged(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ids, member = np.unique(np.concatenate([part for part, _ in parts]), return_inverse=True)
    lengths = np.zeros(ids.size, dtype=np.int64)
    np.add.at(lengths, member, np.concatenate([tokens for _, tokens in parts]))
    return ids, lengths


def count_stream(
    stream: TraceStream,
    *,
    windows: int = 1,
    every: int | None = None,
    threads: int | None = None,
    on_progress: Progress = ignore,
) -> CountLoad:
    """Count a trace into [S, L, E]; see `scan` for the windows, memory and errors.

    With `every`, windows are numbered from step 0; raises BadInput where all are empty.
    """
    found = scan(
        stream, windows=windows, every=every, pairs=False, overlap=False, threads=threads,
        on_progress=on_progress,
    )  # fmt: skip
    size = found.counts.shape[0]
    if every is None:
        ends = [-(-stream.tokens * i // size) for i in range(size + 1)]
        labels = tuple(f"rows {a}-{b - 1}" for a, b in pairwise(ends))
    else:
        labels = tuple(f"steps {i * every}-{(i + 1) * every - 1}" for i in range(size))
    return CountLoad(
        counts=found.counts.astype(np.float64),
        layers=stream.layers,
        windows=("whole trace",) if size == 1 else labels,
        model=stream.model,
        source=stream.source,
    )


def stream_statistics(
    stream: TraceStream, *, threads: int | None = None, on_progress: Progress = ignore
) -> TraceStatistics:
    """`stats.trace_statistics` of a streamed trace: the same figures; see `scan` for memory and errors."""
    found = scan(stream, threads=threads, on_progress=on_progress)
    assert found.pairs is not None
    return token_statistics(
        found.pairs,
        layers=stream.layers,
        top_k=stream.top_k,
        tokens=found.tokens,
        requests=found.requests,
        shared=found.shared,
        followed=found.followed,
    )
