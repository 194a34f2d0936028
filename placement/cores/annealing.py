"""Simulated annealing over shifts and exchanges of experts, on the rounds themselves."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
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
#: Moves per expert of the pass at the bound.
_LAST_PASS = 400
#: Weight of a step's largest load beside its rounds. Rounds are flat between two multiples of G, and steps
#: that nobody has seen go over the next multiple the later, the less the busiest core has to do.
_TILT = 4.0
#: The same with risk: standard deviations of a mixture are not those of the rounds.
_TILT_WITH_RISK = 0.05


def annealing(control: Control[Decision]) -> Claim:
    """Anneal until the budget is spent; begin at `control.best`, or at LPT, and never end worse.

    What is searched is a step's rounds and its largest load; what is offered is measured in rounds, and in
    load where rounds are equal. Many placements meet the bound on the profile: once one does, a last pass
    looks for one whose cores have less to do. Temperatures follow the share of the budget that is spent.
    """
    return anneal_at_most(control, None)


def anneal_at_most(control: Control[Decision], moves: int | None) -> Claim:
    """Anneal as `annealing` does, with so many moves where the budget does not end it before."""
    problem = problem_of(control)
    if control.best is None:
        control.offer(Decision(lpt_placement(problem).astype(np.int32)))
    assert control.best is not None
    walk = _Walk(problem, control.best.place_of, control.seed)
    control.restart_clock()  # the kernel is compiled
    hot, cold = walk.temperatures()
    chunk = max(64, _CHUNK_WORK // max(1, walk.jobs.shape[1]))
    while (stop := control.should_stop()) is None:
        limits = [limit for limit in (moves, control.budget.iterations) if limit is not None]
        limit = min(limits, default=None)
        if limit is not None and control.iterations >= limit:
            return Claim(Stop.CONVERGED)
        size = chunk if limit is None else min(chunk, limit - control.iterations)
        begun = time.perf_counter()
        _advance(control, walk, size, *_ends(control, limit, hot, cold, size))
        if limit is None:
            took_s = max(time.perf_counter() - begun, 1e-6)
            chunk = int(min(4.0, max(0.25, _CHUNK_S / took_s)) * chunk) + 1
    if stop is Stop.GAP_REACHED and not control.budget.gap:
        _widen(control, walk, hot, cold)
    return Claim(stop)


def _advance(control: Control[Decision], walk: _Walk, moves: int, hot: float, cold: float) -> None:
    """Propose `moves` moves, and offer what is better than all before."""
    known = walk.best
    walk.anneal(moves, hot, cold)
    control.iterations += moves
    if walk.best < known:
        control.offer(Decision(walk.best_place))
    else:
        control.tick()


def _widen(control: Control[Decision], walk: _Walk, hot: float, cold: float) -> None:
    """Anneal at the bound for less load, within what is left of the budget."""
    walk.restart()
    moves, made = _LAST_PASS * len(walk.best_place), 0
    while made < moves and not control.interrupt.is_set() and control.progress() < 1.0:
        left = control.iterations_left()
        size = min(_CHUNK_WORK // walk.jobs.shape[1] + 1, moves - made, moves if left is None else left)
        warm, cool = (temperature(hot, cold, at / moves) for at in (made, made + size))
        _advance(control, walk, size, warm, cool)
        made += size


class _Walk:
    """A placement under annealing, and the best that it came by. Making one compiles the kernel."""

    def __init__(self, problem: CoreProblem, place_of: NDArray[np.int32], seed: int) -> None:
        self.jobs = np.ascontiguousarray(problem.jobs.T)
        self._price, self._risk, self._layout = prices(problem), problem.risk, problem.layout
        self._rng = seeded(seed)
        self.best_place = place_of.copy()
        self.best = math.inf
        self.restart()
        self.best = self._current
        self.anneal(0, 0.0, 0.0)

    def restart(self) -> None:
        """Go back to the best."""
        self._state = state_of(self.jobs, self.best_place, self._layout.places)
        self._current = score(self._state.load.max(axis=0), self._price, self._risk)

    def temperatures(self) -> tuple[float, float]:
        """Hot and cold end, from moves that are measured and not made."""
        sample = np.empty(_SAMPLE)
        self.anneal(_SAMPLE, 0.0, 0.0, sample)
        return temperatures(sample[np.isfinite(sample)])

    def anneal(self, moves: int, hot: float, cold: float, deltas: NDArray[np.float64] | None = None) -> None:
        """Propose moves while cooling; see the kernel for `deltas`."""
        _, self.best = anneal(
            self.jobs, self._state, self._layout.room, self._price, self._risk, self._rng, moves, hot, cold,
            self._current, self.best, self.best_place, np.empty(0) if deltas is None else deltas,
        )  # fmt: skip
        # Measured anew, without what rounding has added up.
        self._current = score(self._state.load.max(axis=0), self._price, self._risk)


def prices(problem: CoreProblem) -> NDArray[np.float64]:
    """Price of every largest load, from 0 to all jobs of the fullest step: rounds, and the load."""
    servers = problem.layout.servers
    load = np.arange(int(problem.jobs.sum(axis=1).max()) + 1)
    tilt = _TILT_WITH_RISK if problem.risk > 0.0 else _TILT
    price: NDArray[np.float64] = -(-load // servers) + tilt * load / servers
    return price


def _ends(
    control: Control[Decision], limit: int | None, hot: float, cold: float, size: int
) -> tuple[float, float]:
    """Temperatures at both ends of the next chunk, by the moves or the time that are spent."""
    now = control.progress() if control.budget.time_s is not None or limit is None else 0.0
    then = now
    if limit is not None:
        now, then = max(now, control.iterations / limit), max(now, (control.iterations + size) / limit)
    return temperature(hot, cold, now), temperature(hot, cold, then)
