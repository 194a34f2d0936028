"""Small core problems for tests, made from arrays alone."""

from __future__ import annotations

import itertools

import numpy as np

from moeplan.placement.cores.layout import Layout
from moeplan.placement.cores.problem import CoreProblem, Decision, pose_core_problem


def layout(cores: int, groups: int, *, mode: str = "broadcast", width: int = 4, room: int = 0) -> Layout:
    """A die whose rounds take one second; a core takes `room` experts (0: one a unit)."""
    return Layout(
        cores=cores, groups=groups, mode=mode, width=width, core_experts=room or groups, unit_experts=1,
        round_s=1.0, shards=1, dies=1, cap=1.0,
    )  # fmt: skip


def random_tokens(
    seed: int, steps: int, batch: int, experts: int, top_k: int, sigma: float = 1.0
) -> np.ndarray:
    """Skewed top-k choices `[S, B, K]` without repetition inside a token."""
    rng = np.random.default_rng(seed)
    scores = rng.gumbel(size=(steps, batch, experts)) + rng.normal(0.0, sigma, experts)
    return np.argsort(-scores, axis=2)[:, :, :top_k].astype(np.int16)


def posed(tokens: np.ndarray, experts: int, die: Layout, **options: object) -> CoreProblem:
    return pose_core_problem(tokens, experts, die, key=f"test-{tokens.shape}-{tokens.sum()}", **options)


def twin_rounds(problem: CoreProblem, decision: Decision) -> list[int]:
    """Rounds of every recorded step, job by job in plain Python."""
    rounds = []
    for step in problem.tokens:
        jobs = [0] * problem.layout.places
        for expert in range(problem.experts):
            tokens = int((step == expert).sum())
            while tokens > 0:
                jobs[decision.place_of[expert]] += 1
                tokens -= problem.layout.width
        rounds.append(max((n + problem.layout.servers - 1) // problem.layout.servers for n in jobs))
    return rounds


def best_of_all(problem: CoreProblem) -> float:
    """Objective of the best placement, by trying every one."""
    places = range(problem.layout.places)
    decisions = (
        Decision(np.array(choice, dtype=np.int32))
        for choice in itertools.product(places, repeat=problem.experts)
    )
    return min(problem.evaluate(d).objective_s for d in decisions if problem.check(d) is None)
