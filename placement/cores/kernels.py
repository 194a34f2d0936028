"""Moves of the core annealing and their incremental cost (numba).

A move shifts one expert to another place or exchanges two; only the two places' jobs change, and the
largest place of every step follows from them and from the maxima of blocks of other places.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel, kernel_without_nan
from ..search.cooling import accept
from ..search.random import below, uniform

#: Places under one entry of `State.block`, so that a move looks at few rows to find the busiest place.
BLOCK = 4
_SWAP = 0.7  # share of exchanges; the rest shifts one expert


class State(NamedTuple):
    """A placement and its load. S steps, E experts, P places."""

    place_of: NDArray[np.int32]  # [E]
    load: NDArray[np.int32]  # [P, S] jobs
    block: NDArray[np.int32]  # [ceil(P / BLOCK), S] largest load among BLOCK neighbouring places
    held: NDArray[np.int32]  # [P] experts


def state_of(jobs: NDArray[np.int32], place_of: NDArray[np.int32], places: int) -> State:
    """Return the state of a placement on `jobs` [E, S]."""
    steps = jobs.shape[1]
    load = np.zeros((places, steps), dtype=np.int32)
    np.add.at(load, place_of, jobs)
    blocks = -(-places // BLOCK)
    padded = np.zeros((blocks * BLOCK, steps), dtype=np.int32)
    padded[:places] = load
    block = padded.reshape(blocks, BLOCK, steps).max(axis=1)
    held = np.bincount(place_of, minlength=places).astype(np.int32)
    return State(place_of.astype(np.int32), load, block, held)


@kernel_without_nan
def largest_after(
    load: NDArray[np.int32],
    block: NDArray[np.int32],
    old: int,
    new: int,
    gain: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Write the largest load of every step `[S]` after `gain` [S] jobs moved from place `old` to `new`."""
    places, steps = load.shape
    a, b = old // BLOCK, new // BLOCK
    for s in range(steps):
        out[s] = max(load[old, s] - gain[s], load[new, s] + gain[s])
    for i in range(len(block)):
        if i not in (a, b):
            for s in range(steps):
                out[s] = max(out[s], block[i, s])
            continue
        for p in range(i * BLOCK, min(i * BLOCK + BLOCK, places)):
            if p not in (old, new):
                for s in range(steps):
                    out[s] = max(out[s], load[p, s])


@kernel_without_nan
def shift(
    load: NDArray[np.int32], block: NDArray[np.int32], old: int, new: int, gain: NDArray[np.int32]
) -> None:
    """Move `gain` [S] jobs from place `old` to `new`."""
    places, steps = load.shape
    for s in range(steps):
        load[old, s] -= gain[s]
        load[new, s] += gain[s]
    for i in (old // BLOCK, new // BLOCK):
        first = i * BLOCK
        for s in range(steps):
            block[i, s] = load[first, s]
        for p in range(first + 1, min(first + BLOCK, places)):
            for s in range(steps):
                block[i, s] = max(block[i, s], load[p, s])


@kernel
def score(largest: NDArray[np.int32], price: NDArray[np.float64], risk: float) -> float:
    """Mean over steps of the price of their largest load, plus `risk` standard deviations."""
    total, square = 0.0, 0.0
    for s in range(len(largest)):
        value = price[largest[s]]
        total += value
        square += value * value
    mean = total / len(largest)
    if risk <= 0.0:
        return mean
    return mean + risk * math.sqrt(max(0.0, square / len(largest) - mean * mean))


@kernel
def propose(
    place_of: NDArray[np.int32],
    held: NDArray[np.int32],
    room: int,
    rng: NDArray[np.uint64],
    move: NDArray[np.int64],
) -> bool:
    """Write a move (expert, the other one or -1, the expert's old and new place); False where it is void."""
    e = below(rng, len(place_of))
    move[0], move[1], move[2] = e, -1, place_of[e]
    if uniform(rng) < _SWAP:
        move[1] = below(rng, len(place_of))
        move[3] = place_of[move[1]]
    else:
        move[3] = below(rng, len(held))
        if held[move[3]] >= room:
            return False
    return bool(move[3] != move[2])


@kernel
def anneal(
    jobs: NDArray[np.int32],
    st: State,
    room: int,
    price: NDArray[np.float64],
    risk: float,
    rng: NDArray[np.uint64],
    moves: int,
    hot: float,
    cold: float,
    current: float,
    best: float,
    best_place: NDArray[np.int32],
    deltas: NDArray[np.float64],
) -> tuple[float, float]:
    """Run `moves` proposals while cooling geometrically from hot to cold; return (current, best) score.

    The best placement is kept in `best_place` [E]. With `deltas` [moves] given, every change is written to
    it (NaN where a proposal was void) and nothing is accepted: the sample for the temperatures.
    """
    steps = jobs.shape[1]
    place_of, load, block, held = st.place_of, st.load, st.block, st.held
    sampling, move = len(deltas) > 0, np.empty(4, dtype=np.int64)
    out, gain = np.empty(steps, dtype=np.int32), np.empty(steps, dtype=np.int32)
    factor = (cold / hot) ** (1.0 / moves) if hot > 0.0 else 1.0
    temperature = hot
    for i in range(moves):
        temperature *= factor
        if sampling:
            deltas[i] = np.nan
        if not propose(place_of, held, room, rng, move):
            continue
        e, other, old, new = move[0], move[1], move[2], move[3]
        for s in range(steps):
            gain[s] = jobs[e, s] - (jobs[other, s] if other >= 0 else 0)
        largest_after(load, block, old, new, gain, out)
        delta = score(out, price, risk) - current
        if sampling:
            deltas[i] = delta
            continue
        if not accept(delta, temperature, uniform(rng)):
            continue
        shift(load, block, old, new, gain)
        place_of[e] = new
        if other >= 0:
            place_of[other] = old
        else:
            held[old] -= 1
            held[new] += 1
        current += delta
        if current < best - 1e-12:
            best = current
            best_place[:] = place_of
    return current, best
