"""Simulated annealing over groups, TP factors and swaps (SPIMOE 3.4.1), from the best known start."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ...common.errors import UsageError
from ..control import Claim, Control
from ..result import Stop
from ..search.cooling import temperature, temperatures
from ..search.random import seeded
from .anneal_kernel import anneal
from .greedy import lpt
from .kernels import evaluate_steps
from .problem import Decision, problem_of
from .tables import Tables

#: Bootstrapped steps per recorded one, and the routed tokens (steps x batch x top-k) that they stop at: a
#: move costs time in proportion, and a larger batch has less chance in it.
_MOST_RESAMPLED, _MOST_ROUTED = 7, 2**17
_SAMPLE = 64
_LARGEST_RESAMPLE = 1000
_CHUNK_S = 0.02
#: Moves between two looks at the clock, times the routed tokens searched: some 20 ms. Without J_noc a
#: move costs a tenth.
_CHUNK_WORK, _CHUNK_WORK_DRAM = 2**22, 2**25


def annealing(control: Control[Decision]) -> Claim:
    """Anneal until the budget is spent; begin at `control.start`, or at LPT where there is none.

    The search sees the profile's steps and `resample` (option) times as many bootstrapped ones, so that it
    does not fit the chance of who met whom; what it finds is offered and measured on the profile itself.
    0 searches the profile alone; the default is up to 7, fewer where steps and batch are large already.
    Temperatures follow the share of the budget that is spent.
    """
    problem = problem_of(control)
    tables, risk = _searched(control), problem.risk
    if control.best is None:
        lpt(control)
        control.iterations = 0
    if control.best is None:
        return Claim(control.should_stop() or Stop.CONVERGED)
    rng, nothing = seeded(control.seed), np.empty(0)
    best = control.best.group_of.copy()
    state = evaluate_steps(tables, best)
    current_s = best_s = _objective(state.parts, risk)
    anneal(tables, state, rng, 0, 0.0, 0.0, risk, current_s, best_s, best, nothing)
    control.restart_clock()  # the call without moves compiled the kernel
    sample = np.empty(_SAMPLE)
    anneal(tables, state, rng, _SAMPLE, 0.0, 0.0, risk, current_s, best_s, best, sample)
    hot, cold = temperatures(sample[np.isfinite(sample)])
    work = _CHUNK_WORK if tables.noc else _CHUNK_WORK_DRAM
    chunk, chunks = max(16, work // max(1, len(tables.slots))), 0
    while (stop := control.should_stop()) is None:
        left = control.iterations_left()
        size = chunk if left is None else min(chunk, left)
        begun = time.perf_counter()
        known_s = best_s
        warm, cool = _ends(control, hot, cold, size)
        current_s, best_s = anneal(
            tables, state, rng, size, warm, cool, risk, current_s, best_s, best, nothing
        )
        control.iterations += size
        if best_s < known_s:
            control.offer(Decision(best))
        else:
            control.tick()
        if control.budget.iterations is None:
            chunk = _next_chunk(chunk, time.perf_counter() - begun)
        chunks += 1
        if chunks % 64 == 0:
            state = evaluate_steps(tables, state.group_of)
            current_s = _objective(state.parts, risk)
    return Claim(stop)


def _searched(control: Control[Decision]) -> Tables:
    problem = problem_of(control)
    affordable = min(_MOST_RESAMPLED, max(0, _MOST_ROUTED // problem.tokens.size - 1))
    times = control.options.get("resample", affordable)
    if not isinstance(times, int) or isinstance(times, bool) or not 0 <= times <= _LARGEST_RESAMPLE:
        raise UsageError(
            f"resample {times!r} is not possible", allowed=f"a whole number from 0 to {_LARGEST_RESAMPLE}"
        )
    return problem.resampled(times, control.seed) if times else problem.tables


def _ends(control: Control[Decision], hot: float, cold: float, size: int) -> tuple[float, float]:
    """Temperatures at the beginning and the end of the next chunk."""
    now = control.progress()
    limit = control.budget.iterations
    then = min(1.0, (control.iterations + size) / limit) if limit is not None else now
    return temperature(hot, cold, now), temperature(hot, cold, max(now, then))


def _next_chunk(chunk: int, took_s: float) -> int:
    """Size that takes about `_CHUNK_S`, so that clocks and Ctrl-C are looked at often."""
    return int(min(4.0, max(0.25, _CHUNK_S / max(took_s, 1e-6))) * chunk) + 1


def _objective(parts: NDArray[np.float64], risk: float) -> float:
    steps = parts.sum(axis=1)
    return float(steps.mean() + risk * steps.std()) if risk else float(steps.mean())
