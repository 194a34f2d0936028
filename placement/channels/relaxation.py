"""A bound that knows that one placement serves all steps: a linear program over TP factors."""

from __future__ import annotations

import numpy as np

from ..problem import Bound
from .bound import step_bounds
from .problem import ChannelProblem
from .tables import SLACK

#: The linear program is solved to about 1e-7; the bound gives ten times as much away.
_TOLERANCE = 1e-6
#: Times are written in microseconds: the solver's tolerances are absolute.
_UNIT_S = 1e-6


def fixed_bound(problem: ChannelProblem) -> Bound:
    """Lower bound on the mean of J over the steps of the objective, for any one placement of all of them.

    With y[e, f] = 1 where expert e has TP factor f, the busiest site z[s] of step s takes at least

    - the average over sites, sum of n[e, s] t_f tau_f y[e, f] / N,
    - every expert's own share, sum over f of n[e, s] tau_f y[e, f],
    - with A first cores the tokens of the fullest, T[s] tau_min u[s] where u[s] = 1 / A,

    and the all-gather moves at least T[s] (1 - u[s]) results over one ring edge (see `bound.gather_bounds`).
    J_noc's other parts are never negative, and z and the gather together are at least the bound of the step
    on its own. The program with y and u continuous bounds their mean; unlike in the bounds of single steps,
    no expert changes its factor from step to step. Standard deviations that the objective adds are never
    negative either.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    t, sites = problem.objective_tables, problem.sites
    one = t.factor_start[:-1]
    fits = t.shard_bytes[one] <= t.capacity_bytes * SLACK
    each_s, width = t.token_s[one][fits], np.array(problem.groups.factors, dtype=np.float64)[fits]
    experts, steps = t.counts.shape
    factors = len(each_s)
    tokens = t.counts.sum(axis=0)
    z, u = experts * factors + np.arange(steps), experts * factors + steps + np.arange(steps)
    gather = np.zeros(steps)
    if t.noc and len(t.seconds_per_byte):
        gather = tokens * t.token_bytes * t.seconds_per_byte.min() / _UNIT_S
    alone = step_bounds(t, problem.groups) / _UNIT_S
    # Rows: own share of every (expert, step) with tokens; of every step the average, the fullest first core,
    # and its bound alone.
    e, s = np.nonzero(t.counts)
    own = np.arange(len(e))
    average, core = len(e) + s, len(e) + steps + np.arange(steps)
    n = t.counts[e, s][:, None] / _UNIT_S
    y = (e[:, None] * factors + np.arange(factors)).ravel()
    entries = [
        (np.repeat(own, factors), y, (n * each_s).ravel()),
        (own, z[s], np.full(len(e), -1.0)),
        (np.repeat(average, factors), y, (n * each_s * width / sites).ravel()),
        (len(e) + np.arange(steps), z, np.full(steps, -1.0)),
        (core, u, tokens * each_s.min(initial=np.inf) / _UNIT_S),
        (core, z, np.full(steps, -1.0)),
        (core + steps, z, np.full(steps, -1.0)),
        (core + steps, u, gather),
    ]
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    variables, rows = experts * factors + 2 * steps, len(e) + 3 * steps
    cost = np.concatenate([np.zeros(experts * factors), np.ones(steps), -gather]) / steps
    one_factor = coo_matrix(
        (np.ones(experts * factors), (np.arange(experts * factors) // factors, np.arange(experts * factors))),
        shape=(experts, variables),
    )
    limits = [(0.0, 1.0)] * (experts * factors) + [(0.0, None)] * steps + [(1.0 / sites, 1.0)] * steps
    solved = linprog(
        cost,
        A_ub=coo_matrix((value, (row, column)), shape=(rows, variables)).tocsr(),
        b_ub=np.concatenate([np.zeros(rows - steps), gather - alone]),
        A_eq=one_factor.tocsr(),
        b_eq=np.ones(experts),
        bounds=limits,
        method="highs",
    )
    if solved.status != 0:
        return Bound(0.0, "trivial")
    value_s = (float(solved.fun) + float(gather.mean())) * _UNIT_S
    return Bound(max(0.0, value_s * (1.0 - _TOLERANCE)), "LP relaxation of one placement for all steps")
