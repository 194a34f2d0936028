"""From separate requests to decode steps, and from one trace to a profile and a held-out part."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput, UsageError
from .load import Load
from .trace import RoutingTrace


@dataclass(frozen=True, eq=False)
class _Requests:
    """R requests in the order in which slots take them.

    `rows` int64 [T] holds the trace's rows request by request, tokens in position order; request r is
    rows[start[r] : start[r] + length[r]].
    """

    rows: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]


def replay(trace: RoutingTrace, *, batch: int, steps: int, seed: int) -> Load:
    """Run the trace's requests in `batch` slots for `steps` decode steps.

    Each slot runs one request token by token and takes the next one when it ends. Requests are taken
    in a seeded random order, so that a step mixes what the whole trace holds, however its file is
    sorted. Slots start at staggered positions, as in a server that has been running for a while: in
    lockstep from position 0 all slots would see the same prompt template at the same time, and a
    few experts would look far hotter than they are.

    With at least as many requests as slots no request runs twice at once; after the last one the
    first ones run again. With fewer, the requests form a ring of tokens in which slots start evenly
    spaced, so that a request runs in several slots at different positions. `Load.note` says which,
    and how many tokens had to be used more than once.

    Raises UsageError on a batch or step count below 1, BadInput on fewer tokens than one batch.
    """
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if trace.tokens < batch:
        raise BadInput(
            f"the trace has {trace.tokens} tokens, one step of batch {batch} needs {batch}",
            fix=f"use a batch of at most {trace.tokens}, or a longer trace",
        )
    rng = np.random.default_rng(seed)
    requests = _shuffled_requests(trace, rng)
    scarce = requests.length.size < batch
    rows = _ring_rows(requests, batch, steps) if scarce else _queue_rows(requests, batch, steps, rng)
    reused = steps * batch - np.unique(rows).size
    return Load(
        experts=trace.experts[rows],
        layers=trace.layers,
        num_experts=trace.num_experts,
        model=trace.model,
        requests=requests.length.size,
        repeated=scarce or reused > 0,
        note=_note(requests.length.size, batch, steps, reused),
    )


def _shuffled_requests(trace: RoutingTrace, rng: np.random.Generator) -> _Requests:
    _, member, length = np.unique(trace.request, return_inverse=True, return_counts=True)
    order = rng.permutation(length.size)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    rows = np.lexsort((trace.position, rank[member]))
    return _Requests(rows, np.cumsum(length[order]) - length[order], length[order])


def _ring_rows(requests: _Requests, batch: int, steps: int) -> NDArray[np.int64]:
    """Trace rows [S, B] of slots that walk the ring of all tokens from evenly spaced starts."""
    tokens = requests.rows.size
    starts = np.arange(batch) * tokens // batch
    index = (starts + np.arange(steps)[:, None]) % tokens
    return np.take(requests.rows, index)


def _queue_rows(requests: _Requests, batch: int, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Trace rows [S, B] of slots that take requests from a queue, where finished ones queue up again.

    The first request of every slot starts part-way: the fractions are evenly spaced over the slots.
    """
    lengths = requests.length.tolist()
    offsets = (rng.permutation(batch) * requests.length[:batch] // batch).tolist()
    ends = [(0, slot) for slot in range(batch)]  # a heap already: (step at which the slot is free, slot)
    running = [-1] * batch
    waiting = deque(range(len(lengths)))
    index = np.empty((batch, steps), dtype=np.int64)
    while ends[0][0] < steps:
        now, slot = ends[0]
        if running[slot] >= 0:
            waiting.append(running[slot])
        request = waiting.popleft()
        skipped = offsets[slot] if running[slot] < 0 else 0
        running[slot] = request
        until = now + lengths[request] - skipped
        first = int(requests.start[request]) + skipped
        shown = min(until, steps) - now
        index[slot, now : now + shown] = np.arange(first, first + shown)
        heapq.heapreplace(ends, (until, slot))
    return np.take(requests.rows, index.T)


def _note(requests: int, batch: int, steps: int, reused: int) -> str:
    note = f"{requests} requests replayed in {batch} slots"
    if requests < batch:
        note += ", so that requests run in several slots at once from other starting positions"
    if reused:
        note += f"; {reused} of {steps * batch} tokens are repetitions, because the trace ran out"
    return note + "."


def split(
    trace: RoutingTrace, fraction: float, *, by: Literal["request", "time"] = "request", seed: int
) -> tuple[RoutingTrace, RoutingTrace]:
    """Split into (profile, held-out), where held-out has about `fraction` of the tokens.

    By "request": a seeded random choice of whole requests; rows keep their order. By "time": the
    tokens recorded last, by `step` where the trace has it and by row otherwise; the request that is
    running at that moment is cut.

    Raises UsageError on a fraction outside (0, 1) or an unknown `by`, BadInput where a side would be
    empty.
    """
    if not 0 < fraction < 1:
        raise UsageError(f"the held-out fraction must lie between 0 and 1, not {fraction}")
    if by == "request":
        held_out = _held_out_requests(trace, fraction, np.random.default_rng(seed))
    elif by == "time":
        held_out = _held_out_time(trace, fraction)
    else:
        raise UsageError(f"cannot split by {by!r}", allowed="request, time")
    return trace.take(np.flatnonzero(~held_out)), trace.take(np.flatnonzero(held_out))


def _held_out_requests(trace: RoutingTrace, fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    _, member, length = np.unique(trace.request, return_inverse=True, return_counts=True)
    if length.size < 2:
        raise BadInput(
            "the trace holds one request: it cannot be split by request",
            fix="split by time, or name another trace as held-out",
        )
    order = rng.permutation(length.size)
    excess = np.abs(np.cumsum(length[order])[:-1] - fraction * trace.tokens)
    chosen = np.zeros(length.size, dtype=np.bool_)
    chosen[order[: int(excess.argmin()) + 1]] = True
    return chosen[member]


def _held_out_time(trace: RoutingTrace, fraction: float) -> NDArray[np.bool_]:
    if trace.tokens < 2:
        raise BadInput("the trace holds one token: it cannot be split", fix="use a longer trace")
    held = min(max(round(fraction * trace.tokens), 1), trace.tokens - 1)
    order = np.arange(trace.tokens) if trace.step is None else np.argsort(trace.step, kind="stable")
    held_out = np.zeros(trace.tokens, dtype=np.bool_)
    held_out[order[trace.tokens - held :]] = True
    return held_out
