"""What the cost of a step is made from, apart from the kernels, which take a second to load."""

from __future__ import annotations

from typing import NamedTuple


class Rates(NamedTuple):
    """Seconds per unit of work. Without a model a token takes one second, and nothing else costs anything."""

    kernel_s: float = 0.0  # constant of a rank that has any token
    expert_s: float = 0.0  # reading the weights of an active replica
    token_memory_s: float = 1.0  # reading and writing a token
    token_compute_s: float = 0.0  # multiplying a (padded) token
    tile: int = 1  # tokens that the kernel computes at a time
    inside_s: float = 0.0  # a token over a rank's link inside the node
    across_s: float = 0.0  # a token over a rank's network port
    inside_latency_s: float = 0.0
    across_latency_s: float = 0.0
    spread: float = 0.0  # standard deviations of a rank's drift that are added to its tokens
