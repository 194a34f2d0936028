"""Simulated annealing on the whole objective: every step, split, link and weight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from ..search.cooling import temperature, temperatures
from ..search.random import seeded
from .layout import aligned, slots_of
from .problem import Decision, ReplicaProblem, problem_of

if TYPE_CHECKING:
    from .anneal_kernel import Rules

_SAMPLE, _CHUNK_S, _FIRST_CHUNK = 200, 0.02, 256


def annealing(control: Control[Decision]) -> Claim:
    """Swap replicas and move counts at random until the budget is spent; begin at the best known.

    Moves often begin on the busiest rank of some step. Temperatures follow the share of the budget that is
    spent; groups stay on the nodes that the start gives them.
    """
    from .anneal_kernel import anneal, new_walk, value

    problem = problem_of(control)
    if control.best is None:
        from .joint import joint_search

        joint_search(control)
    if control.best is None:
        return Claim(control.should_stop() or Stop.CONVERGED)
    rules, load, rates = _rules(problem), problem.load(problem.planned), problem.planned_rates
    rng, nothing = seeded(control.seed), np.empty(0)
    best_slots = control.best.expert_of.copy()
    walk = new_walk(rates, load, rules, best_slots)
    now = best = value(rates, load, rules, walk)
    anneal(rates, load, rules, walk, rng, 0, 0.0, 0.0, now, best, best_slots, nothing)
    sample = np.full(_SAMPLE, np.nan)
    left = control.iterations_left()
    size = _SAMPLE if left is None else min(_SAMPLE, left)
    now, best = anneal(rates, load, rules, walk, rng, size, 0.0, 0.0, now, best, best_slots, sample)
    control.iterations += size
    hot, cold = temperatures(sample[np.isfinite(sample)])
    chunk, known = _FIRST_CHUNK, np.inf
    while (stop := control.should_stop()) is None:
        left = control.iterations_left()
        size = chunk if left is None else min(chunk, left)
        begun = time.perf_counter()
        warm = temperature(hot, cold, control.progress())
        # Sums that were added and taken out many times over are added up anew.
        walk = new_walk(rates, load, rules, walk.slots)
        now = value(rates, load, rules, walk)
        now, best = anneal(rates, load, rules, walk, rng, size, warm, warm, now, best, best_slots, nothing)
        control.iterations += size
        if best < known:
            known = best
            _offer(control, best_slots)
        else:
            control.tick()
        if control.budget.iterations is None:
            took_s = time.perf_counter() - begun
            chunk = int(min(4.0, max(0.25, _CHUNK_S / max(took_s, 1e-6))) * chunk) + 1
    _offer(control, best_slots)
    return Claim(stop)


def _offer(control: Control[Decision], slots: object) -> None:
    problem = problem_of(control)
    decision = Decision(np.array(slots))
    # The search keeps the slots of a rank in any order; a plan has them sorted, or where they are already.
    tidy = Decision(slots_of(problem.has(decision), problem.ranks, problem.current))
    for answer in (
        (tidy, Decision(aligned(problem, tidy.expert_of))) if problem.current is not None else (tidy,)
    ):
        if problem.check(answer) is None:
            control.offer(answer)


def _rules(problem: ReplicaProblem) -> Rules:
    from .anneal_kernel import Rules

    settings = problem.settings
    limit = settings.max_moves
    before = np.zeros((0, 0), np.int16)
    if limit is not None and problem.current is not None:
        before = problem.has(Decision(problem.current))
    return Rules(
        problem.ranks.rank_of,
        problem.ranks.start,
        problem.most,
        problem.experts // settings.groups if problem.nodes > 1 else 0,
        before,
        problem.ranks.slots if limit is None else limit,
        settings.traffic_weight,
        settings.risk,
        problem.plain,
    )
