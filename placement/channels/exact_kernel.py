"""The tree search of `exact` (numba), which can be left and re-entered after any number of nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .anneal_kernel import objective
from .kernels import DRAM, State, fill
from .tables import SLACK, Tables


@kernel
def branch(
    t: Tables,
    partial: State,
    leaf: State,
    order: NDArray[np.int32],
    rest_s: NDArray[np.float64],
    floor_s: NDArray[np.float64],
    risk: float,
    choice: NDArray[np.int32],
    depth: int,
    nodes: int,
    best_s: float,
    best: NDArray[np.int32],
) -> tuple[int, float, int]:
    """Visit up to `nodes` nodes; return (depth to go on at, or -1 when done; best objective; nodes used).

    `choice[d]` is the group last tried for expert `order[d]`, -1 before the first; `partial` holds loads
    and memory of the experts above `depth`.
    """
    experts, groups = len(order), len(t.group_start) - 1
    used = 0
    while depth >= 0 and used < nodes:
        if choice[depth] >= 0:
            _put(t, partial, order[depth], choice[depth], -1.0)
        choice[depth] += 1
        if choice[depth] == groups:
            choice[depth] = -1
            depth -= 1
            continue
        used += 1
        _put(t, partial, order[depth], choice[depth], 1.0)
        if not _room(t, partial, choice[depth]) or _bound(partial, rest_s[depth + 1], floor_s) >= best_s:
            continue
        if depth < experts - 1:
            depth += 1
            continue
        cost_s = _score(t, leaf, order, choice, risk)
        if cost_s < best_s:
            best_s = cost_s
            for d in range(experts):
                best[order[d]] = choice[d]
    return depth, best_s, used


@kernel
def _put(t: Tables, st: State, e: int, g: int, sign: float) -> None:
    for k in range(t.group_start[g], t.group_start[g + 1]):
        c = t.group_sites[k]
        st.memory_bytes[c] += sign * t.shard_bytes[g]
        for s in range(t.counts.shape[1]):
            st.load_s[c, s] += sign * t.counts[e, s] * t.token_s[g]


@kernel
def _room(t: Tables, st: State, g: int) -> bool:
    for k in range(t.group_start[g], t.group_start[g + 1]):
        if st.memory_bytes[t.group_sites[k]] > t.capacity_bytes * SLACK:
            return False
    return True


@kernel
def _bound(st: State, rest_s: NDArray[np.float64], floor_s: NDArray[np.float64]) -> float:
    """Mean over steps of the largest of: busiest site, average with the rest, the step's own bound."""
    sites, steps = st.load_s.shape
    total = 0.0
    for s in range(steps):
        busiest, placed = 0.0, 0.0
        for c in range(sites):
            busiest = max(busiest, st.load_s[c, s])
            placed += st.load_s[c, s]
        total += max(busiest, (placed + rest_s[s]) / sites, floor_s[s])
    # Loads are added and taken away many times; the cut gives their rounding away.
    return float(total / steps * (1.0 - 1e-12))


@kernel
def _score(t: Tables, leaf: State, order: NDArray[np.int32], choice: NDArray[np.int32], risk: float) -> float:
    for array in (leaf.load_s, leaf.ring, leaf.parts):
        array[:] = 0.0
    leaf.noc_s[:] = 0.0
    leaf.memory_bytes[:] = 0.0
    leaf.used[:] = 0
    for counter in (leaf.dispatch, leaf.dispatch_rank, leaf.ring_rank, leaf.first):
        counter[:] = 0
    group_of = np.empty(len(order), dtype=np.int32)
    for d in range(len(order)):
        group_of[order[d]] = choice[d]
    fill(t, leaf, group_of)
    return objective(leaf.parts[:, DRAM].copy(), leaf.noc_s, risk)
