"""Variation of loads by hand and by brute force, and plans for windows that were not recorded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moeplan.placement import solve
from moeplan.placement.planning import Search
from moeplan.placement.replicas.inputs import largest_of_normals
from moeplan.placement.replicas.planning import plan_replicas
from moeplan.placement.replicas.problem import Decision
from moeplan.placement.replicas.unseen import RECORDED, planned_steps, variation
from moeplan.placement.result import Budget

from .instances import problem


def windows(seed: int, number: int, noise: float, experts: int = 64) -> np.ndarray:
    """Tokens `[S, E]` of log-normal popularity, with independent noise."""
    rng = np.random.default_rng(seed)
    popularity = 1e4 * np.exp(rng.standard_normal(experts))
    return rng.poisson(popularity * (1.0 + noise * rng.standard_normal((number, experts))).clip(0.0))


def sized(steps: np.ndarray) -> np.ndarray:
    """Shares over the size of their window, to which an expert adds by at most its own weight."""
    shares = [row / row.sum() for row in steps]
    mean = sum(shares) / len(shares)
    counted = [m / (m + 1.0 / len(mean)) for m in mean]
    sizes = [sum(c * s / m for c, s, m in zip(counted, row, mean, strict=True)) for row in shares]
    return np.array([row / size * sum(counted) for row, size in zip(shares, sizes, strict=True)])


def independent_by_pairs(steps: np.ndarray) -> float:
    """Variances of covariances over their squares, pair by pair (Schaefer and Strimmer 2005)."""
    number = len(steps)
    loads = sized(steps)
    apart = loads - loads.mean(axis=0)
    uncertain = squares = 0.0
    for i, j in itertools.permutations(range(steps.shape[1]), 2):
        product = apart[:, i] * apart[:, j]
        squares += (product.sum() / (number - 1)) ** 2
        uncertain += number / (number - 1) ** 3 * ((product - product.mean()) ** 2).sum()
    return uncertain * (number - 1) / (number - 2) / squares


def test_two_windows_by_hand():
    # Shares differ by 0.1 from 0.5: variance 0.02 for each, over 0.25; a third window differs by 3/2 of it.
    found = variation(np.array([[6.0, 4.0], [40.0, 60.0]]))
    assert found.kept == 0.0
    assert found.drift == pytest.approx(np.sqrt(0.02 / 0.25 * 1.5))


def test_one_window_tells_nothing():
    assert variation(np.array([[6.0, 4.0]])) == RECORDED
    assert variation(np.array([[6.0, 4.0], [0.0, 0.0]])) == RECORDED
    same = problem([6.0, 4.0, 1.0], 1, (2, 2), drift=None)
    assert same.fingerprint == problem([6.0, 4.0, 1.0], 1, (2, 2)).fingerprint
    assert same.mean_decides


def test_equal_windows_do_not_vary():
    found = variation(np.array([[6.0, 4.0]] * 3))
    assert found == (0.0, 0.0)
    assert planned_steps(np.full((3, 1, 2), 5.0), found.kept).shape == (1, 1, 2)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_common_is_estimated_as_pair_by_pair(seed):
    rng = np.random.default_rng(seed)
    topic = rng.standard_normal((12, 1)) * rng.standard_normal(5)
    steps = 100.0 * np.exp(0.3 * topic + 0.2 * rng.standard_normal((12, 5)))
    alone = min(1.0, independent_by_pairs(steps))
    found = variation(steps)
    assert found.kept == pytest.approx(np.sqrt(1.0 - alone))
    loads = sized(steps)
    relative = loads.var(axis=0, ddof=1).sum() / (loads.mean(axis=0) ** 2).sum()
    assert found.drift == pytest.approx(np.sqrt(alone * relative * 13 / 12))


@pytest.mark.parametrize("number", [6, 32])
def test_independent_noise_is_seen_as_such_and_topics_as_theirs(number):
    noisy = [variation(windows(seed, number, 0.1)) for seed in range(8)]
    assert np.mean([found.kept**2 for found in noisy]) < 0.12
    rng = np.random.default_rng(1)
    topic = np.where(rng.random((number, 1)) < 0.5, 0.5, -0.5) * np.repeat([1.0, -1.0], 32)
    common = variation(windows(3, number, 0.02) * (1.0 + topic))
    assert common.kept**2 > 0.7


def test_planned_steps_keep_means_and_shrink_covariance():
    steps = windows(2, 5, 0.3, 4)[:, None].astype(float)
    drawn = planned_steps(steps, 0.6)
    assert drawn.mean(axis=0) == pytest.approx(steps.mean(axis=0))
    assert np.cov(drawn[:, 0].T) == pytest.approx(0.36 * np.cov(steps[:, 0].T))
    assert planned_steps(steps, 1.0) is steps


def test_the_objective_counts_what_may_come_and_the_time_what_came():
    posed = problem([[6.0, 4.0], [4.0, 6.0]], 1, (1, 1), drift=None)
    cost = posed.evaluate(Decision(np.array([0, 1])))
    assert cost.total_s == pytest.approx(6.0)
    drift = np.sqrt(0.02 / 0.25 * 1.5)
    assert cost.objective_s == pytest.approx(5.0 + drift * largest_of_normals(2) * 5.0)
    # Held-out windows are scored as they are.
    beside = problem([[6.0, 4.0], [4.0, 6.0]], 1, (1, 1), drift=None, held_out=[[6.0, 4.0], [4.0, 6.0]])
    assert beside.held_out is not None
    assert beside.held_out.evaluate(Decision(np.array([0, 1]))).objective_s == pytest.approx(6.0)


def test_plans_are_not_fitted_to_the_noise_of_windows():
    mine, fitted, theirs = [], [], []
    for seed in range(4):
        every = windows(seed, 6 + 32, 0.1)
        for drift, times in ((None, mine), (0.0, fitted)):
            posed = problem(every[:6], 1, (9,) * 8, drift=drift, held_out=every[6:])
            plan = plan_replicas([posed], search=Search(budget=Budget(None, 8000))).layers[0]
            assert plan.result.held_out is not None
            times.append(plan.result.held_out.total_s)
        other = plan.baselines["eplb"].held_out
        assert other is not None
        theirs.append(other.total_s)
    assert sum(mine) < sum(fitted)
    assert sum(mine) < 1.005 * sum(theirs)


@pytest.mark.parametrize("drift", [None, 0.0, 0.3])
@pytest.mark.parametrize("number", [1, 6])
def test_no_plan_is_worse_than_a_baseline_that_keeps_the_rules(drift, number):
    for seed in range(3):
        posed = problem(windows(seed, number, 0.2, 32), 1, (5,) * 8, drift=drift)
        plan = plan_replicas([posed], search=Search(budget=Budget(None, 1))).layers[0]
        assert set(plan.baselines) == {"linear", "round_robin", "eplb", "snake", "flash_like"}
        for name in plan.baselines:
            allowed = solve(posed, name)
            assert plan.result.cost.objective_s <= allowed.cost.objective_s * (1.0 + 1e-12), name
