"""Moves of the channel annealing and their incremental cost (numba).

A move is proposed, its J_dram is computed from the touched sites alone, and only a move that survives
a first Metropolis test on that pays for its exact J_noc and a second test on the rest of the change
(delayed acceptance, Christen and Fox 2005, doi 10.1198/106186005X76983): the two accept less often than one
test on the whole change would, for much less work a move. J_noc is updated for the affected tokens only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel, kernel_without_nan
from ..search.cooling import accept
from ..search.random import below, uniform
from .kernels import BLOCK, State, noc_steps, place, update_block
from .tables import SLACK, Tables

_SWAP, _CHANGE_TP = 0.35, 0.55  # cumulative shares; the rest migrates


# The functions of the DRAM part take plain arrays: handing a tuple of thirty arrays to a function costs a
# reference count for each, more than the work itself.


@kernel
def propose(
    factor_of: NDArray[np.int32],
    factor_start: NDArray[np.int32],
    group_of: NDArray[np.int32],
    rng: NDArray[np.uint64],
    move: NDArray[np.int64],
) -> bool:
    """Write a move (expert, new group, other expert or -1, its new group); False where it is void.

    The three neighbourhoods of SPIMOE 3.4.1: swap two experts, change the TP factor by one notch,
    migrate to another group of the same factor.
    """
    experts = len(group_of)
    e = below(rng, experts)
    g = group_of[e]
    move[0], move[2], move[3] = e, -1, -1
    kind = uniform(rng)
    if kind < _SWAP and experts > 1:
        other = below(rng, experts - 1)
        other += other >= e
        move[1], move[2], move[3] = group_of[other], other, g
        return bool(move[1] != g)
    factor = factor_of[g]
    if kind < _CHANGE_TP and len(factor_start) > 2:
        factor += 1 if uniform(rng) < 0.5 else -1
        if factor < 0 or factor >= len(factor_start) - 1:
            return False
    first, last = factor_start[factor], factor_start[factor + 1]
    move[1] = first + below(rng, last - first)
    return bool(move[1] != g)


@kernel
def gains(
    group_start: NDArray[np.int32],
    group_sites: NDArray[np.int32],
    per_site: NDArray[np.float64],
    group_of: NDArray[np.int32],
    move: NDArray[np.int64],
    gain: NDArray[np.float64],
) -> None:
    """Add to `gain` [2, N] what every site gains of `per_site[group]` from the two experts of a move."""
    for i in (0, 1):
        e = move[2 * i]
        if e >= 0:
            old, new = group_of[e], move[2 * i + 1]
            for k in range(group_start[old], group_start[old + 1]):
                gain[i, group_sites[k]] -= per_site[old]
            for k in range(group_start[new], group_start[new + 1]):
                gain[i, group_sites[k]] += per_site[new]


@kernel
def fits(memory_bytes: NDArray[np.float64], gain: NDArray[np.float64], capacity_bytes: float) -> bool:
    """Tell whether every site has room for what it gains."""
    for c in range(len(memory_bytes)):
        more = gain[0, c] + gain[1, c]
        if more > 0.0 and memory_bytes[c] + more > capacity_bytes * SLACK:
            return False
    return True


@kernel_without_nan
def try_loads(
    load_s: NDArray[np.float64],
    block_s: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    rate: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write the largest site load of every step `[S]` as it would be after a move.

    `rate` [2, N] are the seconds per token that each site gains from the two experts, `first` and `second`
    [S] their tokens. Blocks of sites that gain nothing are looked at as one.
    """
    sites, steps = load_s.shape
    for s in range(steps):
        out[s] = 0.0
    for block in range(len(block_s)):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, sites)
        touched = False
        for c in range(begin, end):
            touched = touched or rate[0, c] != 0.0 or rate[1, c] != 0.0
        if not touched:
            for s in range(steps):
                out[s] = max(out[s], block_s[block, s])
            continue
        for c in range(begin, end):
            a, b = rate[0, c], rate[1, c]
            for s in range(steps):
                out[s] = max(out[s], load_s[c, s] + a * first[s] + b * second[s])


@kernel
def commit_loads(
    load_s: NDArray[np.float64],
    block_s: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    rate: NDArray[np.float64],
) -> None:
    """Add a move's seconds to the sites that it touches."""
    for c in range(len(load_s)):
        a, b = rate[0, c], rate[1, c]
        if a != 0.0 or b != 0.0:
            for s in range(load_s.shape[1]):
                load_s[c, s] += a * first[s] + b * second[s]
            update_block(load_s, block_s, c // BLOCK)


@kernel
def shift_noc(
    t: Tables,
    st: State,
    move: NDArray[np.int64],
    back: bool,
    changed: NDArray[np.uint8],
    kept: NDArray[np.float64],
    kept_s: NDArray[np.float64],
) -> None:
    """Apply a move to the communication of the affected steps, or take it back.

    The times before are kept in `kept` [S, 5] and `kept_s` [S], from which the way back restores them.
    """
    changed[:] = 0
    for i in (0, 2):
        if move[i] >= 0:
            old, new = st.group_of[move[i]], move[i + 1]
            place(t, st, move[i], new if back else old, -1, changed)
            place(t, st, move[i], old if back else new, 1, changed)
    if back:
        st.parts[:] = kept
        st.noc_s[:] = kept_s
    else:
        kept[:] = st.parts
        kept_s[:] = st.noc_s
        noc_steps(t, st, changed)


@kernel
def objective(dram_s: NDArray[np.float64], noc_s: NDArray[np.float64], risk: float) -> float:
    """Mean over steps of their sum, plus `risk` standard deviations.

    Four running sums in a fixed order: fast, and the same on every machine.
    """
    steps = len(dram_s)
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = steps - steps % 4
    for s in range(0, whole, 4):
        a += dram_s[s] + noc_s[s]
        b += dram_s[s + 1] + noc_s[s + 1]
        c += dram_s[s + 2] + noc_s[s + 2]
        d += dram_s[s + 3] + noc_s[s + 3]
    for s in range(whole, steps):
        a += dram_s[s] + noc_s[s]
    mean = ((a + b) + (c + d)) / steps
    if risk <= 0.0:
        return mean
    square = 0.0
    for s in range(steps):
        square += (dram_s[s] + noc_s[s] - mean) ** 2
    return mean + risk * math.sqrt(square / steps)


@kernel
def anneal(
    t: Tables,
    st: State,
    rng: NDArray[np.uint64],
    moves: int,
    hot: float,
    cold: float,
    risk: float,
    current_s: float,
    best_s: float,
    best: NDArray[np.int32],
    deltas_s: NDArray[np.float64],
) -> tuple[float, float]:
    """Run `moves` proposals while cooling geometrically from hot to cold; return (current, best) objective.

    The best placement is kept in `best` [E]. With `deltas_s` [moves] given, every full change is written
    to it (NaN where a proposal was void) and nothing is accepted: the sample for the temperatures.
    """
    sampling = len(deltas_s) > 0
    dram_s, move = np.empty(t.counts.shape[1]), np.empty(4, dtype=np.int64)
    rate, gain_bytes = np.zeros((2, len(t.near))), np.zeros((2, len(t.near)))
    kept, kept_s = np.zeros_like(st.parts), np.zeros_like(st.noc_s)
    changed = np.zeros(len(dram_s), dtype=np.uint8)
    counts, token_s, shard_bytes = t.counts, t.token_s, t.shard_bytes
    group_start, group_sites, group_of = t.group_start, t.group_sites, st.group_of
    factor_of, factor_start, capacity_bytes, noc = t.factor_of, t.factor_start, t.capacity_bytes, t.noc
    load_s, block_s, memory_bytes, noc_s = st.load_s, st.block_s, st.memory_bytes, st.noc_s
    factor = (cold / hot) ** (1.0 / moves) if hot > 0.0 else 1.0
    temperature = hot
    for i in range(moves):
        temperature *= factor
        if sampling:
            deltas_s[i] = np.nan
        if not propose(factor_of, factor_start, group_of, rng, move):
            continue
        gain_bytes[:] = 0.0
        gains(group_start, group_sites, shard_bytes, group_of, move, gain_bytes)
        if not fits(memory_bytes, gain_bytes, capacity_bytes):
            continue
        rate[:] = 0.0
        gains(group_start, group_sites, token_s, group_of, move, rate)
        first, second = counts[move[0]], counts[max(move[2], 0)]
        try_loads(load_s, block_s, first, second, rate, dram_s)
        surrogate_s = objective(dram_s, noc_s, risk) - current_s
        if not (sampling or accept(surrogate_s, temperature, uniform(rng))):
            continue
        delta_s = surrogate_s
        if noc:
            shift_noc(t, st, move, False, changed, kept, kept_s)
            delta_s = objective(dram_s, noc_s, risk) - current_s
        if sampling:
            deltas_s[i] = delta_s
        if sampling or (noc and not accept(delta_s - surrogate_s, temperature, uniform(rng))):
            if noc:
                shift_noc(t, st, move, True, changed, kept, kept_s)
            continue
        commit_loads(load_s, block_s, first, second, rate)
        memory_bytes += gain_bytes[0] + gain_bytes[1]
        group_of[move[0]] = move[1]
        if move[2] >= 0:
            group_of[move[2]] = move[3]
        current_s += delta_s
        if current_s < best_s:
            best_s = current_s
            best[:] = group_of
    return current_s, best_s
