"""Drawing k of E without replacement, once per token: the kernel behind the `draws` sampler.

Random numbers are a hash of a key and a counter, so that a token's choices depend on its row alone and
not on how rows are cut into blocks or shared among threads.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from ..common.jit import kernel

LANES: Final = 16


@kernel
def _uniform(key: int, counter: int) -> float:
    """A number in [0, 1) with 53 bits: splitmix64 (Steele et al. 2014) of key and counter."""
    z = uint64(key) + (uint64(counter) + uint64(1)) * uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return ((z ^ (z >> uint64(31))) >> uint64(11)) * (1.0 / 9007199254740992.0)  # type: ignore[no-any-return]


@kernel
def _pick(odds: NDArray[np.float32], lanes: NDArray[np.float32], uniform: float) -> int:
    """An expert, with probability proportional to its odds [E]; `lanes` are their sums."""
    total = 0.0
    for lane in range(LANES):
        total += lanes[lane]
    left = uniform * total
    lane = 0
    while lane < LANES - 1 and left >= lanes[lane]:
        left -= lanes[lane]
        lane += 1
    chosen = -1
    for e in range(lane, odds.size, LANES):
        if odds[e] > 0.0:
            chosen = e
            left -= odds[e]
            if left < 0.0:
                break
    if chosen < 0:  # rounding led into an empty lane: take the likeliest expert that is left
        chosen = int(np.argmax(odds))
    return chosen


@kernel
def draw_without_replacement(
    by_step: NDArray[np.float32],
    step: NDArray[np.int64],
    by_request: NDArray[np.float32],
    request: NDArray[np.int64],
    members: NDArray[np.int64],
    group_until: NDArray[np.float64],
    boost: float,
    key: int,
    first: int,
    choices: NDArray[np.int16],
) -> None:
    """Fill `choices` [T, K] with experts in the order in which they are drawn.

    Token t's odds of expert e are by_step[step[t], e] * by_request[request[t], e], times `boost` where e
    is of the token's group; the group is drawn by the cumulated shares `group_until` [G], `members`
    [G, M] lists the groups' experts (-1: none). Odds are [*, E], E a multiple of 16, with zeros for padding.
    `first` is the row of the first token in the whole recording.

    An expert that was drawn gets odds 0, and the next one is drawn from what is left: the same
    distribution as the k largest of Gumbel-perturbed log odds, in their order. The odds are summed in 16
    lanes (expert e in lane e % 16), so that a draw looks at 16 lanes and one lane's experts.
    """
    experts, top_k = by_step.shape[1], choices.shape[1]
    odds = np.empty(experts, dtype=np.float32)
    lanes = np.empty(LANES, dtype=np.float32)
    for t in range(choices.shape[0]):
        counter = (first + t) * (top_k + 1)
        a, b = by_step[step[t]], by_request[request[t]]
        for e in range(experts):
            odds[e] = a[e] * b[e]
        if group_until.size:
            group = min(
                np.searchsorted(group_until, _uniform(key, counter), side="right"), members.shape[0] - 1
            )
            for m in members[group]:
                if m >= 0:
                    odds[m] *= boost
        lanes[:] = 0.0
        for start in range(0, experts, LANES):
            for lane in range(LANES):
                lanes[lane] += odds[start + lane]
        for k in range(top_k):
            chosen = _pick(odds, lanes, _uniform(key, counter + 1 + k))
            choices[t, k] = chosen
            odds[chosen] = 0.0
            rest = np.float32(0.0)
            for e in range(chosen % LANES, experts, LANES):
                rest += odds[e]
            lanes[chosen % LANES] = rest
