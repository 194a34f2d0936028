"""Plan layer after layer: the published heuristics first, then the solver from the best of them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..common.errors import NothingFound
from .problem import DecisionT, Problem
from .result import Budget, Result, Stop
from .solve import solve

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..workload.load import Load
    from ..workload.model import MoEModel

#: A published heuristic ends by itself. No clock ends it, so that a plan is the same on every machine.
BASELINE_BUDGET = Budget(time_s=None, iterations=10**12)

#: Ends the name of a baseline that ran in the layout of its paper where the question allows a better one.
ROWS = "_rows"

DoneT = TypeVar("DoneT")


@dataclass(frozen=True, eq=False)
class Planned(Generic[DecisionT]):
    """What one layer's solve gave, and what every baseline gets on the same steps."""

    result: Result[DecisionT]
    baselines: Mapping[str, Result[DecisionT]]

    @property
    def decision(self) -> DecisionT:
        """The placement; there always is one."""
        assert self.result.decision is not None
        return self.result.decision


@dataclass(frozen=True)
class Search:
    """How every layer is searched."""

    solver: str = "auto"
    budget: Budget = Budget()  # noqa: RUF009 - frozen, hence no shared state
    seed: int = 0
    options: Mapping[str, object] | None = None


@dataclass(frozen=True, eq=False)
class LayerTask:
    """What it takes to plan a layer. A family's task is called with the absolute id and returns the plan.

    Without `interrupt` it can go to another process.
    """

    model: MoEModel
    platform: Platform
    profile: Load
    held_out: Load | None
    search: Search
    settings: Any
    interrupt: threading.Event | None = None


def search_layer(
    problem: Problem[DecisionT], search: Search, interrupt: threading.Event, where: str
) -> Planned[DecisionT]:
    """Run the baselines of `problem`, then the solver from the best of them.

    `where` names the question in errors. When `interrupt` is set, the search ends with the best it has, at
    least the best baseline. Raises NothingFound where nothing is feasible within the budget, and whatever
    `solve` raises.
    """
    baselines = run_baselines(problem, search.seed, interrupt)
    best = _best(baselines.values())
    result = solve(
        problem,
        search.solver,
        budget=search.budget,
        seed=search.seed,
        start=best.decision if best else None,
        options=search.options,
        interrupt=interrupt,
    )
    if result.decision is None and best is not None and interrupt.is_set():
        result = dataclasses.replace(best, stop=Stop.INTERRUPTED)
    if result.decision is None:
        raise NothingFound(
            f"no feasible placement of {where} was found ({result.stop})",
            where=problem.infeasible() or f"solver {search.solver}",
            fix="raise the budget, or take another solver",
        )
    return Planned(result, baselines)


def run_baselines(
    problem: Problem[DecisionT],
    seed: int,
    interrupt: threading.Event | None = None,
    names: Iterable[str] | None = None,
) -> dict[str, Result[DecisionT]]:
    """Return what the published heuristics of a problem (or those of `names`) get, by name.

    When `interrupt` is set, those that search stop at what they have constructed.
    """
    return {
        name: solve(problem, name, budget=BASELINE_BUDGET, seed=seed, interrupt=interrupt)
        for name in (problem.baselines if names is None else names)
    }


def best_baseline(problem: Problem[DecisionT], seed: int) -> DecisionT | None:
    """Return the best decision that a published heuristic finds; None where none finds any."""
    best = _best(run_baselines(problem, seed).values())
    return best.decision if best else None


def _best(results: Iterable[Result[DecisionT]]) -> Result[DecisionT] | None:
    found = [result for result in results if result.decision is not None]
    return min(found, key=lambda result: result.cost.rank, default=None)


def each_layer(
    task: Callable[[int], DoneT], layers: tuple[int, ...], jobs: int, on_layer: Callable[[DoneT], None] | None
) -> list[DoneT]:
    """Plan `layers`, `jobs` at a time in threads; call `on_layer` in this thread as they end, in order."""
    plans = []
    for done in in_order(task, layers, jobs):
        plans.append(done)
        if on_layer is not None:
            on_layer(done)
    return plans


def in_order(plan: Callable[[int], DoneT], layers: tuple[int, ...], jobs: int) -> Iterator[DoneT]:
    """Yield `plan(layer)` in the order of `layers`, `jobs` at a time in threads: kernels release the GIL."""
    if jobs == 1:
        yield from map(plan, layers)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=jobs, backend="threading", return_as="generator")(
        delayed(plan)(layer) for layer in layers
    )
