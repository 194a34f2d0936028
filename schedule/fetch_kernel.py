"""One layer's queues on pooled cores, batch by batch (numba)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.jit import kernel


@kernel
def run_queue(
    counts: NDArray[np.int64],
    core_of: NDArray[np.int64],
    cores: int,
    groups: int,
    width: int,
    depth: int,
    narrow: bool,
    rounds: NDArray[np.int64],
    jobs: NDArray[np.int64],
    lags: NDArray[np.int64],
) -> None:
    """Work off batches `counts` [S, E] in order, fetching from up to `depth` batches behind the oldest.

    Fills `rounds` [S] and `jobs` [S, N] of every batch's turn, and `lags` [S, depth + 1, E]: tokens of a
    batch that ran `i` turns before its own. `narrow`: idle groups also take tiles that are not full.
    """
    batches, experts = counts.shape
    left = counts.copy()
    queued = np.zeros(experts, dtype=np.int64)  # behind the oldest batch, within the window
    for batch in range(1, min(depth, batches - 1) + 1):
        queued += left[batch]
    first, members = _residents(core_of, cores)
    for turn in range(batches):
        if turn:
            queued -= left[turn]
            if turn + depth < batches and depth:
                queued += left[turn + depth]
        behind = min(turn + depth, batches - 1)
        for expert in range(experts):
            due = left[turn, expert]
            if due:
                tiles = -(-due // width)
                jobs[turn, core_of[expert]] += tiles
                lags[turn, 0, expert] = due
                left[turn, expert] = 0
                _fetch(expert, tiles * width - due, turn, behind, left, queued, lags)
        for core in range(cores):
            rounds[turn] = max(rounds[turn], -(-jobs[turn, core] // groups))
        for core in range(cores):
            while jobs[turn, core] < rounds[turn] * groups:
                longest, tokens = -1, 0 if narrow else width - 1
                for place in range(first[core], first[core + 1]):
                    if queued[members[place]] > tokens:
                        longest, tokens = members[place], queued[members[place]]
                if longest < 0:
                    break
                jobs[turn, core] += 1
                _fetch(longest, width, turn, behind, left, queued, lags)


@kernel
def _fetch(
    expert: int,
    room: int,
    turn: int,
    behind: int,
    left: NDArray[np.int64],
    queued: NDArray[np.int64],
    lags: NDArray[np.int64],
) -> None:
    """Run up to `room` queued tokens of an expert, those of the oldest batch first."""
    room = min(room, queued[expert])
    for batch in range(turn + 1, behind + 1):
        if room == 0:
            return
        taken = min(room, left[batch, expert])
        left[batch, expert] -= taken
        queued[expert] -= taken
        lags[batch, batch - turn, expert] += taken
        room -= taken


@kernel
def _residents(core_of: NDArray[np.int64], cores: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Experts by core, ascending: those of core c are members[first[c] : first[c + 1]]."""
    first = np.zeros(cores + 1, dtype=np.int64)
    for core in core_of:
        first[core + 1] += 1
    first = np.cumsum(first)
    members = np.empty(len(core_of), dtype=np.int64)
    place = first[:-1].copy()
    for expert in range(len(core_of)):
        members[place[core_of[expert]]] = expert
        place[core_of[expert]] += 1
    return first, members
