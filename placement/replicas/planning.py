"""Plan the replicas of every layer, and measure what the published heuristics get."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.errors import NothingFound, ProvenInfeasible
from ..planning import Planned, Search, in_order, run_baselines
from ..registry import find
from ..result import Budget, Result, Stop
from ..solve import solve
from .joint import TOLERANCE
from .layout import aligned
from .nearest import moves_fault
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
    Baselines run first, as they were published, duplicates included; the solver starts from the best of them
    under the rules. `on_layer` is called in this thread as layers end. When `interrupt` is set, running
    searches end with the best they have. Raises ProvenInfeasible where a layer has no placement, NothingFound
    where the solver finds none, and whatever `solve` raises.
    """
    search, stop = search or Search(), interrupt or threading.Event()
    for problem in problems:
        if (fault := problem.infeasible()) is not None:
            raise ProvenInfeasible(
                f"layer {problem.layer} has no placement: {fault}",
                fix=_remedy(fault, problem, problems),
            )
    if problems and search.solver not in _MODELLED:
        solve(problems[0], search.solver, budget=Budget(time_s=None, iterations=1), seed=search.seed)
    # Short searches of one layer are faster one after the other than handed to threads.
    jobs = jobs if any(not p.mean_decides for p in problems) else 1
    numbers = tuple(range(len(problems)))
    published = [baselines(problem, search.seed, stop) for problem in problems]
    starts = [
        _best_allowed(problem, known, search, stop)
        for problem, known in zip(problems, published, strict=True)
    ]
    begun = time.perf_counter()
    plans = []
    results = in_order(lambda k: _solve(problems[k], search, starts[k], stop), numbers, jobs)
    for problem, known, result in zip(problems, published, results, strict=True):
        plans.append(LayerPlan(result, known, problem))
        if on_layer is not None:
            on_layer(plans[-1])
    return Plans(plans, time.perf_counter() - begun)


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


def _best_allowed(
    problem: ReplicaProblem, published: Mapping[str, Result[Decision]], search: Search, stop: threading.Event
) -> Decision | None:
    """Return the best answer of the published heuristics under the rules, by the objective; None without any.

    A current placement that is good enough stays; from another, as few slots move as an answer needs.
    """
    if not find(problem.family, search.solver).uses_start:
        return None
    now = Decision(problem.current) if problem.current is not None else None
    if now is not None and problem.check(now) is None:
        good_enough_s = problem.lower_bound().value_s * (1.0 + TOLERANCE)
        if problem.evaluate(now).objective_s <= good_enough_s:
            return now
    free = problem.settings.duplicates and problem.settings.max_moves is None
    allowed = published if free else run_baselines(problem, search.seed, stop)
    found = [result for result in allowed.values() if result.decision is not None]
    best = min(found, key=lambda result: result.cost.rank, default=None)
    if best is None or best.decision is None or problem.current is None:
        return best.decision if best is not None else None
    return Decision(aligned(problem, best.decision.expert_of))


def _solve(
    problem: ReplicaProblem, search: Search, start: Decision | None, stop: threading.Event
) -> Result[Decision]:
    result = solve(
        problem, search.solver, budget=search.budget, seed=search.seed, start=start, options=search.options,
        interrupt=stop,
    )  # fmt: skip
    if result.decision is None and stop.is_set():
        result = dataclasses.replace(
            solve(problem, "auto", budget=Budget(time_s=None, iterations=1), seed=search.seed),
            stop=Stop.INTERRUPTED,
        )
    if result.decision is None:
        where, fix = _reason(problem, search.solver)
        raise NothingFound(
            f"solver {search.solver} found no placement of layer {problem.layer} ({result.stop})",
            where=where,
            fix=fix,
        )
    return result


def _remedy(fault: str, problem: ReplicaProblem, problems: Sequence[ReplicaProblem]) -> str:
    """Return what gives a problem without a placement one, in all layers."""
    if fault == moves_fault(problem):
        return f"max_moves {max(p.nearest.enough for p in problems)} suffices in every layer"
    return "change the number of slots, or allow two replicas of an expert on a rank"


def _reason(problem: ReplicaProblem, solver: str) -> tuple[str, str]:
    """Return why a solver may have found nothing, and what finds something."""
    limit, near = problem.settings.max_moves, problem.nearest
    if limit is not None and near.enough > limit:
        where = (
            f"at least {near.at_least} slots must move to keep the rules, {near.enough} are known to "
            f"suffice, allowed are {limit}"
        )
        return where, f"max_moves {near.enough} suffices"
    if solver in (*PUBLISHED, "flash_like", "replicate_everywhere"):
        return (
            "a published heuristic has none where its answer breaks a rule",
            "take the solver auto: there is a placement",
        )
    return "within the budget", "raise the budget" + ("" if solver == "auto" else ", or take the solver auto")
