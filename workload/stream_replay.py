"""Decode steps and splits of a streamed trace: the same as in memory, without holding its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from .checks import check_choices
from .load import Load
from .replay import check_replay, check_split, held_tokens, hold_out, load_of, queue_index, ring_index
from .scan import cores, request_lengths
from .stream import Group, Progress, RowChoice, Rows, TraceStream, ignore
from .trace import with_file


def replay_stream(
    stream: TraceStream, *, batch: int, steps: int, seed: int, on_progress: Progress = ignore
) -> Load:
    """`replay.replay` of a streamed trace: the same steps for the same seed, and the same errors.

    The column `request` is read first, then the positions of the requests that run, then the choices of the
    rows that are shown; only those are checked. Memory: 16 bytes a request, 24 bytes a token of the requests
    that run, and the load itself; where the trace has fewer requests than `batch`, all of them run.
    """
    check_replay(stream.tokens, batch=batch, steps=steps)
    rng = np.random.default_rng(seed)
    ids, lengths = request_lengths(stream)
    order = rng.permutation(ids.size)
    length = lengths[order]
    start = np.cumsum(length) - length
    scarce = ids.size < batch
    if scarce:
        index = ring_index(stream.tokens, batch, steps)
    else:
        index = queue_index(start, length, batch, steps, rng)
    shown, place = np.unique(index, return_inverse=True)
    rows = _rows_of(stream, shown, start, ids[order])
    in_order, rank = np.unique(rows, return_inverse=True)
    experts = _gather(stream, in_order, on_progress)
    return load_of(
        stream, experts[rank[place]].reshape(steps, batch, len(stream.layers), stream.top_k), ids.size,
        scarce=scarce, reused=steps * batch - shown.size,
    )  # fmt: skip


def _rows_of(
    stream: TraceStream, index: NDArray[np.int64], start: NDArray[np.int64], ids: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows [n] of the trace at these places [n] of its tokens sorted by request, then by position.

    The requests lie in the order of `ids` [R], each from `start` [R] on.
    """
    running = np.unique(np.searchsorted(start, index, side="right") - 1)
    by_id = running[np.argsort(ids[running])]
    found: list[tuple[NDArray[np.int64], ...]] = []
    for group, rows in _walk(stream, ("request", "position")):
        request = rows.columns["request"].astype(np.int64)
        member = np.minimum(np.searchsorted(ids[by_id], request), by_id.size - 1)
        runs = ids[by_id][member] == request
        position = rows.columns["position"][runs].astype(np.int64)
        found.append((by_id[member[runs]], position, group.first_row + rows.kept[runs]))
    rank, position, row = (np.concatenate(parts) for parts in zip(*found, strict=True))
    ordered = row[np.lexsort((position, rank))]
    # The tokens of the requests that run, one after the other, without those in between.
    whose = np.searchsorted(start, index, side="right") - 1
    first = np.searchsorted(np.sort(rank), running)
    result: NDArray[np.int64] = ordered[first[np.searchsorted(running, whose)] + index - start[whose]]
    return result


def _walk(stream: TraceStream, names: tuple[str, ...]) -> Iterator[tuple[Group, Rows]]:
    readers = stream.readers()
    for group in stream.groups:
        rows = readers.rows(group, names)
        if rows.kept.size:
            yield group, rows


@dataclass(frozen=True, eq=False)
class _Share:
    """Rows of one group that are wanted, and where they go."""

    group: Group
    rows: NDArray[np.int64]
    out: NDArray[np.int16]


def _gather(stream: TraceStream, rows: NDArray[np.int64], on_progress: Progress) -> NDArray[np.int16]:
    """Choices [n, L, K] of these ascending rows of the trace; checked."""
    experts = np.empty((rows.size, len(stream.layers), stream.top_k), dtype=np.int16)
    shares, done = [], 0
    for group in stream.groups:
        first, last = np.searchsorted(rows, (group.first_row, group.first_row + group.rows))
        if first < last:
            shares.append(_Share(group, rows[first:last] - group.first_row, experts[first:last]))

    def read(share: _Share) -> int:
        stream.readers().fill(share.group, share.rows, share.out)
        _check(stream, share)
        return share.rows.size

    with ThreadPoolExecutor(min(cores(), max(len(shares), 1))) as pool:
        for count in pool.map(read, shares):
            done += count
            on_progress(done, int(rows.size))
    return experts


def _check(stream: TraceStream, share: _Share) -> None:
    try:
        check_choices(share.out, stream.layers, stream.num_experts)
    except BadInput:
        # Once more row by row, to name the row of the file.
        path = stream.files[share.group.file].path
        for row, experts in zip(share.rows + share.group.file_row, share.out[:, None], strict=True):
            check = partial(check_choices, experts, stream.layers, stream.num_experts, first_row=int(row))
            with_file(path, check)


def split_stream(
    stream: TraceStream, fraction: float, *, by: Literal["request", "time"] = "request", seed: int
) -> tuple[TraceStream, TraceStream]:
    """`replay.split` of a streamed trace into (profile, held-out): the same rows for the same seed.

    Reads the column `request`, or `step` where it splits by time and there is one. Memory: 16 bytes a
    request, or a step. Raises what `split` raises.
    """
    check_split(fraction, by)
    if by == "request":
        ids, lengths = request_lengths(stream)
        chosen = hold_out(lengths, stream.tokens, fraction, np.random.default_rng(seed))
        held_out = RowChoice(True, requests=ids[chosen])
        held = int(lengths[chosen].sum())
    else:
        held = held_tokens(stream.tokens, fraction)
        held_out = _last(stream, held)
    profile = RowChoice(False, held_out.requests, held_out.row, held_out.step)
    return stream.part(profile, stream.tokens - held), stream.part(held_out, held)


def _last(stream: TraceStream, held: int) -> RowChoice:
    """The `held` rows that were recorded last: by step where there is one, and then by row."""
    if "step" not in stream.optional:
        return RowChoice(True, row=_row(stream, stream.tokens - held, None))
    steps, tokens = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for _, rows in _walk(stream, ("step",)):
        found, counts = np.unique(rows.columns["step"], return_counts=True)
        steps, member = np.unique(np.concatenate([steps, found]), return_inverse=True)
        sums = np.zeros(steps.size, dtype=np.int64)
        np.add.at(sums, member, np.concatenate([tokens, counts]))
        tokens = sums
    later = np.cumsum(tokens[::-1])[::-1]  # rows of this step and of later ones
    at = int(np.flatnonzero(later >= held)[-1])
    return RowChoice(True, row=_row(stream, int(later[at]) - held, int(steps[at])), step=int(steps[at]))


def _row(stream: TraceStream, number: int, step: int | None) -> int:
    """The row of the trace that is the stream's `number`-th, or its `number`-th of a step."""
    for group, rows in _walk(stream, () if step is None else ("step",)):
        kept = rows.kept if step is None else rows.kept[rows.columns["step"] == step]
        if number < kept.size:
            return group.first_row + int(kept[number])
        number -= kept.size
    raise AssertionError("the trace ended before its last row")
