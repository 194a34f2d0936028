"""A small random generator that lives in an array, so that kernels are repeatable in any thread.

xoroshiro128+ (Blackman and Vigna 2018, doi 10.1145/3460772), seeded through splitmix64. numba's own
generator is global to the thread that runs it; this one belongs to the search.
"""

from __future__ import annotations

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from ...common.jit import kernel

_MASK = (1 << 64) - 1


def seeded(*words: int) -> NDArray[np.uint64]:
    """Return a generator state `[2]` that depends on every word."""
    state, out = 0, []
    for word in (*words, 0, 0):
        state = (state + (word & _MASK) * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        out.append(z ^ (z >> 31))
    return np.array(out[-2:], dtype=np.uint64)


@kernel
def next_uint64(state: NDArray[np.uint64]) -> int:
    """Advance the state and return 64 random bits."""
    a, b = state[0], state[1]
    bits = a + b
    b ^= a
    state[0] = ((a << uint64(24)) | (a >> uint64(40))) ^ b ^ (b << uint64(16))
    state[1] = (b << uint64(37)) | (b >> uint64(27))
    return bits  # type: ignore[no-any-return]


@kernel
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    return (next_uint64(state) >> uint64(11)) * (1.0 / 9007199254740992.0)  # type: ignore[no-any-return]


@kernel
def below(state: NDArray[np.uint64], n: int) -> int:
    """Return an integer in [0, n)."""
    return int(uniform(state) * n)
