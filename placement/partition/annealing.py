"""Simulated annealing over single experts: move one across, or exchange two."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ..control import Claim, Control
from ..result import Stop
from ..search.cooling import temperature, temperatures
from ..search.random import below, seeded, uniform
from .kernels import gpu_s
from .problem import Decision, problem_of
from .published import sieve

_SAMPLE = 256
_CHUNK = 4096
_EXCHANGE = 0.5


def annealing(control: Control[Decision]) -> Claim:
    """Anneal until the budget is spent, from `control.start`, or from Sieve's partition."""
    p = problem_of(control)
    if control.best is None:
        sieve(control)
        control.iterations = 0
    assert control.best is not None
    assert control.best_cost is not None
    active = np.flatnonzero(p.tokens)
    if len(active) == 0:
        return Claim(control.should_stop() or Stop.CONVERGED)
    current, best = control.best.on_gpu.copy(), control.best.on_gpu.copy()
    rng, known_s = seeded(control.seed), control.best_cost.objective_s
    state = (p.coefficients, p.attention_s, p.comm_s, p.tokens, p.seconds, p.home, p.homes, active)
    deltas = np.empty(_SAMPLE)
    anneal(*state, rng, 0, 0.0, 0.0, current, best, deltas[:0])
    control.restart_clock()  # the call without moves compiled the kernel
    anneal(*state, rng, _SAMPLE, math.inf, math.inf, current.copy(), best.copy(), deltas)
    hot, cold = temperatures(deltas)
    while (stop := control.should_stop()) is None:
        left = control.iterations_left()
        size = _CHUNK if left is None else min(_CHUNK, left)
        limit, now = control.budget.iterations, control.progress()
        then = min(1.0, (control.iterations + size) / limit) if limit is not None else now
        ends = temperature(hot, cold, now), temperature(hot, cold, max(now, then))
        best_s = anneal(*state, rng, size, *ends, current, best, deltas[:0])
        control.iterations += size
        if best_s < known_s:
            known_s = control.offer(Decision(best)).objective_s
        else:
            control.tick()
    return Claim(stop)


@kernel
def anneal(
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    tokens: NDArray[np.int64],
    seconds: NDArray[np.float64],
    home: NDArray[np.int64],
    homes: int,
    active: NDArray[np.int64],
    rng: NDArray[np.uint64],
    moves: int,
    hot: float,
    cold: float,
    current: NDArray[np.bool_],
    best: NDArray[np.bool_],
    deltas_s: NDArray[np.float64],
) -> float:
    """Run `moves` proposals while cooling from hot to cold; return the best T_total seen.

    `current` and `best` [E] are changed in place; with `deltas_s` [moves] given, changes are written to it.
    """
    busy_s = np.full(homes, attention_s)
    experts, routed = 0, 0
    for e in active:
        if current[e]:
            experts += 1
            routed += tokens[e]
        else:
            busy_s[home[e]] += seconds[e]
    total_s = best_s = float(max(comm_s, gpu_s(c, experts, routed), busy_s.max()))
    for i in range(moves):
        heat = hot if hot == cold else hot * (cold / hot) ** (i / moves)
        a = active[below(rng, len(active))]
        b = active[below(rng, len(active))] if uniform(rng) < _EXCHANGE else a
        pair = a != b and current[a] != current[b]
        step = -1 if current[a] else 1
        new_experts, new_routed = experts + step, routed + step * tokens[a]
        busy_s[home[a]] -= step * seconds[a]
        if pair:
            new_experts -= step
            new_routed -= step * tokens[b]
            busy_s[home[b]] += step * seconds[b]
        new_s = max(comm_s, gpu_s(c, new_experts, new_routed), busy_s.max())
        if len(deltas_s) > 0:
            deltas_s[i] = new_s - total_s
        if new_s <= total_s or (heat > 0.0 and uniform(rng) < math.exp((total_s - new_s) / heat)):
            total_s, experts, routed = new_s, new_experts, new_routed
            current[a] = not current[a]
            if pair:
                current[b] = not current[b]
            if total_s < best_s * (1.0 - 1e-12):
                best_s = total_s
                best[:] = current
        else:
            busy_s[home[a]] += step * seconds[a]
            if pair:
                busy_s[home[b]] -= step * seconds[b]
    return best_s
