"""The linear part as a CP-SAT model, in integer ticks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cpsat import new_solver, run_solver
from .linear import LinearPart, linear_part
from .problem import ChannelProblem, Decision, problem_of
from .tables import SLACK

#: Ticks of the heaviest coefficient, and of the lightest cluster's weight. Both are rounded down, so the
#: model never overestimates and its bound stays sound.
_TICKS, _WEIGHT_TICKS = 1_000_000, 1_000
#: Integer steps of a site's memory.
_ROOM_TICKS = 2**40

_Variables = dict[tuple[int, int], Any]


def cpsat(control: Control[Decision]) -> Claim:
    """Minimise the linear part with one worker; offer the answer, claim CP-SAT's bound.

    An iteration budget is spent as deterministic time, 1000 iterations a unit. Options: `step_clusters`.
    """
    from ortools.sat.python import cp_model

    problem = problem_of(control)
    part = linear_part(problem, control.options.get("step_clusters"), control.seed)
    model, x, tick_s = _model(problem, part)
    if (stop := control.should_stop()) is not None:
        return Claim(stop)
    if control.best is not None:
        for (e, g), variable in x.items():
            model.add_hint(variable, bool(control.best.group_of[e] == g))
    iterations = control.iterations_left()
    units = None if iterations is None else iterations / 1000.0
    solver = new_solver(control.seed, seconds=control.seconds_left(), units=units)
    status = run_solver(solver, model, control.interrupt)
    control.iterations += 1 if iterations is None else iterations
    if status == cp_model.INFEASIBLE:
        return Claim(Stop.INFEASIBLE)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        group_of = np.zeros(problem.experts, dtype=np.int32)
        for (e, g), variable in x.items():
            if solver.boolean_value(variable):
                group_of[e] = g
        control.offer(Decision(group_of))
    bound = Bound(max(0.0, solver.best_objective_bound) * tick_s, "CP-SAT on the linear part")
    if status == cp_model.OPTIMAL:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)


def _model(problem: ChannelProblem, part: LinearPart) -> tuple[Any, _Variables, float]:
    """Return the model, x[e, g], and the seconds that one unit of its objective stands for."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    experts, tables = range(problem.experts), problem.tables
    x = {(e, g): model.new_bool_var(f"x_{e}_{g}") for e in experts for g in part.choices}
    for e in experts:
        model.add_exactly_one(x[e, g] for g in part.choices)
    rates = [rate_s for m in part.maxima for groups in m.uses.values() for _, rate_s in groups]
    tick_s = float(max(part.counts.max(), 1.0) * max(rates)) / _TICKS
    unit = float(part.weight.min()) / _WEIGHT_TICKS
    objective = []
    for k, share in enumerate(part.weight):
        tokens = [(int(e), part.counts[e, k] / tick_s) for e in np.flatnonzero(part.counts[:, k])]
        for maximum in part.maxima:
            largest = model.new_int_var(0, _TICKS * problem.experts, f"{maximum.name}_{k}")
            objective.append(int(share / unit + 1e-6) * largest)
            for groups in maximum.uses.values():
                places = [(x[e, g], int(n * rate_s)) for g, rate_s in groups for e, n in tokens]
                model.add(largest >= _sum(places))
    model.minimize(sum(objective))
    share = tables.shard_bytes / (tables.capacity_bytes * SLACK)
    for groups in part.maxima[0].uses.values():
        # Rounded up: what the model takes for feasible is.
        shards = [(x[e, g], math.ceil(share[g] * _ROOM_TICKS)) for g, _ in groups for e in experts]
        model.add(_sum(shards) <= _ROOM_TICKS)
    return model, x, tick_s * unit


def _sum(terms: list[tuple[Any, int]]) -> Any:
    """Weighted sum of variables, of none too."""
    from ortools.sat.python import cp_model

    return cp_model.LinearExpr.weighted_sum([x for x, _ in terms], [n for _, n in terms])
