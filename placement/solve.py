"""One `solve()`: a solver proposes, this measures."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping

from ..common.errors import Contradiction, UsageError, did_you_mean
from .control import Claim, Control
from .problem import SAME_COST, Bound, Cost, DecisionT, Problem, strongest
from .registry import SolverInfo, find
from .result import Budget, Progress, Result, Stop

_NO_COST = Cost(math.inf, math.inf)


def ignore(progress: Progress) -> None:
    """Watch nothing."""


def solve(
    problem: Problem[DecisionT],
    solver: str = "auto",
    *,
    budget: Budget | None = None,
    seed: int = 0,
    start: DecisionT | None = None,
    options: Mapping[str, object] | None = None,
    on_progress: Callable[[Progress], None] = ignore,
    interrupt: threading.Event | None = None,
) -> Result[DecisionT]:
    """Search for a good decision of `problem` and measure what was found.

    Takes the time, checks every offered decision, scores it by `problem.evaluate`, merges the solver's
    bound with `problem.lower_bound()`, and scores the best on `problem.held_out`. Ctrl-C, or setting
    `interrupt`, ends the search and keeps the best so far.

    Raises UsageError for an unknown solver or option or an infeasible `start`; Contradiction where a
    claim does not agree with what was measured.
    """
    info = find(problem.family, solver)
    given = dict(options or {})
    _check_options(info, given)
    if start is not None and (fault := problem.check(start)) is not None:
        raise UsageError(
            f"the start is not feasible: {fault}", fix="start from a feasible decision, or from none"
        )
    control = Control(
        problem,
        budget or Budget(),
        seed,
        start=start,
        options=given,
        on_progress=on_progress,
        interrupt=interrupt or threading.Event(),
    )
    claim = _run(info, control)
    bound = strongest(control.floor, claim.bound)
    cost = control.best_cost or _NO_COST
    stop = _verdict(claim, cost, bound, info.name)
    held_out = problem.held_out
    return Result(
        decision=control.best,
        cost=cost,
        held_out=held_out.evaluate(control.best)
        if held_out is not None and control.best is not None
        else None,
        bound=bound,
        stop=stop,
        solver=info.name,
        seed=seed,
        iterations=control.iterations,
        elapsed_s=control.elapsed_s,
        anytime=tuple(control.anytime),
        problem=problem.fingerprint,
        options=given,
    )


def _run(info: SolverInfo, control: Control[DecisionT]) -> Claim:
    if control.problem.infeasible() is not None:
        return Claim(Stop.INFEASIBLE)
    function = info.function()
    control.restart_clock()
    if control.start is not None and info.uses_start:
        control.offer(control.start)
    try:
        return function(control)
    except KeyboardInterrupt:
        return Claim(Stop.INTERRUPTED)


def _verdict(claim: Claim, cost: Cost, bound: Bound, solver: str) -> Stop:
    """Hold the claim against the measurement; "optimal" only where the bound meets the cost."""
    found = math.isfinite(cost.objective_s)
    if claim.stop is Stop.INFEASIBLE and found:
        raise Contradiction(f"{solver} claims infeasibility, but a decision was found")
    if found and bound.value_s > cost.objective_s * (1.0 + SAME_COST):
        raise Contradiction(
            f"{solver} claims the bound {bound.value_s:.9g} s ({bound.by}), "
            f"but a decision costs {cost.objective_s:.9g} s"
        )
    proven = found and bound.value_s >= cost.objective_s * (1.0 - SAME_COST)
    if claim.stop is Stop.OPTIMAL and not proven:
        raise Contradiction(
            f"{solver} claims optimality, but proves {bound.value_s:.9g} s of {cost.objective_s:.9g} s"
        )
    return Stop.OPTIMAL if proven else claim.stop


def _check_options(info: SolverInfo, options: Mapping[str, object]) -> None:
    for name in options:
        if name not in info.options:
            raise UsageError(
                f"solver {info.name!r} has no option {name!r}",
                fix=did_you_mean(name, info.options) if info.options else "it takes none",
            )
