"""The cost of a channel placement, step by step, kept current under changes (numba).

`evaluate_steps` is the one scorer; searches use the same `place` and `noc_steps` on a `State` that they
change and change back. tests/placement/channels holds a twin in plain numpy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel, kernel_without_nan
from .tables import Tables

#: Columns of the per-step parts, in seconds.
DRAM, DISPATCH, COLLECTIVE, GATHER, SCATTER = range(5)
#: Sites under one entry of `State.block_s`, so that a move looks at few rows to find the busiest site.
BLOCK = 4
#: What a change of placement touches in a step: anything; collectives; which sites are first cores.
TOUCHED, RINGS, CORES = 1, 2, 4


class State(NamedTuple):
    """Everything that a change of placement touches. S steps, B slots, E experts, N sites, M links."""

    group_of: NDArray[np.int32]  # [E]
    load_s: NDArray[np.float64]  # [N, S] PIM seconds
    block_s: NDArray[np.float64]  # [ceil(N / BLOCK), S] largest load among BLOCK neighbouring sites
    memory_bytes: NDArray[np.float64]  # [N]
    used: NDArray[np.int16]  # [S, B, N] experts of slot b's token that live on site c
    dispatch: NDArray[np.int32]  # [S, M] activations that cross a link
    dispatch_rank: NDArray[np.int32]  # [S, R] transfers by latency
    ring: NDArray[np.float64]  # [S, M] collective bytes on a link
    ring_rank: NDArray[np.int32]  # [S, R'] active experts by collective latency
    first: NDArray[np.int32]  # [S, N] tokens whose expert has its first core here
    parts: NDArray[np.float64]  # [S, 5] seconds
    noc_s: NDArray[np.float64]  # [S] sum of the communication parts
    scratch: NDArray[np.float64]  # [M] zeros between calls
    active: NDArray[np.int32]  # [N] work space
    worst_rank: NDArray[np.int64]  # [2] work space


def empty_state(t: Tables) -> State:
    """Return the state in which no expert is placed."""
    experts, steps = t.counts.shape
    sites, links = len(t.near), len(t.seconds_per_byte)
    return State(
        group_of=np.full(experts, -1, dtype=np.int32),
        load_s=np.zeros((sites, steps)),
        block_s=np.zeros((-(-sites // BLOCK), steps)),
        memory_bytes=np.zeros(sites),
        used=np.zeros((steps, len(t.home), sites), dtype=np.int16),
        dispatch=np.zeros((steps, links), dtype=np.int32),
        dispatch_rank=np.zeros((steps, len(t.latency_s)), dtype=np.int32),
        ring=np.zeros((steps, links)),
        ring_rank=np.zeros((steps, len(t.ring_latency_s)), dtype=np.int32),
        first=np.zeros((steps, sites), dtype=np.int32),
        parts=np.zeros((steps, 5)),
        noc_s=np.zeros(steps),
        scratch=np.zeros(links),
        active=np.zeros(sites, dtype=np.int32),
        worst_rank=np.zeros(2, dtype=np.int64),
    )


# Functions that run once a step take plain arrays: handing on a tuple of thirty arrays, or a row of one,
# costs a reference count for each, more than the work itself.


@kernel
def place(t: Tables, st: State, e: int, g: int, sign: int, changed: NDArray[np.uint8]) -> None:
    """Add (sign 1) or take away (-1) expert e on group g in the communication of all steps.

    Marks in `changed` [S] what `noc_steps` must look at again.
    """
    sites, steps = len(t.near), t.counts.shape[1]
    slot_start, slots, home_of = t.slot_start, t.slots, t.home
    group_sites, first, last = t.group_sites, t.group_start[g], t.group_start[g + 1]
    route_start, route_links, latency_rank = t.route_start, t.route_links, t.latency_rank
    ring_links, ring_bytes, ring_first, ring_last = (
        t.ring_links,
        t.ring_bytes,
        t.ring_start[g],
        t.ring_start[g + 1],
    )
    used, dispatch, dispatch_rank = st.used, st.dispatch, st.dispatch_rank
    ring, ring_rank, rank_of, first_tokens = st.ring, st.ring_rank, t.ring_rank[g], st.first
    core = group_sites[first]
    for s in range(steps):
        begin, end = slot_start[e * steps + s], slot_start[e * steps + s + 1]
        if begin == end:
            continue
        for i in range(begin, end):
            b = slots[i]
            home = home_of[b]
            for k in range(first, last):
                c = group_sites[k]
                before = used[s, b, c]
                used[s, b, c] = before + sign
                # The activation travels once, however many of the token's experts live on the site.
                if c != home and (before == 0 or before + sign == 0):
                    for r in range(route_start[home * sites + c], route_start[home * sites + c + 1]):
                        dispatch[s, route_links[r]] += sign
                    dispatch_rank[s, latency_rank[home, c]] += sign
        tokens = end - begin
        for k in range(ring_first, ring_last):
            ring[s, ring_links[k]] += sign * tokens * ring_bytes[k]
        ring_rank[s, rank_of] += sign
        before_tokens = first_tokens[s, core]
        first_tokens[s, core] = before_tokens + sign * tokens
        changed[s] |= TOUCHED
        if ring_last > ring_first:
            changed[s] |= RINGS
        if before_tokens == 0 or before_tokens + sign * tokens == 0:
            changed[s] |= CORES


@kernel
def noc_steps(t: Tables, st: State, changed: NDArray[np.uint8]) -> None:
    """Recompute the communication phases of the changed steps from the state (SPIMOE 3.3.2).

    Inside a phase all transfers run at once and share links: the time is the busiest link's bytes over
    its bandwidth plus the largest latency. The phases follow one another. The collectives are looked at
    again where `changed` [S] has RINGS, the way home where it has CORES.
    """
    parts, noc_s, per_byte, token_bytes = st.parts, st.noc_s, t.seconds_per_byte, t.token_bytes
    dispatch, dispatch_rank, latency_s = st.dispatch, st.dispatch_rank, t.latency_s
    ring, ring_rank, ring_latency_s = st.ring, st.ring_rank, t.ring_latency_s
    first, active, scratch, worst_rank = st.first, st.active, st.scratch, st.worst_rank
    route_start, route_links, latency_rank = t.route_start, t.route_links, t.latency_rank
    home_of, near, answers = t.home, t.near, t.answers
    for s in range(len(changed)):
        if changed[s] == 0:
            continue
        dispatch_s = _busiest(dispatch, s, per_byte) * token_bytes + _largest(dispatch_rank, s, latency_s)
        if changed[s] & RINGS:
            parts[s, COLLECTIVE] = _busiest(ring, s, per_byte) + _largest(ring_rank, s, ring_latency_s)
        gather_s = token_bytes * _gather(
            first, s, active, route_start, route_links, per_byte, latency_rank, scratch, worst_rank
        )
        gather_s += max(worst_rank[1] - 1, 0) * latency_s[worst_rank[0]]
        if changed[s] & CORES:
            scatter_s = token_bytes * _scatter(
                first, s, home_of, answers, near, active, route_start, route_links, per_byte, latency_rank,
                scratch, worst_rank,
            )  # fmt: skip
            parts[s, SCATTER] = scatter_s + latency_s[worst_rank[0]]
        parts[s, DISPATCH], parts[s, GATHER] = dispatch_s, gather_s
        noc_s[s] = dispatch_s + parts[s, COLLECTIVE] + gather_s + parts[s, SCATTER]


@kernel_without_nan
def _busiest(amount: NDArray[Any], s: int, per_byte: NDArray[np.float64]) -> float:
    largest = 0.0
    for m in range(len(per_byte)):
        largest = max(largest, amount[s, m] * per_byte[m])
    return largest


@kernel
def _largest(histogram: NDArray[np.int32], s: int, values: NDArray[np.float64]) -> float:
    for r in range(len(values) - 1, -1, -1):
        if histogram[s, r] > 0:
            return float(values[r])
    return 0.0


@kernel
def _gather(
    first: NDArray[np.int32],
    s: int,
    active: NDArray[np.int32],
    route_start: NDArray[np.int32],
    route_links: NDArray[np.int32],
    per_byte: NDArray[np.float64],
    latency_rank: NDArray[np.int32],
    scratch: NDArray[np.float64],
    worst_rank: NDArray[np.int64],
) -> float:
    """Busiest link of a ring all-gather over the first cores of activated experts, per byte of a token.

    The ring is in the order of ids, in which no link of a full-duplex XY mesh carries two ring edges. An
    edge carries all blocks but the receiver's own. Writes the rank of the longest edge and the number of
    cores to `worst_rank` [2].
    """
    sites = first.shape[1]
    n, total = 0, 0
    for c in range(sites):
        if first[s, c] > 0:
            active[n] = c
            total += first[s, c]
            n += 1
    worst_rank[0], worst_rank[1] = 0, n
    if n < 2:
        return 0.0
    busiest, rank = 0.0, 0
    for i in range(n):
        a, b = active[i], active[i + 1 if i + 1 < n else 0]
        moved = float(total - first[s, b])
        for r in range(route_start[a * sites + b], route_start[a * sites + b + 1]):
            link = route_links[r]
            scratch[link] += moved * per_byte[link]
            busiest = max(busiest, scratch[link])
        rank = max(rank, latency_rank[a, b])
    for i in range(n):
        a, b = active[i], active[i + 1 if i + 1 < n else 0]
        for r in range(route_start[a * sites + b], route_start[a * sites + b + 1]):
            scratch[route_links[r]] = 0.0
    worst_rank[0] = rank
    return busiest


@kernel
def _scatter(
    first: NDArray[np.int32],
    s: int,
    home_of: NDArray[np.int32],
    answers: NDArray[np.uint8],
    near: NDArray[np.int32],
    origin: NDArray[np.int32],
    route_start: NDArray[np.int32],
    route_links: NDArray[np.int32],
    per_byte: NDArray[np.float64],
    latency_rank: NDArray[np.int32],
    scratch: NDArray[np.float64],
    worst_rank: NDArray[np.int64],
) -> float:
    """Busiest link when the output of every slot that has one comes home from the nearest first core, per
    byte of a token.

    After the all-gather every first core holds every result. Writes the rank of the longest way to
    `worst_rank[0]`; `origin` is work space `[N]`.
    """
    sites = first.shape[1]
    for home in home_of:
        origin[home] = -1
    for home in home_of:
        if origin[home] >= 0:
            continue
        origin[home] = home
        for c in near[home]:
            if first[s, c] > 0:
                origin[home] = c
                break
    busiest, rank = 0.0, 0
    for b, home in enumerate(home_of):
        if answers[s, b] == 0:
            continue
        c = origin[home]
        for r in range(route_start[c * sites + home], route_start[c * sites + home + 1]):
            link = route_links[r]
            scratch[link] += per_byte[link]
            busiest = max(busiest, scratch[link])
        rank = max(rank, latency_rank[c, home])
    for home in home_of:
        c = origin[home]
        for r in range(route_start[c * sites + home], route_start[c * sites + home + 1]):
            scratch[route_links[r]] = 0.0
    worst_rank[0] = rank
    return busiest


@kernel
def fill(t: Tables, st: State, group_of: NDArray[np.int32]) -> None:
    """Place every expert in an empty state and compute all parts."""
    experts, steps = t.counts.shape
    changed = np.zeros(steps, dtype=np.uint8)
    for e in range(experts):
        g = group_of[e]
        st.group_of[e] = g
        for k in range(t.group_start[g], t.group_start[g + 1]):
            c = t.group_sites[k]
            st.memory_bytes[c] += t.shard_bytes[g]
            for s in range(steps):
                st.load_s[c, s] += t.counts[e, s] * t.token_s[g]
        if t.noc:
            place(t, st, e, g, 1, changed)
    for block in range(len(st.block_s)):
        update_block(st.load_s, st.block_s, block)
    for s in range(steps):
        st.parts[s, DRAM] = st.block_s[:, s].max()
    if t.noc:
        changed[:] = TOUCHED | RINGS | CORES
        noc_steps(t, st, changed)


@kernel
def update_block(load_s: NDArray[np.float64], block_s: NDArray[np.float64], block: int) -> None:
    """Recompute the largest load of one block of sites, in all steps."""
    first = block * BLOCK
    block_s[block] = load_s[first]
    for c in range(first + 1, min(first + BLOCK, len(load_s))):
        for s in range(load_s.shape[1]):
            block_s[block, s] = max(block_s[block, s], load_s[c, s])


def evaluate_steps(t: Tables, group_of: NDArray[np.int32]) -> State:
    """Return the filled state of a placement `[E]`; its `parts` `[S, 5]` are the step times in seconds."""
    state = empty_state(t)
    fill(t, state, group_of)
    return state
