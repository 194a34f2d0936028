"""The cost of a channel placement, step by step, kept current under changes (numba).

`evaluate_steps` is the one scorer; searches use the same `place`, `noc_step` and `dram_step` on a
`State` that they change and change back. tests/placement/channels holds a twin in plain numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..search.jit import kernel, kernel_without_nan
from .tables import Tables

#: Columns of the per-step parts, in seconds.
DRAM, DISPATCH, COLLECTIVE, GATHER, SCATTER = range(5)
#: Sites under one entry of `State.block_s`, so that a move looks at few rows to find the busiest site.
BLOCK = 4
#: What a change of placement may touch in a step besides dispatch and gather.
RINGS, CORES = 1, 2


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


@kernel
def place(t: Tables, st: State, e: int, g: int, s: int, sign: int) -> int:
    """Add (sign 1) or take away (-1) expert e on group g in the communication of step s.

    Returns which of RINGS and CORES this may change, for `noc_step`.
    """
    steps = t.counts.shape[1]
    begin, end = t.slot_start[e * steps + s], t.slot_start[e * steps + s + 1]
    if begin == end:
        return 0
    sites = t.near.shape[0]
    used, dispatch, ranks = st.used[s], st.dispatch[s], st.dispatch_rank[s]
    route_start, route_links = t.route_start, t.route_links
    for i in range(begin, end):
        b = t.slots[i]
        home = t.home[b]
        for k in range(t.group_start[g], t.group_start[g + 1]):
            c = t.group_sites[k]
            before = used[b, c]
            used[b, c] = before + sign
            # The activation travels once, however many of the token's experts live on the site.
            if c != home and (before == 0 or before + sign == 0):
                for r in range(route_start[home * sites + c], route_start[home * sites + c + 1]):
                    dispatch[route_links[r]] += sign
                ranks[t.latency_rank[home, c]] += sign
    tokens = end - begin
    for k in range(t.ring_start[g], t.ring_start[g + 1]):
        st.ring[s, t.ring_links[k]] += sign * tokens * t.ring_bytes[k]
    st.ring_rank[s, t.ring_rank[g]] += sign
    core = t.group_sites[t.group_start[g]]
    before_tokens = st.first[s, core]
    st.first[s, core] = before_tokens + sign * tokens
    changed = RINGS if t.ring_start[g + 1] > t.ring_start[g] else 0
    if before_tokens == 0 or st.first[s, core] == 0:
        changed |= CORES
    return changed


@kernel
def noc_step(t: Tables, st: State, s: int, changed: int) -> None:
    """Recompute the communication phases of step s from the state (SPIMOE 3.3.2).

    Inside a phase all transfers run at once and share links: the time is the busiest link's bytes over
    its bandwidth plus the largest latency. The phases follow one another. The collectives are looked at
    again where `changed` has RINGS, the way home where it has CORES.
    """
    p, per_byte = st.parts[s], t.seconds_per_byte
    p[DISPATCH] = _busiest(st.dispatch[s], per_byte) * t.token_bytes
    p[DISPATCH] += _largest(st.dispatch_rank[s], t.latency_s)
    if changed & RINGS:
        p[COLLECTIVE] = _busiest(st.ring[s], per_byte) + _largest(st.ring_rank[s], t.ring_latency_s)
    p[GATHER] = t.token_bytes * _gather(
        st.first[s],
        st.active,
        t.route_start,
        t.route_links,
        per_byte,
        t.latency_rank,
        st.scratch,
        st.worst_rank,
    )
    cores = st.worst_rank[1]
    p[GATHER] += max(cores - 1, 0) * t.latency_s[st.worst_rank[0]]
    if changed & CORES:
        p[SCATTER] = t.token_bytes * _scatter(
            st.first[s], t.home, t.near, st.active, t.route_start, t.route_links, per_byte, t.latency_rank,
            st.scratch, st.worst_rank,
        )  # fmt: skip
        p[SCATTER] += t.latency_s[st.worst_rank[0]]
    st.noc_s[s] = p[DISPATCH] + p[COLLECTIVE] + p[GATHER] + p[SCATTER]


@kernel_without_nan
def _busiest(amount: NDArray[np.float64], per_byte: NDArray[np.float64]) -> float:
    largest = 0.0
    for m in range(len(per_byte)):
        largest = max(largest, amount[m] * per_byte[m])
    return largest


@kernel
def _largest(histogram: NDArray[np.int32], values: NDArray[np.float64]) -> float:
    for r in range(len(values) - 1, -1, -1):
        if histogram[r] > 0:
            return float(values[r])
    return 0.0


@kernel
def _gather(
    first: NDArray[np.int32],
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
    sites = len(first)
    n, total = 0, 0
    for c in range(sites):
        if first[c] > 0:
            active[n] = c
            total += first[c]
            n += 1
    worst_rank[0], worst_rank[1] = 0, n
    if n < 2:
        return 0.0
    busiest, rank = 0.0, 0
    for i in range(n):
        a, b = active[i], active[i + 1 if i + 1 < n else 0]
        moved = float(total - first[b])
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
    home_of: NDArray[np.int32],
    near: NDArray[np.int32],
    origin: NDArray[np.int32],
    route_start: NDArray[np.int32],
    route_links: NDArray[np.int32],
    per_byte: NDArray[np.float64],
    latency_rank: NDArray[np.int32],
    scratch: NDArray[np.float64],
    worst_rank: NDArray[np.int64],
) -> float:
    """Busiest link when every slot's output comes home from the nearest first core, per byte of a token.

    After the all-gather every first core holds every result. Writes the rank of the longest way to
    `worst_rank[0]`; `origin` is work space `[N]`.
    """
    sites = len(first)
    for home in range(sites):
        origin[home] = home
        for c in near[home]:
            if first[c] > 0:
                origin[home] = c
                break
    busiest, rank = 0.0, 0
    for home in home_of:
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
    for e in range(experts):
        g = group_of[e]
        st.group_of[e] = g
        for k in range(t.group_start[g], t.group_start[g + 1]):
            c = t.group_sites[k]
            st.memory_bytes[c] += t.shard_bytes[g]
            for s in range(steps):
                st.load_s[c, s] += t.counts[e, s] * t.token_s[g]
        if t.noc:
            for s in range(steps):
                place(t, st, e, g, s, 1)
    for block in range(len(st.block_s)):
        update_block(st.load_s, st.block_s, block)
    for s in range(steps):
        st.parts[s, DRAM] = st.block_s[:, s].max()
        if t.noc:
            noc_step(t, st, s, RINGS | CORES)


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
