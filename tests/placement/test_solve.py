"""solve() measures, merges bounds, refuses contradictions; the registry finds or says what there is."""

from __future__ import annotations

import itertools
import math
import threading

import numpy as np
import pytest

from moeplan.common.errors import Contradiction, MissingLibrary, UsageError
from moeplan.placement import Bound, Budget, Stop, register, solve, solvers_of
from moeplan.placement.channels.problem import Decision
from moeplan.placement.control import Claim
from moeplan.placement.problem import Cost
from moeplan.placement.registry import SolverInfo, unregister

from .channels.instances import grid, problem, random_tokens


@pytest.fixture
def posed():
    unseen = problem(random_tokens(2, 3, 6, 6, 2), grid(2, 2), 6)
    return problem(random_tokens(1, 3, 6, 6, 2), grid(2, 2), 6, held_out=unseen)


@pytest.fixture
def fake():
    """Register a solver for one test."""
    names = []

    def add(function, **traits):
        register(SolverInfo("channels", "fake", lambda: function, "for a test", **traits))
        names.append("fake")
        return "fake"

    yield add
    for name in names:
        unregister("channels", name)


def placed(*groups):
    return Decision(np.array(groups))


def test_measures_cost_held_out_and_bound_itself(posed, fake):
    decision = placed(0, 1, 2, 3, 0, 1)

    def one(control):
        control.offer(decision)
        return Claim(Stop.CONVERGED)

    result = solve(posed, fake(one))
    assert result.cost == posed.evaluate(decision)
    assert result.held_out == posed.held_out.evaluate(decision)
    assert result.bound == posed.lower_bound()
    assert result.gap == pytest.approx(1 - posed.lower_bound().value_s / result.cost.objective_s)
    assert result.problem == posed.fingerprint


def test_keeps_the_stronger_bound(posed, fake):
    decision = placed(0, 1, 2, 3, 0, 1)
    middle = (posed.lower_bound().value_s + posed.evaluate(decision).objective_s) / 2

    def one(control):
        control.offer(decision)
        return Claim(Stop.CONVERGED, Bound(middle, "because"))

    assert solve(posed, fake(one)).bound == Bound(middle, "because")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (Claim(Stop.OPTIMAL), "claims optimality"),
        (Claim(Stop.CONVERGED, Bound(1.0, "hubris")), "claims the bound 1 s"),
        (Claim(Stop.INFEASIBLE), "claims infeasibility"),
    ],
)
def test_refuses_contradictions(posed, fake, claim, message):
    def liar(control):
        control.offer(placed(0, 0, 0, 0, 0, 0))
        return claim

    with pytest.raises(Contradiction, match=message):
        solve(posed, fake(liar))


def test_refuses_an_infeasible_offer(posed, fake):
    def careless(control):
        control.offer(placed(0, 1, 2, 3, 0, 99))
        return Claim(Stop.CONVERGED)

    with pytest.raises(Contradiction, match="expert 5 is on group 99"):
        solve(posed, fake(careless))


def test_a_bound_that_meets_the_cost_is_optimal_whatever_is_claimed(posed, fake):
    decision = placed(0, 1, 2, 3, 0, 1)
    cost = posed.evaluate(decision).objective_s

    def modest(control):
        control.offer(decision)
        return Claim(Stop.CONVERGED, Bound(cost, "exact"))

    assert solve(posed, fake(modest)).stop is Stop.OPTIMAL


def test_of_equal_objectives_the_lower_tie_is_kept(posed, fake, monkeypatch):
    first, second, third = placed(0, 1, 2, 3, 0, 1), placed(1, 1, 2, 3, 0, 1), placed(2, 1, 2, 3, 0, 1)
    ties = {first: 3.0, second: 1.0, third: 2.0}
    monkeypatch.setattr(type(posed), "evaluate", lambda _, decision: Cost(1.0, 1.0, tie=ties[decision]))

    def three(control):
        for decision in (first, second, third):
            control.offer(decision)
        return Claim(Stop.CONVERGED)

    result = solve(posed, fake(three))
    assert result.decision == second
    assert [point.best_s for point in result.anytime] == [1.0]


def test_ctrl_c_keeps_the_best_so_far(posed, fake):
    def interrupted(control):
        control.offer(placed(0, 1, 2, 3, 0, 1))
        raise KeyboardInterrupt

    result = solve(posed, fake(interrupted))
    assert result.stop is Stop.INTERRUPTED
    assert result.decision == placed(0, 1, 2, 3, 0, 1)


def test_nothing_found_is_an_empty_result(posed, fake):
    result = solve(posed, fake(lambda control: Claim(Stop.TIME_LIMIT)))
    assert result.decision is None
    assert result.held_out is None
    assert math.isinf(result.cost.objective_s)
    assert result.gap == 1.0


def test_progress_is_reported(posed):
    seen = []
    solve(posed, "annealing", budget=Budget(time_s=None, iterations=2000), on_progress=seen.append)
    assert seen[-1].iterations == 2000
    assert all(a.best_s >= b.best_s for a, b in itertools.pairwise(seen))


def test_another_thread_may_interrupt(posed):
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    result = solve(posed, "annealing", budget=Budget(time_s=60.0), interrupt=stop)
    assert result.stop is Stop.INTERRUPTED
    assert result.decision is not None


def test_a_gap_may_end_the_search(posed):
    result = solve(posed, "annealing", budget=Budget(time_s=60.0, gap=0.99))
    assert result.stop is Stop.GAP_REACHED


def test_bad_calls_say_what_is_allowed(posed):
    with pytest.raises(UsageError, match="did you mean 'annealing'"):
        solve(posed, "anealing")
    with pytest.raises(UsageError, match="step_clusters"):
        solve(posed, "ilp", options={"step_cluster": 3})
    with pytest.raises(UsageError, match="it takes none"):
        solve(posed, "lpt", options={"x": 1})
    with pytest.raises(UsageError, match="not feasible"):
        solve(posed, "annealing", start=placed(0, 1))


@pytest.mark.parametrize(
    "limits",
    [
        {"time_s": 0.0},
        {"time_s": -1.0},
        {"time_s": math.inf},
        {"time_s": math.nan},
        {"iterations": 0},
        {"time_s": None},
        {"gap": 1.0},
        {"gap": -0.1},
    ],
)
def test_budgets_must_be_limits(limits):
    with pytest.raises(UsageError):
        Budget(**limits)


def test_names_are_registered_once():
    info = solvers_of("channels")["lpt"]
    with pytest.raises(UsageError, match="already has a solver 'lpt'"):
        register(info)


@pytest.mark.parametrize("load", ["no_such_module:solver", ".channels.auto:no_such_solver"])
def test_a_solver_that_cannot_be_loaded_is_named(posed, load):
    register(SolverInfo("channels", "broken", load, "for a test"))
    try:
        with pytest.raises(MissingLibrary, match="solver 'broken' of channels cannot be loaded"):
            solve(posed, "broken")
    finally:
        unregister("channels", "broken")
