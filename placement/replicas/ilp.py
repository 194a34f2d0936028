"""Counts and packing as an integer program, by PuLP and its bundled CBC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cbc import CbcRun, run_cbc
from .joint import joint_search
from .linear import LinearModel, decision_of, linear_model
from .problem import Decision, problem_of

#: CBC's tolerances are absolute: times are written in thousandths of the bound that is known beforehand.
_UNITS, _TOLERANCE = 1e3, 1e-6


def ilp(control: Control[Decision]) -> Claim:
    """Begin with the joint search; minimise the model, offer the answer, claim CBC's bound.

    An iteration budget counts nodes of the tree. Raises UsageError where the model is too large, and
    MissingLibrary where the bundled CBC does not run.
    """
    problem = problem_of(control)
    linear = linear_model(problem)
    joint_search(control)
    if (stop := control.should_stop()) is not None and control.best is not None:
        return Claim(stop)
    unit_s = control.floor.value_s / _UNITS
    model, z = _model(linear, unit_s)
    if control.best is not None:
        has = problem.has(control.best)
        for (e, g, c), variable in z.items():
            variable.setInitialValue(int(has[e, g]) if has[e].sum() == c else 0)
    run = run_cbc(model, control, warm=control.best is not None, gap=0.0)
    return Claim(Stop.INTERRUPTED) if run is None else _conclude(control, linear, model, z, run, unit_s)


def _model(linear: LinearModel, unit_s: float) -> tuple[Any, dict[tuple[int, int, int], Any]]:
    """Write down the model.

    (a) every expert has one number of replicas, and that many; (b) ranks are full; (c) a rank holds at most
    `most` replicas of an expert; (d) a step lasts at least as long as each rank's work; (e) experts stay on
    the node of their group; (f) no more slots move than may.
    """
    import pulp

    model = pulp.LpProblem("replicas", pulp.LpMinimize)
    experts, ranks, counts = range(linear.experts), range(len(linear.room)), range(1, linear.counts + 1)
    kind = pulp.LpBinary if linear.most == 1 else pulp.LpInteger
    z = {
        (e, g, c): pulp.LpVariable(f"z_{e}_{g}_{c}", 0, min(linear.most, c), cat=kind)
        for e in experts
        for g in ranks
        for c in counts
    }
    y = {(e, c): pulp.LpVariable(f"y_{e}_{c}", cat=pulp.LpBinary) for e in experts for c in counts}
    longest = [pulp.LpVariable(f"t_{k}", 0) for k in range(linear.steps)]
    model += pulp.lpSum(longest) * (1.0 / linear.steps)
    for e in experts:
        model += pulp.lpSum(y[e, c] for c in counts) == 1  # (a)
        for c in counts:
            model += pulp.lpSum(z[e, g, c] for g in ranks) == c * y[e, c]
            if linear.most == 1:
                for g in ranks:
                    model += z[e, g, c] <= y[e, c]  # (c), tighter than the bounds alone
        if linear.most > 1:
            for g in ranks:
                model += pulp.lpSum(z[e, g, c] for c in counts) <= linear.most  # (c)
    for g in ranks:
        model += pulp.lpSum(z[e, g, c] for e in experts for c in counts) == linear.room[g]  # (b)
        for k in range(linear.steps):
            for work in linear.work[:, k] / (linear.speed[g] * unit_s):
                terms = [
                    (z[e, g, c], float(work[e, c - 1])) for e in experts for c in counts if work[e, c - 1]
                ]
                model += pulp.LpAffineExpression([(longest[k], -1.0), *terms]) <= -float(
                    linear.base[k] / unit_s
                )
    _homes(model, linear, z)
    _limit(model, linear, z)
    return model, z


def _homes(model: Any, linear: LinearModel, z: dict[tuple[int, int, int], Any]) -> None:
    import pulp

    if not linear.groups:
        return
    size = linear.experts // linear.groups
    home = {
        (group, node): pulp.LpVariable(f"u_{group}_{node}", cat=pulp.LpBinary)
        for group in range(linear.groups)
        for node in range(linear.nodes)
    }
    for group in range(linear.groups):
        model += pulp.lpSum(home[group, node] for node in range(linear.nodes)) == 1
    for node in range(linear.nodes):
        model += (
            pulp.lpSum(home[group, node] for group in range(linear.groups)) == linear.groups // linear.nodes
        )
    for (e, g, _), variable in z.items():
        model += variable <= linear.most * home[e // size, linear.node_of[g]]  # (e)


def _limit(model: Any, linear: LinearModel, z: dict[tuple[int, int, int], Any]) -> None:
    import pulp

    if linear.before is None:
        return
    moved = []
    for e in range(linear.experts):
        for g in range(len(linear.room)):
            held = pulp.lpSum(z[e, g, c] for c in range(1, linear.counts + 1))
            stays = int(linear.before[e, g])
            if stays == 0:
                moved.append(held)
            elif linear.most > stays:
                extra = pulp.LpVariable(f"m_{e}_{g}", 0)
                model += extra >= held - stays
                moved.append(extra)
    model += pulp.lpSum(moved) <= linear.moves  # (f)


def _conclude(
    control: Control[Decision], linear: LinearModel, model: Any, z: dict[tuple[int, int, int], Any],
    run: CbcRun, unit_s: float,
) -> Claim:  # fmt: skip
    import pulp

    if model.status == pulp.LpStatusInfeasible:
        return Claim(Stop.INFEASIBLE) if control.best is None else Claim(Stop.CONVERGED)
    if run.answered:
        problem = problem_of(control)
        held = np.zeros((linear.experts, len(linear.room)), dtype=np.int64)
        for (e, g, _), variable in z.items():
            held[e, g] += round(variable.varValue or 0.0)
        if (held.sum(axis=0) == linear.room).all():
            decision = decision_of(problem, held)
            # CBC keeps rules to 1e-6 only; what it rounds over one is not offered.
            if problem.check(decision) is None:
                control.offer(decision)
    bound = None
    if linear.proves:
        bound = Bound(max(0.0, run.bound * (1.0 - _TOLERANCE)) * unit_s, "integer program (CBC)")
    if run.solved:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)
