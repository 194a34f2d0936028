"""Counts and packing as a CP-SAT model, in integer ticks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cpsat import new_solver, run_solver
from .joint import joint_search
from .linear import LinearModel, decision_of, linear_model
from .problem import Decision, problem_of

#: Ticks of the bound that is known beforehand. Work is rounded down to ticks, so that the model never
#: overestimates and its bound stays sound.
_TICKS = 1_000_000


def cpsat(control: Control[Decision]) -> Claim:
    """Begin with the joint search; minimise the model with one worker, offer the answer, claim the bound.

    An iteration budget is spent as deterministic time, 1000 iterations a unit. Raises UsageError where the
    model is too large.
    """
    from ortools.sat.python import cp_model

    problem = problem_of(control)
    linear = linear_model(problem)
    joint_search(control)
    if (stop := control.should_stop()) is not None and control.best is not None:
        return Claim(stop)
    tick_s = control.floor.value_s / _TICKS
    model, z, base_s = _model(linear, tick_s)
    if control.best is not None:
        has = problem.has(control.best)
        for (e, g, c), variable in z.items():
            model.add_hint(variable, int(has[e, g]) if has[e].sum() == c else 0)
    iterations = control.iterations_left()
    units = None if iterations is None else iterations / 1000.0
    solver = new_solver(control.seed, seconds=control.seconds_left(), units=units)
    status = run_solver(solver, model, control.interrupt)
    control.iterations += 1 if iterations is None else iterations
    if status == cp_model.INFEASIBLE:
        return Claim(Stop.INFEASIBLE) if control.best is None else Claim(Stop.CONVERGED)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        held = np.zeros((linear.experts, len(linear.room)), dtype=np.int64)
        for (e, g, _), variable in z.items():
            held[e, g] += solver.value(variable)
        control.offer(decision_of(problem, held))
    bound = None
    if linear.proves:
        value_s = max(0.0, solver.best_objective_bound) * tick_s / linear.steps + base_s
        bound = Bound(value_s * (1.0 - 1e-12), "CP-SAT")
    if status == cp_model.OPTIMAL:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)


def _model(linear: LinearModel, tick_s: float) -> tuple[Any, dict[tuple[int, int, int], Any], float]:
    """Return the model, z[e, g, c], and the constant part of the objective in seconds.

    The constraints are those of the integer program; see `ilp`.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    experts, ranks, counts = range(linear.experts), range(len(linear.room)), range(1, linear.counts + 1)
    y = {(e, c): model.new_bool_var(f"y_{e}_{c}") for e in experts for c in counts}
    z = {
        (e, g, c): model.new_int_var(0, min(linear.most, c), f"z_{e}_{g}_{c}")
        for e in experts
        for g in ranks
        for c in counts
    }
    ticks = np.floor(linear.work / min(linear.speed) / tick_s)
    top = int(ticks.max(axis=(0, 1)).max(axis=1).sum()) + 1
    longest = [model.new_int_var(0, top * max(linear.room), f"t_{k}") for k in range(linear.steps)]
    for e in experts:
        model.add_exactly_one(y[e, c] for c in counts)
        for c in counts:
            model.add(sum(z[e, g, c] for g in ranks) == c * y[e, c])
        for g in ranks:
            model.add(sum(z[e, g, c] for c in counts) <= linear.most)
    for g in ranks:
        model.add(sum(z[e, g, c] for e in experts for c in counts) == linear.room[g])
        for k in range(linear.steps):
            for work in np.floor(linear.work[:, k] / linear.speed[g] / tick_s).astype(np.int64):
                model.add(
                    longest[k] >= sum(int(work[e, c - 1]) * z[e, g, c] for e in experts for c in counts)
                )
    _homes(model, linear, z)
    _limit(model, linear, z)
    model.minimize(sum(longest))
    return model, z, float(linear.base.mean())


def _homes(model: Any, linear: LinearModel, z: dict[tuple[int, int, int], Any]) -> None:
    if not linear.groups:
        return
    size = linear.experts // linear.groups
    home = {
        (group, node): model.new_bool_var(f"u_{group}_{node}")
        for group in range(linear.groups)
        for node in range(linear.nodes)
    }
    for group in range(linear.groups):
        model.add_exactly_one(home[group, node] for node in range(linear.nodes))
    for node in range(linear.nodes):
        model.add(sum(home[group, node] for group in range(linear.groups)) == linear.groups // linear.nodes)
    for (e, g, _), variable in z.items():
        model.add(variable <= linear.most * home[e // size, linear.node_of[g]])


def _limit(model: Any, linear: LinearModel, z: dict[tuple[int, int, int], Any]) -> None:
    if linear.before is None:
        return
    moved = []
    for e in range(linear.experts):
        for g in range(len(linear.room)):
            held = sum(z[e, g, c] for c in range(1, linear.counts + 1))
            stays = int(linear.before[e, g])
            if stays == 0:
                moved.append(held)
            elif linear.most > stays:
                extra = model.new_int_var(0, linear.most, f"m_{e}_{g}")
                model.add(extra >= held - stays)
                moved.append(extra)
    model.add(sum(moved) <= linear.moves)
