"""Rounds of the doubtful steps as a CP-SAT model, with its bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from ..search.cpsat import new_solver, run_solver
from .doubtful import Doubtful, doubtful
from .problem import CoreProblem, Decision, problem_of

_Variables = dict[tuple[int, int], Any]


def cpsat(control: Control[Decision]) -> Claim:
    """Minimise the rounds of the doubtful steps with one worker; offer the answer, claim CP-SAT's bound.

    An iteration budget is spent as deterministic time, 1000 iterations a unit. Options: `steps`.
    """
    from ortools.sat.python import cp_model

    problem = problem_of(control)
    part = doubtful(control)
    model, x = _model(problem, part)
    if (stop := control.should_stop()) is not None:
        return Claim(stop)
    for (e, p), variable in x.items():
        model.add_hint(variable, bool(part.known[e] == p))
    iterations = control.iterations_left()
    units = None if iterations is None else iterations / 1000.0
    solver = new_solver(control.seed, seconds=control.seconds_left(), units=units)
    status = run_solver(solver, model, control.interrupt)
    control.iterations += 1 if iterations is None else iterations
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        place_of = np.zeros(problem.experts, dtype=np.int32)
        for (e, p), variable in x.items():
            if solver.boolean_value(variable):
                place_of[e] = p
        control.offer(Decision(place_of))
    # Rounds are whole: a bound just above a whole number means the next one.
    value = max(float(part.least.sum()), float(np.ceil(solver.best_objective_bound - 1e-6)))
    bound = part.bound(value, problem.layout.round_s, "CP-SAT on the doubtful steps")
    if status == cp_model.OPTIMAL:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)


def _model(problem: CoreProblem, part: Doubtful) -> tuple[Any, _Variables]:
    from ortools.sat.python import cp_model

    layout, model = problem.layout, cp_model.CpModel()
    allowed = part.allowed(layout.places)
    x = {(e, p): model.new_bool_var(f"x_{e}_{p}") for e, places in allowed.items() for p in places}
    on: dict[int, list[int]] = {p: [] for p in range(layout.places)}
    for e, p in x:
        on[p].append(e)
    for e, places in allowed.items():
        model.add_exactly_one(x[e, p] for p in places)
    for p, experts in on.items():
        model.add(cp_model.LinearExpr.sum([x[e, p] for e in experts]) <= layout.room)
    rounds = []
    for s, least in enumerate(part.least):
        most = int(-(-part.jobs[:, s].sum() // layout.servers))
        rounds.append(model.new_int_var(int(least), max(int(least), most), f"rounds_{s}"))
        for p, experts in on.items():
            busy = [e for e in experts if part.jobs[e, s]]
            load = cp_model.LinearExpr.weighted_sum([x[e, p] for e in busy], part.jobs[busy, s].tolist())
            model.add(load <= layout.servers * rounds[s])
    model.minimize(cp_model.LinearExpr.sum(rounds))
    return model, x
