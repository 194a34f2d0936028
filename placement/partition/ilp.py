"""The partition as an integer program, by PuLP and its bundled CBC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cbc import call_cbc
from .classes import Classes, classes_of
from .problem import Decision, PartitionProblem, problem_of

#: CBC's tolerances are absolute, and it does not look for what is less than 1e-5 better: times are written in
#: units of a thousandth of the bound that is known beforehand.
_UNITS, _TOLERANCE = 1e3, 1e-6


def ilp(control: Control[Decision]) -> Claim:
    """Minimise T_total over how many experts of each class are on the GPU; claim CBC's bound if it ends.

    An iteration budget counts nodes of the tree. Raises MissingLibrary where the bundled CBC does not run.
    """
    import pulp

    problem = problem_of(control)
    classes = classes_of(problem)
    unit_s = (control.floor.value_s or 1.0) / _UNITS
    model, x = _model(problem, classes, unit_s)
    control.iterations += 1
    if (stop := control.should_stop()) is Stop.INTERRUPTED:
        return Claim(stop)
    nodes = control.iterations_left()
    if call_cbc(model, control, gap=0.0, nodes=None if nodes is None else nodes + 1, instead="exact") is None:
        return Claim(Stop.INTERRUPTED)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return Claim(control.should_stop() or Stop.TIME_LIMIT)
    chosen = np.array([round(v.varValue or 0.0) for v in x], dtype=np.int64)
    cost = control.offer(classes.decision(np.clip(chosen, 0, classes.copies)))
    if model.sol_status == pulp.LpSolutionOptimal and model.status == pulp.LpStatusOptimal:
        value_s = float(pulp.value(model.objective)) * unit_s * (1.0 - _TOLERANCE)
        bound = Bound(max(0.0, min(value_s, cost.objective_s)), "integer program (CBC)")
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT)


def _model(problem: PartitionProblem, classes: Classes, unit_s: float) -> tuple[Any, list[Any]]:
    """Minimise the largest of communication, memory, computation and every channel's time."""
    import pulp

    fixed, first, memory, compute, expert, token, flop = (problem.coefficients / unit_s).tolist()
    model = pulp.LpProblem("partition", pulp.LpMinimize)
    total = pulp.LpVariable("total", lowBound=problem.comm_s / unit_s)
    any_on_gpu = pulp.LpVariable("any_on_gpu", cat=pulp.LpBinary)
    x = [
        pulp.LpVariable(f"x_{d}", 0, int(copies), cat=pulp.LpInteger)
        for d, copies in enumerate(classes.copies)
    ]
    model += total
    base = [(total, -1.0), (any_on_gpu, first)]
    weights = [expert + token * float(n) for n in classes.number]
    flops = [flop * float(n) for n in classes.number]
    model += pulp.LpAffineExpression([*base, *zip(x, weights, strict=True)]) <= -(fixed + memory)
    model += pulp.LpAffineExpression([*base, *zip(x, flops, strict=True)]) <= -(fixed + compute)
    if first > 0.0:
        for variable, copies in zip(x, classes.copies, strict=True):
            model += variable <= int(copies) * any_on_gpu
    for home in np.unique(classes.home) if len(classes) else ():
        here = np.flatnonzero(classes.home == home)
        stays = problem.attention_s + float((classes.copies[here] * classes.seconds[here]).sum())
        saved = [(x[d], -float(classes.seconds[d]) / unit_s) for d in here]
        model += pulp.LpAffineExpression([(total, -1.0), *saved]) <= -stays / unit_s
    model += total >= problem.attention_s / unit_s
    return model, x
