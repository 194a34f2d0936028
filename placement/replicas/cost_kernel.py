"""What a step costs under a placement, and how that changes expert by expert.

A `State` holds, for every step and rank, sums over the replicas there. An expert's share is taken out before
its replicas move and added again afterwards, so that a search pays for what changed alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .rates import Rates

EQUAL, HASH, NEAREST, FIXED = 0, 1, 2, 3
SPLITS = {"equal": EQUAL, "hash": HASH, "nearest": NEAREST, "fixed": FIXED}


class Load(NamedTuple):
    """Traffic and rules that a cost depends on."""

    tokens: NDArray[np.float64]  # [S, P, E] by source rank; P = 1: evenly from all
    speed: NDArray[np.float64]  # [G]
    per_node: int
    split: int


class State(NamedTuple):
    """Sums over replicas, `[S, G]` and `[S, G, 2]` (inside the node, across nodes)."""

    tokens: NDArray[np.float64]
    active: NDArray[np.float64]
    padded: NDArray[np.float64]
    square: NDArray[np.float64]  # of every expert's tokens there: the variance of independent drift
    into: NDArray[np.float64]
    out: NDArray[np.float64]


@kernel
def new_state(load: Load) -> State:
    """Return the state of no expert at all."""
    steps, ranks = load.tokens.shape[0], len(load.speed)
    wide = 1 if flows_follow(load) else ranks
    return State(
        np.zeros((steps, ranks)), np.zeros((steps, ranks)),
        np.zeros((steps, ranks)), np.zeros((steps, ranks)),
        np.zeros((steps, wide, 2)), np.zeros((steps, wide, 2)),
    )  # fmt: skip


@kernel
def flows_follow(load: Load) -> bool:
    """Whether what crosses links follows from the ranks' tokens: every source sends alike to all replicas."""
    return load.tokens.shape[1] == 1 and load.split <= HASH


@kernel
def add_expert(rates: Rates, load: Load, state: State, e: int, has: NDArray[np.int16], sign: float) -> None:
    """Add `sign` times the share of expert e, whose replicas by rank are `has` `[G]`."""
    count = has.sum()
    if count == 0:
        return
    if flows_follow(load):
        for s in range(load.tokens.shape[0]):
            n = load.tokens[s, 0, e]
            if n == 0.0:
                continue
            each = n / count
            active, padded = _active(load.split, n, count), _padded(rates, each)
            for g in range(len(has)):
                if has[g]:
                    k = sign * has[g]
                    state.tokens[s, g] += k * each
                    state.active[s, g] += k * active
                    state.padded[s, g] += k * padded
                    state.square[s, g] += sign * (has[g] * each) ** 2
        return
    _add_by_source(rates, load, state, e, has, count, sign)


@kernel
def _active(split: int, n: float, count: int) -> float:
    """Share of steps in which a replica has a token: dealt in turn, or hashed independently."""
    if split == HASH:
        return float(1.0 - (1.0 - 1.0 / count) ** n)
    return min(1.0, n / count)


@kernel
def _padded(rates: Rates, tokens: float) -> float:
    return tokens if rates.tile == 1 else np.ceil(tokens / rates.tile - 1e-9) * rates.tile


@kernel
def _add_by_source(
    rates: Rates, load: Load, state: State, e: int, has: NDArray[np.int16], count: int, sign: float
) -> None:
    ranks, sources = len(has), load.tokens.shape[1]
    share = np.zeros((ranks, ranks))
    for i in range(ranks):
        source_shares(load, has, count, i, share[i])
    for s in range(load.tokens.shape[0]):
        for g in range(ranks):
            if has[g] == 0:
                continue
            here = 0.0
            for i in range(ranks):
                n = load.tokens[s, i, e] if sources > 1 else load.tokens[s, 0, e] / ranks
                moved = n * share[i, g]
                here += moved
                if i != g:
                    level = 0 if i // load.per_node == g // load.per_node else 1
                    state.into[s, g, level] += sign * moved
                    state.out[s, i, level] += sign * moved
            if here > 0.0:
                each = here / has[g]
                active = (
                    1.0 - (1.0 - 1.0 / count) ** (here * count / has[g])
                    if load.split == HASH
                    else min(1.0, each)
                )
                state.tokens[s, g] += sign * here
                state.active[s, g] += sign * has[g] * active
                state.padded[s, g] += sign * has[g] * _padded(rates, each)
                state.square[s, g] += sign * here * here


@kernel
def source_shares(load: Load, has: NDArray[np.int16], count: int, i: int, share: NDArray[np.float64]) -> None:
    """Write which share `[G]` of source rank i's tokens of an expert each rank gets."""
    share[:] = 0.0
    if load.split <= HASH:
        for g in range(len(has)):
            share[g] = has[g] / count
    elif load.split == FIXED:
        left = i % count
        for g in range(len(has)):
            if left < has[g]:
                share[g] = 1.0
                return
            left -= has[g]
    elif has[i]:
        share[i] = 1.0
    else:
        first = i // load.per_node * load.per_node
        near = has[first : first + load.per_node].sum()
        for g in range(len(has)):
            if near == 0:
                share[g] = has[g] / count
            elif first <= g < first + load.per_node:
                share[g] = has[g] / near


@kernel
def step_parts(rates: Rates, load: Load, state: State, parts: NDArray[np.float64]) -> None:
    """Write compute, dispatch, combine and cross-node time of every step into `parts` `[S, 4]`.

    The last is the mean over ranks of the tokens that arrive from other nodes, at the time one takes across
    (one second where links have no time).
    """
    ranks = len(load.speed)
    timed = rates.inside_s > 0.0 or rates.across_s > 0.0
    across_s = rates.across_s if timed else 1.0
    for s in range(len(parts)):
        longest, busiest, inside, across = 0.0, 0.0, 0.0, 0.0
        total = state.tokens[s].sum()
        for g in range(ranks):
            tokens = state.tokens[s, g]
            if tokens > 1e-9 * total:
                more = rates.spread * np.sqrt(max(0.0, state.square[s, g])) if rates.spread > 0.0 else 0.0
                work = max(
                    state.active[s, g] * rates.expert_s + (tokens + more) * rates.token_memory_s,
                    (state.padded[s, g] + more) * rates.token_compute_s,
                )
                longest = max(longest, rates.kernel_s + work / load.speed[g])
            if flows_follow(load):
                first = g // load.per_node * load.per_node
                node = state.tokens[s, first : first + load.per_node].sum()
                in0, in1 = tokens * (load.per_node - 1) / ranks, tokens * (ranks - load.per_node) / ranks
                out0, out1 = (node - tokens) / ranks, (total - node) / ranks
            else:
                in0, in1 = state.into[s, g, 0], state.into[s, g, 1]
                out0, out1 = state.out[s, g, 0], state.out[s, g, 1]
            inside += in0
            across += in1
            busiest = max(busiest, max(in0, out0) * rates.inside_s, max(in1, out1) * rates.across_s)
        latency = 0.0
        if inside > 1e-9 * total:
            latency = rates.inside_latency_s
        if across > 1e-9 * total:
            latency = max(latency, rates.across_latency_s)
        parts[s, 0] = longest
        parts[s, 1] = parts[s, 2] = busiest + latency if timed else 0.0
        parts[s, 3] = max(0.0, across) / ranks * across_s


@kernel
def evaluate_steps(rates: Rates, load: Load, has: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return the parts `[S, 4]` of every step, from nothing."""
    state = new_state(load)
    for e in range(len(has)):
        add_expert(rates, load, state, e, has[e], 1.0)
    parts = np.empty((load.tokens.shape[0], 4))
    step_parts(rates, load, state, parts)
    return parts


@kernel
def objective(parts: NDArray[np.float64], traffic_weight: float, risk: float) -> float:
    """Mean over steps of the parts, plus `risk` standard deviations."""
    steps = len(parts)
    mean, square = 0.0, 0.0
    for s in range(steps):
        value = parts[s, 0] + parts[s, 1] + parts[s, 2] + traffic_weight * parts[s, 3]
        mean += value
        square += value * value
    mean /= steps
    return mean + risk * np.sqrt(max(0.0, square / steps - mean * mean)) if risk > 0.0 else mean


@kernel
def place(
    slots: NDArray[np.int32], rank_of: NDArray[np.int64], experts: int, ranks: int
) -> NDArray[np.int16]:
    """Return replicas of every expert by rank, int16 `[E, G]`, of experts by slot `[R]`."""
    has = np.zeros((experts, ranks), dtype=np.int16)
    for slot in range(len(slots)):
        has[slots[slot], rank_of[slot]] += 1
    return has
