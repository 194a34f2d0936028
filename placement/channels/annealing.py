"""Simulated annealing over groups, TP factors and swaps (SPIMOE 3.4.1), from the best known start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from ..search.cooling import temperature, temperatures
from ..search.random import seeded
from .anneal_kernel import anneal
from .greedy import lpt_placement, mixed_tp_placement, recorded_s
from .kernels import evaluate_steps
from .problem import ChannelProblem, Decision, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .kernels import State
    from .tables import Tables

_SAMPLE = 64
#: Moves between two looks at the clock, times the routed tokens searched: some 20 ms. Without J_noc a
#: move costs a tenth. Fixed, so that a search that ends by itself is the same on every run.
_CHUNK_WORK, _CHUNK_WORK_DRAM = 2**22, 2**25
#: Chunks after which the state is built anew, against the rounding of many increments.
_REBUILD = 64
#: Share of the hot temperature that a pass begins at: a start that was constructed is worth keeping, and a
#: hot search forgets it.
_WARM = 0.15
#: Proposed moves of a pass per expert, and at least.
_PASS_PER_EXPERT, _SHORTEST_PASS = 80, 4_000
#: Constructions this close to the best on the recorded steps are measured on the drawn ones too.
_NEAR = 1.05
#: A search that ends by itself ends with a pass that gains less than this share.
_CONVERGED = 2e-3


def annealing(control: Control[Decision]) -> Claim:
    """Anneal in passes, each from the best so far and longer than the last, until the budget is spent.

    Begins at `control.start` or at LPT of some factor, whichever is best. What is searched is the objective:
    the recorded steps and those drawn beside them (`unseen`).
    """
    return anneal_passes(control, until_converged=False)


def anneal_passes(control: Control[Decision], *, until_converged: bool) -> Claim:
    """Anneal as `annealing` does; with `until_converged` a pass that gains next to nothing is the last."""
    problem = problem_of(control)
    Walk.compile(problem)
    control.restart_clock()
    for group_of in constructions(problem):
        if control.best is None or not control.interrupt.is_set():
            control.offer(Decision(group_of))
    if control.best is None or control.best_cost is None:
        return Claim(control.should_stop() or Stop.CONVERGED)
    walk = Walk.begin(problem.objective_tables, control.best.group_of, problem.risk, control.seed)
    moves = max(_SHORTEST_PASS, _PASS_PER_EXPERT * problem.experts)
    while True:
        before_s = control.best_cost.objective_s
        stop = walk.cool(control, moves, warm=_WARM)
        if walk.best_s < before_s:
            control.offer(Decision(walk.best))
        if stop is not None:
            return Claim(stop)
        if until_converged and control.best_cost.objective_s > before_s * (1.0 - _CONVERGED):
            return Claim(control.should_stop() or Stop.CONVERGED)
        moves += moves // 2
        walk.restart()


def constructions(problem: ChannelProblem) -> list[NDArray[np.int32]]:
    """Placements `[E]` that a search may begin at: LPT at the factors of the lowest recorded J, best first.

    Mixed TP where the experts fit at no factor.
    """
    made = [lpt_placement(problem, factor) for factor in problem.groups.factors]
    fitting = [group_of for group_of in made if group_of is not None]
    if not fitting:
        mixed = mixed_tp_placement(problem)
        return [] if mixed is None else [mixed]
    cost_s = [recorded_s(problem, group_of) for group_of in fitting]
    order = sorted(range(len(fitting)), key=cost_s.__getitem__)
    return [fitting[i] for i in order if cost_s[i] <= _NEAR * min(cost_s)]


@dataclass(eq=False)
class Walk:
    """A placement under annealing on some steps, and the best one that it came by."""

    tables: Tables
    risk: float
    rng: NDArray[np.uint64]
    best: NDArray[np.int32]
    best_s: float = 0.0
    hot: float = 0.0
    cold: float = 0.0
    _state: State = field(init=False)
    _current_s: float = field(init=False, default=0.0)

    @classmethod
    def begin(cls, tables: Tables, group_of: NDArray[np.int32], risk: float, seed: int) -> Walk:
        """Start at a placement `[E]`, with temperatures from its own moves."""
        walk = cls(tables, risk, seeded(seed), group_of.copy())
        walk.restart()
        walk.best_s = walk._current_s
        sample = np.empty(_SAMPLE)
        walk._anneal(_SAMPLE, 0.0, 0.0, sample)
        walk.hot, walk.cold = temperatures(sample[np.isfinite(sample)])
        return walk

    @classmethod
    def compile(cls, problem: ChannelProblem) -> None:
        """Have the kernels ready, so that a search does not pay for them."""
        walk = cls(problem.tables, 0.0, seeded(0), np.zeros(problem.experts, dtype=np.int32))
        walk.restart()
        walk._anneal(0, 0.0, 0.0, np.empty(0))

    def restart(self) -> None:
        """Go back to the best."""
        self._rebuild(self.best)

    def cool(self, control: Control[Decision], moves: int, *, warm: float = 1.0) -> Stop | None:
        """Propose `moves` moves while cooling from `warm` times the hot end to the cold one.

        Cools faster where the budget ends earlier; returns why it stopped, None where all moves were made.
        """
        work = _CHUNK_WORK if self.tables.noc else _CHUNK_WORK_DRAM
        chunk, made, chunks = max(16, work // max(1, len(self.tables.slots))), 0, 0
        hot = max(self.cold, warm * self.hot)
        begun = control.progress()
        while made < moves:
            if (stop := control.should_stop()) is not None:
                return stop
            left = control.iterations_left()
            size = min(chunk, moves - made, moves if left is None else left)
            limit = None if left is None else left + made
            now, then = made / moves, (made + size) / moves
            if limit is not None and limit < moves:
                now, then = made / limit, (made + size) / limit
            spent = (control.progress() - begun) / max(1.0 - begun, 1e-9) if left is None else 0.0
            now, then = max(now, spent), max(then, spent)
            self._anneal(
                size, temperature(hot, self.cold, now), temperature(hot, self.cold, then), np.empty(0)
            )
            control.iterations += size
            control.tick()
            made += size
            chunks += 1
            if chunks % _REBUILD == 0:
                self._rebuild(self._state.group_of)
        return None

    def _anneal(self, moves: int, warm: float, cool: float, deltas_s: NDArray[np.float64]) -> None:
        self._current_s, self.best_s = anneal(
            self.tables, self._state, self.rng, moves, warm, cool, self.risk, self._current_s, self.best_s,
            self.best, deltas_s,
        )  # fmt: skip

    def _rebuild(self, group_of: NDArray[np.int32]) -> None:
        self._state = evaluate_steps(self.tables, group_of)
        steps = self._state.parts.sum(axis=1)
        self._current_s = float(steps.mean() + (self.risk * steps.std() if self.risk else 0.0))
