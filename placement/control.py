"""What `solve()` gives a solver to work under: its budget, its start, and the one way to offer decisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic

from ..common.errors import Contradiction
from .problem import SAME_COST, Bound, Cost, DecisionT, Problem
from .result import Budget, Progress, Stop


@dataclass(frozen=True)
class Claim:
    """What a solver says when it ends: why it stopped and what it can prove. Costs are not its to claim."""

    stop: Stop
    bound: Bound | None = None


class Control(Generic[DecisionT]):
    """One solve under way.

    A solver offers every decision worth keeping; each is checked and scored by the problem itself,
    and the best stays. It adds what it does to `iterations`, and between pieces of work asks
    `should_stop()`.
    """

    def __init__(
        self,
        problem: Problem[DecisionT],
        budget: Budget,
        seed: int,
        *,
        start: DecisionT | None,
        options: Mapping[str, object],
        on_progress: Callable[[Progress], None],
        interrupt: threading.Event,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.seed = seed
        self.start = start
        self.options = options
        self.interrupt = interrupt
        self.best: DecisionT | None = None
        self.best_cost: Cost | None = None
        self.iterations = 0
        self.anytime: list[Progress] = []
        self.floor = problem.lower_bound()
        self._on_progress = on_progress
        self._begun = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was (re)started."""
        return time.perf_counter() - self._begun

    def restart_clock(self) -> None:
        """Forget the time spent so far: kernels that are compiled at first use call this once."""
        self._begun = time.perf_counter()
        # What is known already is known from the beginning, so that the curve runs forward in time.
        self.anytime = [replace(point, elapsed_s=0.0) for point in self.anytime]

    def offer(self, decision: DecisionT) -> Cost:
        """Check and score a decision; keep it if it is the best so far; return its cost."""
        fault = self.problem.check(decision)
        if fault is not None:
            raise Contradiction(f"a solver offered an infeasible decision: {fault}")
        cost = self.problem.evaluate(decision)
        if cost.objective_s < self.floor.value_s * (1.0 - SAME_COST):
            raise Contradiction(
                f"a decision costs {cost.objective_s:.9g} s, below the bound {self.floor.value_s:.9g} s "
                f"({self.floor.by})"
            )
        if self.best_cost is None or cost.rank < self.best_cost.rank:
            if self.best_cost is None or cost.objective_s < self.best_cost.objective_s:
                self.anytime.append(Progress(self.iterations, self.elapsed_s, cost.objective_s))
            self.best, self.best_cost = decision, cost
        self.tick()
        return cost

    def tick(self) -> None:
        """Tell whoever watches that work goes on."""
        if self.best_cost is not None:
            self._on_progress(Progress(self.iterations, self.elapsed_s, self.best_cost.objective_s))

    def progress(self) -> float:
        """Share of the budget that is spent, 0.0 to 1.0, by the limit that is nearer."""
        spent = []
        if self.budget.iterations is not None:
            spent.append(self.iterations / self.budget.iterations)
        if self.budget.time_s is not None:
            spent.append(self.elapsed_s / self.budget.time_s)
        return min(1.0, max(spent))

    def iterations_left(self) -> int | None:
        """Iterations that may still be spent; None where they are not limited."""
        return None if self.budget.iterations is None else max(0, self.budget.iterations - self.iterations)

    def seconds_left(self) -> float | None:
        """Seconds that may still be spent; None where time is not limited."""
        return None if self.budget.time_s is None else max(0.0, self.budget.time_s - self.elapsed_s)

    def should_stop(self) -> Stop | None:
        """Return the reason to stop now, or None to go on."""
        if self.interrupt.is_set():
            return Stop.INTERRUPTED
        if self.best_cost is not None and self._gap() <= max(self.budget.gap, SAME_COST):
            return Stop.GAP_REACHED
        if self.budget.iterations is not None and self.iterations >= self.budget.iterations:
            return Stop.ITERATION_LIMIT
        if self.budget.time_s is not None and self.elapsed_s >= self.budget.time_s:
            return Stop.TIME_LIMIT
        return None

    def _gap(self) -> float:
        objective_s = self.best_cost.objective_s if self.best_cost else 0.0
        return 0.0 if objective_s <= 0.0 else 1.0 - self.floor.value_s / objective_s
