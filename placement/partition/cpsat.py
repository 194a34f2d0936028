"""The partition as a CP-SAT model, in integer ticks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cpsat import new_solver, run_solver
from .classes import Classes, classes_of
from .problem import Decision, PartitionProblem, problem_of
from .published import sieve

#: Ticks of the best time known beforehand. Times are rounded down, so that the bound stays sound. With 2^40
#: ticks CP-SAT 9.15 has claimed bounds above the optimum.
_TICKS = 1 << 30
_LOOK_S = 0.05


def cpsat(control: Control[Decision]) -> Claim:
    """Minimise T_total over how many experts of each class are on the GPU, with one worker, from Sieve's.

    An iteration budget is spent as deterministic time, 1000 iterations a unit.
    """
    from ortools.sat.python import cp_model

    problem = problem_of(control)
    classes = classes_of(problem)
    sieve(control)
    control.iterations = 0
    if (stop := control.should_stop()) is Stop.INTERRUPTED:
        return Claim(stop)
    assert control.best is not None
    assert control.best_cost is not None
    model, x, tick_s = _model(problem, classes, control.floor.value_s, control.best_cost.objective_s)
    for variable, k in zip(x, classes.chosen(control.best), strict=True):
        model.add_hint(variable, int(k))
    iterations = control.iterations_left()
    units = None if iterations is None else iterations / 1000.0
    solver = new_solver(control.seed, seconds=control.seconds_left(), units=units)
    status = run_solver(solver, model, control.interrupt)
    control.iterations += 1 if iterations is None else iterations
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        chosen = np.array([solver.value(variable) for variable in x], dtype=np.int64)
        control.offer(classes.decision(chosen))
    bound = Bound(max(0.0, solver.best_objective_bound) * tick_s, "CP-SAT")
    if status == cp_model.OPTIMAL:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)


def _model(
    problem: PartitionProblem, classes: Classes, floor_s: float, best_s: float
) -> tuple[Any, list[Any], float]:
    """Return the model, its variables, and the seconds of one tick. T_total lies from floor to best."""
    from ortools.sat.python import cp_model

    fixed, first, memory, compute, expert, token, flop = problem.coefficients.tolist()
    number, copies = classes.number.astype(np.float64), classes.copies
    weights_s, flops_s = expert + token * number, flop * number
    tick_s = best_s / _TICKS or 1.0

    def ticks(seconds: float) -> int:
        return int(seconds / tick_s * (1.0 - 1e-12))

    model = cp_model.CpModel()
    total = model.new_int_var(ticks(floor_s), _TICKS + 1, "total")
    any_on_gpu = model.new_bool_var("any_on_gpu")
    x = [model.new_int_var(0, int(n), f"x_{d}") for d, n in enumerate(copies)]
    for base_s, steps_s in ((memory, weights_s), (compute, flops_s)):
        steps = [ticks(step) for step in steps_s]
        on_gpu = cp_model.LinearExpr.weighted_sum([*x, any_on_gpu], [*steps, ticks(first)])
        model.add(total >= on_gpu + ticks(fixed + base_s))
    for variable, n in zip(x, copies, strict=True):
        if first > 0.0:
            model.add(variable <= int(n) * any_on_gpu)
    for home in np.unique(classes.home) if len(classes) else ():
        here = np.flatnonzero(classes.home == home)
        staying = [int(copies[d]) - x[d] for d in here]
        load = cp_model.LinearExpr.weighted_sum(staying, [ticks(classes.seconds[d]) for d in here])
        model.add(total >= load + ticks(problem.attention_s))
    model.minimize(total)
    return model, x, tick_s
