"""The contract of a solver, as one function that third parties run over their own.

Used on every registered solver by tests/placement/test_contract.py:

    from moeplan.placement.testing import check_solver
    check_solver("channels", "my_solver", problem, infeasible_problem)
"""

from __future__ import annotations

import dataclasses
import math
import threading

from .problem import SAME_COST, DecisionT, Problem
from .registry import find
from .result import Budget, Result, Stop
from .solve import solve

_BUDGET = Budget(time_s=None, iterations=400)
#: A solver that has not ended by then does not count its iterations, or does not ask whether to stop.
_PATIENCE_S = 120.0


def check_solver(
    family: str, name: str, problem: Problem[DecisionT], infeasible: Problem[DecisionT] | None = None
) -> None:
    """Run every clause of the contract. Raises AssertionError that names the broken clause.

    `problem` has a feasible decision that the solver finds within 400 iterations; `infeasible` has none.
    """
    info = find(family, name)
    result = _patiently(problem, name, _BUDGET)
    _check_result(problem, result)
    if info.by_iterations:
        _check_repeatable(problem, result)
    if info.uses_start:
        _check_start(problem, result)
    _check_one_iteration(problem, name)
    _check_interruption(problem, name)
    if infeasible is not None:
        refused = solve(infeasible, name, budget=_BUDGET)
        assert refused.stop is Stop.INFEASIBLE, f"{name}: an infeasible instance must be said to be so"
        assert refused.decision is None, f"{name}: a decision for an infeasible instance"


def _patiently(problem: Problem[DecisionT], name: str, budget: Budget) -> Result[DecisionT]:
    late = threading.Event()
    timer = threading.Timer(_PATIENCE_S, late.set)
    timer.start()
    try:
        result = solve(problem, name, budget=budget, seed=7, interrupt=late)
    finally:
        timer.cancel()
    assert not late.is_set(), f"{name}: did not end by itself; add what it does to control.iterations"
    return result


def _check_result(problem: Problem[DecisionT], result: Result[DecisionT]) -> None:
    name = result.solver
    assert result.decision is not None, f"{name}: no decision within {_BUDGET.iterations} iterations"
    assert problem.check(result.decision) is None, f"{name}: the decision is not feasible"
    again = problem.evaluate(result.decision)
    assert again == result.cost, f"{name}: the cost is not what the problem measures"
    assert math.isclose(sum(again.parts.values()), again.total_s, rel_tol=SAME_COST), (
        f"{name}: parts do not add up"
    )
    assert result.bound.value_s <= again.objective_s * (1.0 + SAME_COST), f"{name}: cost below the bound"
    assert 0.0 <= result.gap < 1.0, f"{name}: gap {result.gap}"
    assert result.elapsed_s >= 0.0, f"{name}: time runs backwards"
    times = [point.elapsed_s for point in result.anytime]
    assert times == sorted(times), f"{name}: the anytime curve runs backwards in time"
    curve = [point.best_s for point in result.anytime]
    assert curve == sorted(curve, reverse=True), f"{name}: the anytime curve rises"
    assert curve[-1] == again.objective_s, f"{name}: the anytime curve does not end at the cost"
    if result.stop is Stop.OPTIMAL:
        assert result.gap <= 2 * SAME_COST, f"{name}: optimal with a gap of {result.gap}"


def _check_repeatable(problem: Problem[DecisionT], result: Result[DecisionT]) -> None:
    again = solve(problem, result.solver, budget=_BUDGET, seed=7)
    assert again.decision == result.decision, f"{result.solver}: same seed, another decision"
    assert _without_time(again) == _without_time(result), f"{result.solver}: same seed, another result"


def _without_time(result: Result[DecisionT]) -> Result[DecisionT]:
    curve = tuple(dataclasses.replace(point, elapsed_s=0.0) for point in result.anytime)
    return dataclasses.replace(result, elapsed_s=0.0, anytime=curve)


def _check_start(problem: Problem[DecisionT], result: Result[DecisionT]) -> None:
    begun = solve(problem, result.solver, budget=_BUDGET, seed=8, start=result.decision)
    limit = result.cost.objective_s * (1.0 + SAME_COST)
    assert begun.cost.objective_s <= limit, f"{result.solver}: worse than the start it was given"
    assert begun.anytime[0].best_s == result.cost.objective_s, f"{result.solver}: the start was not looked at"


def _check_one_iteration(problem: Problem[DecisionT], name: str) -> None:
    result = _patiently(problem, name, Budget(time_s=None, iterations=1))
    if result.decision is not None:
        _check_result(problem, result)


def _check_interruption(problem: Problem[DecisionT], name: str) -> None:
    stop = threading.Event()
    stop.set()
    result = solve(problem, name, budget=Budget(time_s=None, iterations=10**9), interrupt=stop)
    if result.decision is not None:
        _check_result(problem, result)
    if find(problem.family, name).anytime:
        allowed = (Stop.INTERRUPTED, Stop.OPTIMAL)
        assert result.stop in allowed, f"{name}: interrupted, but stopped by {result.stop}"
