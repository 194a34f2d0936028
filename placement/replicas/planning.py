"""Plan the replicas of every layer, and measure what the published heuristics get."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.errors import NothingFound, ProvenInfeasible
from ..planning import Planned, Search, in_order, run_baselines
from ..result import Budget, Result, Stop
from ..solve import solve
from .problem import Decision, ReplicaProblem

if TYPE_CHECKING:
    from ..problem import Cost

#: Solvers that are published without a rule against two replicas of an expert on a rank.
PUBLISHED = ("linear", "current", "round_robin", "eplb", "snake")
_MODELLED = ("ilp", "cpsat")


@dataclass(frozen=True, eq=False)
class LayerPlan(Planned[Decision]):
    """What one layer's solve gave, with the question."""

    problem: ReplicaProblem


@dataclass(frozen=True, eq=False)
class Plans:
    """Planned layers, and the seconds that their solver took (baselines aside)."""

    layers: list[LayerPlan]
    elapsed_s: float


def plan_replicas(
    problems: Sequence[ReplicaProblem],
    *,
    search: Search | None = None,
    jobs: int = 1,
    on_layer: Callable[[LayerPlan], None] | None = None,
    interrupt: threading.Event | None = None,
) -> Plans:
    """Solve every layer's problem; results in their order.

    Layers are independent and run `jobs` at a time in threads. Kernels are loaded before the clock starts.
    Baselines run as they were published, duplicates included. `on_layer` is called in this thread as layers
    end. When `interrupt` is set, running searches end with the best they have. Raises ProvenInfeasible where
    a layer has no placement, NothingFound where the solver finds none, and whatever `solve` raises.
    """
    search, stop = search or Search(), interrupt or threading.Event()
    for problem in problems:
        if (fault := problem.infeasible()) is not None:
            raise ProvenInfeasible(
                f"layer {problem.layer} has no placement: {fault}",
                fix="change the number of slots, or allow two replicas of an expert on a rank",
            )
    if problems and search.solver not in _MODELLED:
        solve(problems[0], search.solver, budget=Budget(time_s=None, iterations=1), seed=search.seed)
    # Short searches of one layer are faster one after the other than handed to threads.
    jobs = jobs if any(not p.mean_decides for p in problems) else 1
    begun = time.perf_counter()
    results = list(in_order(lambda k: _solve(problems[k], search, stop), tuple(range(len(problems))), jobs))
    elapsed_s = time.perf_counter() - begun
    plans = []
    for problem, result in zip(problems, results, strict=True):
        plans.append(LayerPlan(result, baselines(problem, search.seed, stop), problem))
        if on_layer is not None:
            on_layer(plans[-1])
    return Plans(plans, elapsed_s)


def baseline(problem: ReplicaProblem, name: str, seed: int = 0) -> Result[Decision]:
    """Run a published heuristic as it is: two replicas of an expert may share a rank, any slot may move."""
    return baselines(problem, seed, names=(name,))[name]


def baselines(
    problem: ReplicaProblem,
    seed: int = 0,
    interrupt: threading.Event | None = None,
    names: Iterable[str] | None = None,
) -> dict[str, Result[Decision]]:
    """Run the published heuristics of a problem, or those of `names`, as `baseline` does."""
    settings = dataclasses.replace(problem.settings, duplicates=True, max_moves=None)
    free = dataclasses.replace(problem, settings=settings, baselines=())
    return run_baselines(free, seed, interrupt, problem.baselines if names is None else names)


def held_out_cost(problem: ReplicaProblem, decision: Decision) -> Cost | None:
    """Score a decision on the steps that no solver saw; None where nothing is held out."""
    return problem.held_out.evaluate(decision) if problem.held_out is not None else None


def _solve(problem: ReplicaProblem, search: Search, stop: threading.Event) -> Result[Decision]:
    result = solve(
        problem, search.solver, budget=search.budget, seed=search.seed, options=search.options, interrupt=stop
    )
    if result.decision is None and stop.is_set():
        result = dataclasses.replace(
            solve(problem, "auto", budget=Budget(time_s=None, iterations=1), seed=search.seed),
            stop=Stop.INTERRUPTED,
        )
    if result.decision is None:
        raise NothingFound(
            f"solver {search.solver} found no placement of layer {problem.layer} ({result.stop})",
            where="a published heuristic has none where its answer breaks a rule"
            if search.solver in (*PUBLISHED, "flash_like", "replicate_everywhere")
            else "within the budget",
            fix="raise the budget, relax the rules, or take the solver auto",
        )
    return result
