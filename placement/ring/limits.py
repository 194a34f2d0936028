"""What no collective can beat on given links, whatever its algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .problem import Collective, RingProblem


def least_collective_s(problem: RingProblem, collective: Collective) -> float:
    """Return the seconds that the links at the cores need for one collective, latencies not counted.

    In an all-gather of blocks of M bytes every core receives n - 1 blocks, and on half-duplex links its own
    block leaves over the same links: the core with the fewest links (a corner of a mesh) takes longest. In an
    all-reduce of vectors of M bytes every core receives and sends M bytes at least, and 2 (n - 1) M bytes are
    received by all of them together: of values that start apart and end everywhere, one-way messages must
    carry each 2 n - 2 times (Harary and Schwenk 1974, Journal of the Franklin Institute 297). Both hold where
    only cores copy and add, not the network.
    """
    topology, n = problem.topology, problem.n
    half = topology.duplex == "half"
    ends = topology.link_ends if half else topology.link_ends[:, 1:]
    links = np.array([(ends == core).any(axis=1).sum() for core in problem.cores])
    together = int(np.isin(ends, problem.cores).any(axis=1).sum())
    if collective == "all_gather":
        at_each, at_all = n if half else n - 1, n * (n - 1)
    else:
        at_each, at_all = 2 if half else 1, 2 * (n - 1)
    messages = max(at_each / int(links.min()), at_all / together)
    return messages * problem.message_bytes / float(topology.link_bandwidth_bytes_per_s[0])
