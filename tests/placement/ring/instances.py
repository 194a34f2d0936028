"""Small networks, and the best ring by trying every order: the twin that exact answers are held against."""

from __future__ import annotations

import numpy as np
from numba import njit

from moeplan.hardware.topology import Topology, mesh, torus
from moeplan.placement.ring.problem import Measure, RingProblem

LINK_BYTES_PER_S, HOP_S = 1e9, 4e-9
LINK = {"link_bandwidth_bytes_per_s": LINK_BYTES_PER_S, "hop_latency_s": HOP_S}
NONE = 1 << 30


def grid(rows: int, cols: int, duplex: str = "full") -> Topology:
    return mesh(rows, cols, duplex=duplex, **LINK)


def wrapped(rows: int, cols: int, duplex: str = "full") -> Topology:
    return torus(rows, cols, duplex=duplex, **LINK)


def least_objective(problem: RingProblem) -> float:
    """Smallest objective over all (n - 1)! orders."""
    return min(problem.value(measure) for measure in front(problem))


def front(problem: RingProblem) -> list[Measure]:
    """Fewest hops in total for every pair of load and largest hop that some order has."""
    loads, hops = 2 * problem.n + 1, problem.diameter + 1
    table = _enumerate(
        problem.hops, problem.arcs.start, problem.arcs.links, problem.topology.links, loads, hops
    )
    return [Measure(int(a), int(b), int(table[a, b])) for a, b in np.argwhere(table < NONE)]


@njit
def _enumerate(hops, start, links, link_count, loads, levels):
    n = len(hops)
    table = np.full((loads, levels), NONE)
    order, load = np.arange(n), np.zeros(link_count, dtype=np.int64)
    while True:
        load[:] = 0
        total, largest, busiest = 0, 0, 0
        for i in range(n):
            arc = order[i] * n + order[(i + 1) % n]
            hop = hops[order[i], order[(i + 1) % n]]
            total += hop
            largest = max(largest, hop)
            for k in range(start[arc], start[arc + 1]):
                load[links[k]] += 1
                busiest = max(busiest, load[links[k]])
        table[busiest, largest] = min(table[busiest, largest], total)
        i = n - 2  # the next permutation of order[1:]
        while i > 0 and order[i] > order[i + 1]:
            i -= 1
        if i <= 0:
            return table
        j = n - 1
        while order[j] < order[i]:
            j -= 1
        order[i], order[j] = order[j], order[i]
        order[i + 1 :] = order[i + 1 :][::-1].copy()
