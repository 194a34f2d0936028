"""Simulated annealing over shifts and exchanges of experts, on the rounds themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..problem import SAME_COST
from ..search.cooling import temperature, temperatures
from ..search.random import seeded
from .kernels import anneal, score, state_of
from .problem import CoreProblem, Decision, problem_of
from .published import lpt_placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAMPLE = 128
_CHUNK_S = 0.02
#: Moves between two looks at the clock, times the steps searched: some 20 ms.
_CHUNK_WORK = 2**23
#: Weight of a step's largest load beside its rounds. Rounds are flat between two multiples of G, and steps
#: that nobody has seen go over the next multiple the later, the less the busiest core has to do.
_TILT = 4.0


def annealing(control: Control[Decision]) -> Claim:
    """Anneal until the budget is spent; begin at `control.start`, or at LPT, and never end worse.

    What is searched is a step's rounds and its largest load; what is offered is measured in rounds alone.
    Many placements meet the bound on the profile, so that the search goes on when one does, for one whose
    cores have less to do, and offers that last. Temperatures follow the share of the budget that is spent.
    """
    problem = problem_of(control)
    begin = control.best or Decision(lpt_placement(problem).astype(np.int32))
    jobs = np.ascontiguousarray(problem.jobs.T)
    price, risk, room = prices(problem), problem.risk, problem.layout.room
    rng, nothing = seeded(control.seed), np.empty(0)
    best_place = begin.place_of.copy()
    state = state_of(jobs, best_place.copy(), problem.layout.places)
    current = best = score(state.load.max(axis=0), price, risk)
    anneal(jobs, state, room, price, risk, rng, 0, 0.0, 0.0, current, best, best_place, nothing)
    control.restart_clock()  # the call without moves compiled the kernel
    sample = np.empty(_SAMPLE)
    anneal(jobs, state, room, price, risk, rng, _SAMPLE, 0.0, 0.0, current, best, best_place, sample)
    hot, cold = temperatures(sample[np.isfinite(sample)])
    chunk = max(64, _CHUNK_WORK // max(1, jobs.shape[1]))
    while (stop := control.should_stop()) is None:
        left = control.iterations_left()
        size = chunk if left is None else min(chunk, left)
        begun, known = time.perf_counter(), best
        warm, cool = _ends(control, hot, cold, size)
        current, best = anneal(
            jobs, state, room, price, risk, rng, size, warm, cool, current, best, best_place, nothing
        )
        control.iterations += size
        if best < known and _above_floor(control, best_place):
            control.offer(Decision(best_place))
        else:
            control.tick()
        if control.budget.iterations is None:
            took_s = max(time.perf_counter() - begun, 1e-6)
            chunk = int(min(4.0, max(0.25, _CHUNK_S / took_s)) * chunk) + 1
        current = score(state.load.max(axis=0), price, risk)  # without what rounding has added up
    control.offer(Decision(best_place))
    control.offer(begin)
    return Claim(control.should_stop() or stop)


def _above_floor(control: Control[Decision], place_of: NDArray[np.int32]) -> bool:
    """Tell whether a placement is short of what the budget asks for, so that offering it ends nothing."""
    objective_s = problem_of(control).evaluate(Decision(place_of)).objective_s
    return objective_s * (1.0 - control.budget.gap) > control.floor.value_s * (1.0 + SAME_COST)


def prices(problem: CoreProblem) -> NDArray[np.float64]:
    """Price of every largest load, from 0 to all jobs of the fullest step: rounds, and the load."""
    servers = problem.layout.servers
    load = np.arange(int(problem.jobs.sum(axis=1).max()) + 1)
    price: NDArray[np.float64] = -(-load // servers) + _TILT * load / servers
    return price


def _ends(control: Control[Decision], hot: float, cold: float, size: int) -> tuple[float, float]:
    """Temperatures at the beginning and the end of the next chunk."""
    now = control.progress()
    limit = control.budget.iterations
    then = min(1.0, (control.iterations + size) / limit) if limit is not None else now
    return temperature(hot, cold, now), temperature(hot, cold, max(now, then))
