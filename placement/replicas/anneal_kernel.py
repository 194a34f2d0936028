"""Random swaps and count moves on the true objective, whatever it is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ..search.random import below, uniform
from .cost_kernel import Load, State, add_expert, new_state, objective, step_parts
from .rates import Rates

#: Share of moves that begin on the busiest rank of some step, and share of swaps among all.
_GUIDED, _SWAPS = 0.7, 0.6


class Rules(NamedTuple):
    """What a move has to keep, and what is minimised."""

    rank_of: NDArray[np.int64]  # [R]
    start: NDArray[np.int64]  # [G + 1]
    most: int
    group_size: int  # experts of a group; 0 where groups may go anywhere
    current: NDArray[np.int16]  # [E, G]; empty first axis: none
    moves: int
    traffic_weight: float
    risk: float
    plain: bool


class Walk(NamedTuple):
    """Where a search stands."""

    slots: NDArray[np.int32]  # [R]
    has: NDArray[np.int16]  # [E, G]
    copies: NDArray[np.int64]  # [E]
    state: State
    parts: NDArray[np.float64]  # [S, 4]
    moved: NDArray[np.int64]  # [1]


@kernel
def new_walk(rates: Rates, load: Load, rules: Rules, slots: NDArray[np.int32]) -> Walk:
    """Return the walk that stands at `slots`."""
    experts, ranks = load.tokens.shape[2], len(load.speed)
    has = np.zeros((experts, ranks), dtype=np.int16)
    count = np.zeros(experts, dtype=np.int64)
    for slot in range(len(slots)):
        has[slots[slot], rules.rank_of[slot]] += 1
        count[slots[slot]] += 1
    walk = Walk(
        slots.copy(), has, count, new_state(load), np.zeros((load.tokens.shape[0], 4)), np.zeros(1, np.int64)
    )
    for e in range(experts):
        _shift(rates, load, rules, walk, e, 1.0)
    if len(rules.current):
        for e in range(experts):
            for g in range(ranks):
                walk.moved[0] += max(0, has[e, g] - rules.current[e, g])
    return walk


@kernel
def value(rates: Rates, load: Load, rules: Rules, walk: Walk) -> float:
    """Objective of where the walk stands."""
    if rules.plain:
        for s in range(len(walk.parts)):
            if rates.spread == 0.0:
                walk.parts[s, 0] = walk.state.tokens[s].max()
                continue
            longest = 0.0
            for g in range(len(load.speed)):
                more = rates.spread * np.sqrt(max(0.0, walk.state.square[s, g]))
                longest = max(longest, walk.state.tokens[s, g] + more)
            walk.parts[s, 0] = longest
    else:
        step_parts(rates, load, walk.state, walk.parts)
    return objective(walk.parts, rules.traffic_weight, rules.risk)


@kernel
def _shift(rates: Rates, load: Load, rules: Rules, walk: Walk, e: int, sign: float) -> None:
    """Add or take out an expert's share; the plain state holds time (load over speed)."""
    if not rules.plain:
        add_expert(rates, load, walk.state, e, walk.has[e], sign)
        return
    each = sign * rates.token_memory_s / walk.copies[e]
    for g in range(len(load.speed)):
        if walk.has[e, g]:
            factor = each * walk.has[e, g] / load.speed[g]
            for s in range(load.tokens.shape[0]):
                here = 0.0
                for p in range(load.tokens.shape[1]):
                    here += load.tokens[s, p, e]
                walk.state.tokens[s, g] += factor * here
                walk.state.square[s, g] += sign * (factor * here) ** 2


@kernel
def _fits(rules: Rules, walk: Walk, load: Load, e: int, g: int) -> bool:
    """Whether rank g may take one more replica of e: duplicates, and the node of its group."""
    if walk.has[e, g] >= rules.most:
        return False
    if rules.group_size == 0:
        return True
    node = g // load.per_node
    mates = e // rules.group_size * rules.group_size
    for r in range(node * load.per_node, (node + 1) * load.per_node):
        for f in range(mates, mates + rules.group_size):
            if walk.has[f, r]:
                return True
    return False


@kernel
def _put(rules: Rules, walk: Walk, slot: int, e: int) -> None:
    g, out = rules.rank_of[slot], walk.slots[slot]
    if len(rules.current):
        walk.moved[0] -= 1 if walk.has[out, g] > rules.current[out, g] else 0
        walk.moved[0] += 1 if walk.has[e, g] >= rules.current[e, g] else 0
    walk.has[out, g] -= 1
    walk.has[e, g] += 1
    walk.copies[out] -= 1
    walk.copies[e] += 1
    walk.slots[slot] = e


@kernel
def _pick(rules: Rules, walk: Walk, rng: NDArray[np.uint64]) -> int:
    """A slot: often of the busiest rank of a random step."""
    if uniform(rng) < _GUIDED:
        g = int(walk.state.tokens[below(rng, len(walk.parts))].argmax())
        return int(rules.start[g] + below(rng, rules.start[g + 1] - rules.start[g]))
    return below(rng, len(walk.slots))


@kernel
def anneal(
    rates: Rates, load: Load, rules: Rules, walk: Walk, rng: NDArray[np.uint64], moves: int,
    hot: float, cold: float, now: float, best: float, best_slots: NDArray[np.int32],
    sample: NDArray[np.float64],
) -> tuple[float, float]:  # fmt: skip
    """Make `moves` random moves, cooling from `hot` to `cold`; return the value now and the best.

    Where `sample` has room, writes the change of every proposed move there (NaN where it was not allowed).
    """
    for step in range(moves):
        temperature = hot if hot <= 0.0 else hot * (cold / hot) ** (step / moves)
        if step < len(sample):
            sample[step] = np.nan
        first = _pick(rules, walk, rng)
        swap = uniform(rng) < _SWAPS
        second = below(rng, len(walk.slots)) if swap else first
        e = walk.slots[first]
        f = walk.slots[second] if swap else below(rng, len(walk.copies))
        g, h = rules.rank_of[first], rules.rank_of[second]
        if e == f or (swap and g == h) or not _fits(rules, walk, load, f, g):
            continue
        if swap and not _fits(rules, walk, load, e, h):
            continue
        if not swap and walk.copies[e] < 2:
            continue
        _shift(rates, load, rules, walk, e, -1.0)
        _shift(rates, load, rules, walk, f, -1.0)
        _put(rules, walk, first, f)
        if swap:
            _put(rules, walk, second, e)
        _shift(rates, load, rules, walk, e, 1.0)
        _shift(rates, load, rules, walk, f, 1.0)
        then = value(rates, load, rules, walk)
        delta = then - now
        if step < len(sample):
            sample[step] = delta
        allowed = len(rules.current) == 0 or walk.moved[0] <= rules.moves
        if allowed and (delta <= 0.0 or (temperature > 0.0 and uniform(rng) < np.exp(-delta / temperature))):
            now = then
            if now < best * (1.0 - 1e-12):
                best = now
                best_slots[:] = walk.slots
            continue
        _shift(rates, load, rules, walk, e, -1.0)
        _shift(rates, load, rules, walk, f, -1.0)
        _put(rules, walk, first, e)
        if swap:
            _put(rules, walk, second, f)
        _shift(rates, load, rules, walk, e, 1.0)
        _shift(rates, load, rules, walk, f, 1.0)
    return now, best
