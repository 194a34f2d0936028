"""Rounds of the doubtful steps as an integer program, by PuLP and its bundled CBC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from ..search.cbc import CbcRun, run_cbc
from .doubtful import Doubtful, doubtful
from .problem import CoreProblem, Decision, problem_of

#: CBC checks to this; a bound gives as much away before it is rounded up to whole rounds.
_TOLERANCE = 1e-6

_Variables = dict[tuple[int, int], Any]


def ilp(control: Control[Decision]) -> Claim:
    """Minimise the rounds of the doubtful steps; offer the answer, claim CBC's bound.

    An iteration budget counts nodes of the tree. CBC is a process of its own: an interruption waits for
    its time limit, unless it comes from the terminal, which CBC hears too. Options: `steps`. Raises
    MissingLibrary where the bundled CBC does not run on this machine.
    """
    problem = problem_of(control)
    part = doubtful(control)
    model, x = _model(problem, part)
    if (stop := control.should_stop()) is not None:
        return Claim(stop)
    for (e, p), variable in x.items():
        variable.setInitialValue(int(part.known[e] == p))
    run = run_cbc(model, control, warm=True)
    return Claim(Stop.INTERRUPTED) if run is None else _conclude(control, part, run, x)


def _model(problem: CoreProblem, part: Doubtful) -> tuple[Any, _Variables]:
    """Write down the model.

    (a) every expert is on one place; (b) no place holds more than it has room for; (c) a step's rounds
    serve the jobs of each of its places.
    """
    import pulp

    layout, model = problem.layout, pulp.LpProblem("cores", pulp.LpMinimize)
    allowed = part.allowed(layout.places)
    x = {
        (e, p): pulp.LpVariable(f"x_{e}_{p}", cat=pulp.LpBinary)
        for e, places in allowed.items()
        for p in places
    }
    on: dict[int, list[int]] = {p: [] for p in range(layout.places)}
    for e, p in x:
        on[p].append(e)
    rounds = [
        pulp.LpVariable(f"rounds_{s}", lowBound=int(least), cat=pulp.LpInteger)
        for s, least in enumerate(part.least)
    ]
    model += pulp.lpSum(rounds)
    for e, places in allowed.items():
        model += pulp.lpSum(x[e, p] for p in places) == 1  # (a)
    for p, experts in on.items():
        model += pulp.lpSum(x[e, p] for e in experts) <= layout.room  # (b)
        for s, variable in enumerate(rounds):  # (c)
            load = [(x[e, p], int(part.jobs[e, s])) for e in experts if part.jobs[e, s]]
            model += pulp.LpAffineExpression([(variable, -layout.servers), *load]) <= 0
    return model, x


def _conclude(control: Control[Decision], part: Doubtful, run: CbcRun, x: _Variables) -> Claim:
    problem = problem_of(control)
    if run.answered:
        value = np.zeros((problem.experts, problem.layout.places))
        for place, variable in x.items():
            value[place] = variable.varValue or 0.0
        decision = Decision(value.argmax(axis=1).astype(np.int32))
        # CBC keeps constraints to 1e-6 only; what it rounds over the limit is not offered.
        if problem.check(decision) is None:
            control.offer(decision)
    whole = max(float(part.least.sum()), float(np.ceil(run.bound - len(part.least) * _TOLERANCE)))
    bound = part.bound(whole, problem.layout.round_s, "integer program (CBC) on the doubtful steps")
    if run.solved:
        return Claim(Stop.CONVERGED, bound)
    return Claim(control.should_stop() or Stop.TIME_LIMIT, bound)
