"""Loops of the channel micro-benchmarks that must not return to Python between two pieces of work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ...placement.channels.anneal_kernel import propose, shift_noc
from ...placement.channels.kernels import State, fill
from ...placement.channels.tables import Tables


@kernel
def updates(t: Tables, st: State, rng: NDArray[np.uint64], proposals: int) -> int:
    """Apply every proposed move to the communication, then its reverse; return the number of updates."""
    steps = t.counts.shape[1]
    move, changed = np.empty(4, dtype=np.int64), np.zeros(steps, dtype=np.uint8)
    kept, kept_s = np.zeros_like(st.parts), np.zeros_like(st.noc_s)
    done = 0
    for _ in range(proposals):
        if propose(t.factor_of, t.factor_start, st.group_of, rng, move):
            for _ in range(2):
                shift_noc(t, st, move, False, changed, kept, kept_s)
                for i in (0, 2):
                    if move[i] >= 0:
                        st.group_of[move[i]], move[i + 1] = move[i + 1], st.group_of[move[i]]
                done += 1
    return done


@kernel
def fills(t: Tables, st: State, group_of: NDArray[np.int32]) -> None:
    """Evaluate a placement in full."""
    fill(t, st, group_of)
