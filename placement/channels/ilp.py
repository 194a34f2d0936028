"""The linear part as an integer program, by PuLP and its bundled CBC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..problem import Bound
from ..result import Stop
from ..search.cbc import CbcRun, run_cbc
from .linear import LinearPart, linear_part
from .problem import ChannelProblem, Decision, problem_of
from .tables import SLACK

#: CBC's tolerances are absolute, and its log has three decimals: the model is written in units of a
#: thousandth of the bound that is known beforehand, and a bound gives the tolerance away.
_UNITS, _TOLERANCE = 1e3, 1e-6

_Variables = dict[tuple[int, int], Any]


def ilp(control: Control[Decision]) -> Claim:
    """Minimise the linear part; offer the answer, claim CBC's bound.

    An iteration budget counts nodes of the tree. CBC is a process of its own: an interruption waits for
    its time limit, unless it comes from the terminal, which CBC hears too. Options: `step_clusters`. Raises
    MissingLibrary where the bundled CBC does not run on this machine.
    """
    problem = problem_of(control)
    part = linear_part(problem, control.options.get("step_clusters"), control.seed)
    unit_s = (control.floor.value_s or 1.0) / _UNITS
    model, x = _model(problem, part, unit_s)
    if (stop := control.should_stop()) is not None:
        return Claim(stop)
    if control.best is not None:
        for (e, g), variable in x.items():
            variable.setInitialValue(int(control.best.group_of[e] == g))
    run = run_cbc(model, control, warm=control.best is not None)
    return Claim(Stop.INTERRUPTED) if run is None else _conclude(control, model, run, x, unit_s)


def _model(problem: ChannelProblem, part: LinearPart, unit_s: float) -> tuple[Any, _Variables]:
    """Write down the model, in units of `unit_s`.

    (a) every expert is on one group; (b) a maximum is at least the time of each of its places in each
    clustered step; (c) no site holds more than its memory.
    """
    import pulp

    model = pulp.LpProblem("channels", pulp.LpMinimize)
    experts, tables = range(problem.experts), problem.tables
    x = {(e, g): pulp.LpVariable(f"x_{e}_{g}", cat=pulp.LpBinary) for e in experts for g in part.choices}
    objective = []
    for e in experts:
        model += pulp.lpSum(x[e, g] for g in part.choices) == 1  # (a)
    for k, weight in enumerate(part.weight):
        tokens = [(int(e), part.counts[e, k] / unit_s) for e in np.flatnonzero(part.counts[:, k])]
        for maximum in part.maxima:
            largest = pulp.LpVariable(f"{maximum.name}_{k}", lowBound=0)
            objective.append(weight * largest)
            for groups in maximum.uses.values():  # (b)
                loads = [(x[e, g], n * rate_s) for g, rate_s in groups for e, n in tokens]
                model += pulp.LpAffineExpression([(largest, -1.0), *loads]) <= 0
    model += pulp.lpSum(objective)
    for groups in part.maxima[0].uses.values():  # (c)
        share = tables.shard_bytes / (tables.capacity_bytes * SLACK)
        model += pulp.LpAffineExpression([(x[e, g], share[g]) for g, _ in groups for e in experts]) <= 1
    return model, x


def _conclude(control: Control[Decision], model: Any, run: CbcRun, x: _Variables, unit_s: float) -> Claim:
    import pulp

    if model.status == pulp.LpStatusInfeasible:
        return Claim(Stop.INFEASIBLE)
    if run.answered:
        decision = _read(problem_of(control), x)
        # CBC keeps memory to 1e-6 only; what it rounds over the limit is not offered.
        if problem_of(control).check(decision) is None:
            control.offer(decision)
    bound = Bound(
        max(0.0, run.bound * (1.0 - _TOLERANCE)) * unit_s, "integer program (CBC) of the linear part"
    )
    if run.solved:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)


def _read(problem: ChannelProblem, x: _Variables) -> Decision:
    value = np.zeros((problem.experts, len(problem.groups)))
    for place, variable in x.items():
        value[place] = variable.varValue or 0.0
    return Decision(value.argmax(axis=1).astype(np.int32))
