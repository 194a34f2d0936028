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
from .trace_format import Described


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
    check_replay(trace.tokens, batch=batch, steps=steps)
    rng = np.random.default_rng(seed)
    requests = _shuffled_requests(trace, rng)
    scarce = requests.length.size < batch
    if scarce:
        index = ring_index(trace.tokens, batch, steps)
    else:
        index = queue_index(requests.start, requests.length, batch, steps, rng)
    rows = np.take(requests.rows, index)
    reused = steps * batch - np.unique(rows).size
    return load_of(trace, trace.experts[rows], requests.length.size, scarce=scarce, reused=reused)


def check_replay(tokens: int, *, batch: int, steps: int) -> None:
    """Raise UsageError on a batch or step count below 1, BadInput on fewer tokens than one batch."""
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if tokens < batch:
        raise BadInput(
            f"the trace has {tokens} tokens, one step of batch {batch} needs {batch}",
            fix=f"use a batch of at most {tokens}, or a longer trace",
        )


def load_of(
    trace: Described, experts: NDArray[np.int16], requests: int, *, scarce: bool, reused: int
) -> Load:
    """The load of choices [S, B, L, K] that were replayed from a trace of so many requests.

    `scarce`: there were fewer requests than slots; `reused`: tokens that had to be used again.
    """
    steps, batch = experts.shape[:2]
    return Load(
        experts=experts,
        layers=trace.layers,
        num_experts=trace.num_experts,
        model=trace.model,
        requests=requests,
        repeated=scarce or reused > 0,
        note=_note(requests, batch, steps, reused),
    )


def _shuffled_requests(trace: RoutingTrace, rng: np.random.Generator) -> _Requests:
    _, member, length = np.unique(trace.request, return_inverse=True, return_counts=True)
    order = rng.permutation(length.size)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    rows = np.lexsort((trace.position, rank[member]))
    return _Requests(rows, np.cumsum(length[order]) - length[order], length[order])


def ring_index(tokens: int, batch: int, steps: int) -> NDArray[np.int64]:
    """Places [S, B] of slots that walk the ring of all tokens from evenly spaced starts."""
    starts = np.arange(batch) * tokens // batch
    return (starts + np.arange(steps)[:, None]) % tokens


def queue_index(
    start: NDArray[np.int64], length: NDArray[np.int64], batch: int, steps: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Places [S, B] of slots that take requests from a queue, where finished ones queue up again.

    Request r, in the order of the queue, lies at the places start[r] : start[r] + length[r]. The first
    request of every slot starts part-way: the fractions are evenly spaced over the slots.
    """
    lengths = length.tolist()
    offsets = (rng.permutation(batch) * length[:batch] // batch).tolist()
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
        first = int(start[request]) + skipped
        shown = min(until, steps) - now
        index[slot, now : now + shown] = np.arange(first, first + shown)
        heapq.heapreplace(ends, (until, slot))
    return index.T


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
    check_split(fraction, by)
    if by == "request":
        _, member, length = np.unique(trace.request, return_inverse=True, return_counts=True)
        held_out = hold_out(length, trace.tokens, fraction, np.random.default_rng(seed))[member]
    else:
        held_out = _held_out_time(trace, fraction)
    return trace.take(np.flatnonzero(~held_out)), trace.take(np.flatnonzero(held_out))


def check_split(fraction: float, by: str) -> None:
    """Raise UsageError on a fraction outside (0, 1) or an unknown way to split."""
    if not 0 < fraction < 1:
        share = fraction / 100.0
        raise UsageError(
            f"the held-out fraction must lie between 0 and 1, not {fraction}",
            fix=f"write a percentage as a share: {share:g}" if 0 < share < 1 else "for example 0.5",
        )
    if by not in ("request", "time"):
        raise UsageError(f"cannot split by {by!r}", allowed="request, time")


def hold_out(
    length: NDArray[np.int64], tokens: int, fraction: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Choose requests [R] of these lengths [R] that have about `fraction` of all tokens.

    Raises BadInput where there is one request only.
    """
    if length.size < 2:
        raise BadInput(
            "the trace holds one request: it cannot be split by request",
            fix="split by time, or name another trace as held-out",
        )
    order = rng.permutation(length.size)
    excess = np.abs(np.cumsum(length[order])[:-1] - fraction * tokens)
    chosen = np.zeros(length.size, dtype=np.bool_)
    chosen[order[: int(excess.argmin()) + 1]] = True
    return chosen


def held_tokens(tokens: int, fraction: float) -> int:
    """Tokens that a split by time holds out. Raises BadInput on a single token."""
    if tokens < 2:
        raise BadInput("the trace holds one token: it cannot be split", fix="use a longer trace")
    return min(max(round(fraction * tokens), 1), tokens - 1)


def _held_out_time(trace: RoutingTrace, fraction: float) -> NDArray[np.bool_]:
    held = held_tokens(trace.tokens, fraction)
    order = np.arange(trace.tokens) if trace.step is None else np.argsort(trace.step, kind="stable")
    held_out = np.zeros(trace.tokens, dtype=np.bool_)
    held_out[order[trace.tokens - held :]] = True
    return held_out
