"""J of a growing sub-batch: tokens are added one by one, and every part of the cost only grows (numba)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.jit import kernel


class Placed(NamedTuple):
    """One layer's placement on its machine. E experts, N sites, M links; CSR where `start` is in the name.

    The arrays are those of `placement.channels.tables.Tables`, with the group of every expert looked up.
    """

    token_s: NDArray[np.float64]  # [E] PIM seconds of one token on every site of the expert
    site_start: NDArray[np.int64]  # [E + 1]
    sites: NDArray[np.int32]  # first core first
    ring_start: NDArray[np.int64]  # [E + 1]
    ring_links: NDArray[np.int32]
    ring_bytes: NDArray[np.float64]  # per token
    ring_rank: NDArray[np.int32]  # [E]
    ring_latency_s: NDArray[np.float64]
    noc: bool
    token_bytes: float
    route_start: NDArray[np.int32]  # [N * N + 1]
    route_links: NDArray[np.int32]
    seconds_per_byte: NDArray[np.float64]  # [M]
    latency_rank: NDArray[np.int32]  # [N, N]
    latency_s: NDArray[np.float64]
    near: NDArray[np.int32]  # [N, N]


#: Parts of J in the order of `placement.channels.problem.PART_NAMES`.
DRAM, DISPATCH, COLLECTIVE, GATHER, SCATTER = range(5)


@kernel
def grow(
    p: Placed,
    tokens: NDArray[np.int16],
    home: NDArray[np.int32],
    start: int,
    cuts: NDArray[np.int64],
    parts: NDArray[np.float64],
) -> None:
    """Add tokens `start`, `start` + 1, ... of `tokens` [B, K] (-1: dropped), that live at `home` [B].

    At every boundary `cuts[i]` (ascending, above `start`) the parts of J of the tokens so far go to
    `parts[i]` [5].
    """
    sites, links = len(p.near), len(p.seconds_per_byte)
    per_byte, route_start, route_links = p.seconds_per_byte, p.route_start, p.route_links
    load = np.zeros(sites)
    dispatch, ring, scratch = np.zeros(links), np.zeros(links), np.zeros(links)
    seen = np.full(sites, -1, dtype=np.int64)
    first, homes = np.zeros(sites, dtype=np.int64), np.zeros(sites, dtype=np.int64)
    active = np.zeros(sites, dtype=np.int64)
    busiest, sent, sent_rank, rung, rung_rank = 0.0, 0.0, 0, 0.0, 0
    done = start
    for index in range(len(cuts)):
        for b in range(done, cuts[index]):
            here, answers = home[b], False
            for k in range(tokens.shape[1]):
                e = tokens[b, k]
                if e < 0:
                    continue
                answers = True
                for at in range(p.site_start[e], p.site_start[e + 1]):
                    c = p.sites[at]
                    load[c] += p.token_s[e]
                    busiest = max(busiest, load[c])
                    if seen[c] == b:
                        continue
                    seen[c] = b
                    if p.noc and c != here:
                        for r in range(route_start[here * sites + c], route_start[here * sites + c + 1]):
                            link = route_links[r]
                            dispatch[link] += per_byte[link]
                            sent = max(sent, dispatch[link])
                        sent_rank = max(sent_rank, p.latency_rank[here, c])
                for at in range(p.ring_start[e], p.ring_start[e + 1]):
                    link = p.ring_links[at]
                    ring[link] += p.ring_bytes[at] * per_byte[link]
                    rung = max(rung, ring[link])
                rung_rank = max(rung_rank, p.ring_rank[e])
                first[p.sites[p.site_start[e]]] += 1
            homes[here] += answers
        done = cuts[index]
        parts[index, DRAM] = busiest
        if p.noc:
            parts[index, DISPATCH] = sent * p.token_bytes + p.latency_s[sent_rank]
            parts[index, COLLECTIVE] = rung + p.ring_latency_s[rung_rank]
            parts[index, GATHER] = _gather_s(p, first, active, scratch)
            parts[index, SCATTER] = _scatter_s(p, first, homes, scratch)


@kernel
def _gather_s(
    p: Placed, first: NDArray[np.int64], active: NDArray[np.int64], scratch: NDArray[np.float64]
) -> float:
    """Ring all-gather over first cores in the order of ids; an edge carries all but the receiver's blocks."""
    sites = len(first)
    n, total = 0, 0
    for c in range(sites):
        if first[c] > 0:
            active[n] = c
            total += first[c]
            n += 1
    if n < 2:
        return 0.0
    busiest, rank = 0.0, 0
    scratch[:] = 0.0
    for i in range(n):
        a, b = active[i], active[i + 1 if i + 1 < n else 0]
        moved = float(total - first[b])
        for r in range(p.route_start[a * sites + b], p.route_start[a * sites + b + 1]):
            link = p.route_links[r]
            scratch[link] += moved * p.seconds_per_byte[link]
            busiest = max(busiest, scratch[link])
        rank = max(rank, p.latency_rank[a, b])
    return float(busiest * p.token_bytes + (n - 1) * p.latency_s[rank])


@kernel
def _scatter_s(
    p: Placed, first: NDArray[np.int64], homes: NDArray[np.int64], scratch: NDArray[np.float64]
) -> float:
    """Every token's output comes home from the nearest first core."""
    sites = len(first)
    busiest, rank = 0.0, 0
    scratch[:] = 0.0
    for home in range(sites):
        if homes[home] == 0:
            continue
        origin = home
        for c in p.near[home]:
            if first[c] > 0:
                origin = c
                break
        for r in range(p.route_start[origin * sites + home], p.route_start[origin * sites + home + 1]):
            link = p.route_links[r]
            scratch[link] += homes[home] * p.seconds_per_byte[link]
            busiest = max(busiest, scratch[link])
        rank = max(rank, p.latency_rank[origin, home])
    return float(busiest * p.token_bytes + p.latency_s[rank])


@kernel
def grow_each(
    p: Placed,
    tokens: NDArray[np.int16],
    home: NDArray[np.int32],
    starts: NDArray[np.int64],
    parts: NDArray[np.float64],
) -> None:
    """Parts of J of every sub-batch of a partition: `parts` [n, 5] for `starts` [n + 1]."""
    for i in range(len(starts) - 1):
        grow(p, tokens, home, starts[i], starts[i + 1 : i + 2], parts[i : i + 1])


@kernel
def grow_all(
    p: Placed,
    tokens: NDArray[np.int16],
    home: NDArray[np.int32],
    cuts: NDArray[np.int64],
    table: NDArray[np.float64],
) -> None:
    """J of all sub-batches between boundaries: `table` [n, n] for `cuts` [n]."""
    parts = np.zeros((len(cuts), 5))
    for i in range(len(cuts) - 1):
        grow(p, tokens, home, cuts[i], cuts[i + 1 :], parts[i + 1 :])
        for j in range(i + 1, len(cuts)):
            table[i, j] = parts[j].sum()


@kernel
def grow_steps(
    p: Placed, tokens: NDArray[np.int16], home: NDArray[np.int32], parts: NDArray[np.float64]
) -> None:
    """Parts of J of whole decode steps: `parts` [S, 5] for `tokens` [S, B, K]."""
    cuts = np.array([tokens.shape[1]])
    for s in range(len(tokens)):
        grow(p, tokens[s], home, 0, cuts, parts[s : s + 1])
