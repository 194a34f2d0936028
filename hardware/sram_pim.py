"""Time of work on an SRAM-PIM core: matrix-vector products in SRAM macros, with vector and reduce units.

A core stands beside every site of the network and reads what the site's channels hold through one port.
What is multiplied has to pass that port first, so that a product takes the longer of streaming and
multiplying (double buffering); macros are written at the rate of the port.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SramPim:
    """One core (SPIMOE section 3.3.1 and Table 3)."""

    macro_groups: int
    group_pus: int
    """Processing units of a macro group."""
    pu_peak_flop_per_s: float
    clock_hz: float
    vector_lanes: int
    """Elements on which the vector unit does one operation per cycle."""
    reduce_lanes: int
    """Elements that the reduce unit (top-k, maxima) takes in per cycle."""
    port_bytes_per_s: float
    """From the site's channels into the core."""

    @property
    def peak_flop_per_s(self) -> float:
        """All processing units of the core together."""
        return self.macro_groups * self.group_pus * self.pu_peak_flop_per_s

    def product_s(self, flop: float, streamed_bytes: float = 0.0) -> float:
        """Return the time of products of `flop` on operands of `streamed_bytes`: the longer of both."""
        return max(flop / self.peak_flop_per_s, streamed_bytes / self.port_bytes_per_s)

    def vector_s(self, elements: float, operations: int = 1) -> float:
        """Return the time of `operations` element-wise operations on `elements`, in whole cycles."""
        return operations * math.ceil(elements / self.vector_lanes) / self.clock_hz

    def reduce_s(self, elements: float) -> float:
        """Return the time of one pass of the reduce unit over `elements`, in whole cycles."""
        return math.ceil(elements / self.reduce_lanes) / self.clock_hz
