"""Hamiltonian cycles of small graphs by dynamic programming over subsets, a word per subset (numba).

Bellman 1962 and Held and Karp 1962, doi 10.1137/0110015, with the set of possible ends of each path kept as
the bits of one integer: 2^(n - 1) words, n operations each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel

MOST_CORES = 16
"""Beyond this the table costs more time than CP-SAT."""


def hamiltonian_cycle(linked: NDArray[np.bool_]) -> NDArray[np.int32] | None:
    """Return positions [n] of a cycle through the graph `linked` [n, n], n >= 3; None where there is none."""
    n = len(linked)
    neighbours = (linked.astype(np.int64) << np.arange(n)).sum(axis=1)
    order = np.empty(n, dtype=np.int32)
    return order if _cycle(neighbours, order) else None


@kernel
def _cycle(neighbours: NDArray[np.int64], order: NDArray[np.int32]) -> bool:
    """Write a cycle to `order`; False where there is none. Paths start at the last core."""
    first = len(neighbours) - 1
    ends = np.zeros(1 << first, dtype=np.int32)  # by set of visited cores: where a path may stand
    for visited in range(1, 1 << first):
        for core in range(first):
            if not visited >> core & 1:
                continue
            rest = visited & ~(1 << core)
            arrived = ends[rest] & neighbours[core] if rest else neighbours[first] >> core & 1
            if arrived:
                ends[visited] |= 1 << core
    visited, allowed = (1 << first) - 1, neighbours[first]
    order[0] = first
    for i in range(1, first + 1):
        choice = ends[visited] & allowed
        if choice == 0:
            return False
        core = 0
        while not choice >> core & 1:
            core += 1
        order[i] = core
        visited &= ~(1 << core)
        allowed = neighbours[core]
    return True
