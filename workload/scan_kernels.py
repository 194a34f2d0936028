"""Counting choices of one layer: the kernel under every scan of a streamed trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.jit import kernel


@kernel
def _named(codes: NDArray[Any], dropped: int, seen: NDArray[np.int64], token: int) -> int:
    """How many of codes [K] the token names as well."""
    found = 0
    for k in range(codes.size):
        e = np.int64(codes[k])
        if e != dropped and seen[e] == token:
            found += 1
    return found


@kernel
def count_layer(
    codes: NDArray[Any],
    dropped: int,
    window: NDArray[np.int64],
    before: NDArray[np.int64],
    carried: NDArray[Any],
    counts: NDArray[np.int64],
    pairs: NDArray[np.uint32],
    seen: NDArray[np.int64],
) -> tuple[int, int]:
    """Count codes [T, K] of a layer; return the first impossible row (-1: none) and shared experts.

    - `counts` [S, E]: the row `window[t]` gets token t's experts.
    - `pairs` [E, E]: entry [i, j] gets the tokens that name i before j; empty where they are not wanted.
    - `before` [T] names the token that t's experts are compared with: a row of the block, -1 for none, -2 - s
      for row s of `carried` [*, K]; empty where that is not wanted. The result's second part adds up the
      experts that both name.
    - `seen` [E] is room to work in. A code equal to `dropped` is passed over.

    A row is impossible that names an expert twice, one beyond E, or none.
    """
    experts = counts.shape[1]
    tokens, top_k = codes.shape
    wants_pairs, wants_shared = pairs.size > 0, before.size > 0
    named = np.empty(top_k, dtype=np.int64)
    seen[:] = -1
    shared = 0
    for t in range(tokens):
        row = counts[window[t]]
        known = 0
        for k in range(top_k):
            e = np.int64(codes[t, k])
            if e == dropped:
                continue
            if e < 0 or e >= experts or seen[e] == t:
                return t, shared
            seen[e] = t
            row[e] += 1
            named[known] = e
            known += 1
        if known == 0:
            return t, shared
        if wants_pairs:
            for first in range(known - 1):
                line = pairs[named[first]]
                for second in range(first + 1, known):
                    line[named[second]] += np.uint32(1)
        if wants_shared and before[t] != -1:
            if before[t] >= 0:
                shared += _named(codes[before[t]], dropped, seen, t)
            else:
                shared += _named(carried[-2 - before[t]], dropped, seen, t)
    return -1, shared
