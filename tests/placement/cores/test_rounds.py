"""Rounds and equation 2 of ReXpert, by hand and against counting job by job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.nearmem import mfu, rexpert
from moeplan.placement.cores.rounds import (
    broadcast_rounds,
    cascade,
    direct_rounds,
    jobs_of,
    least_rounds,
    queued,
)
from moeplan.placement.solve import solve

from .instances import best_of_all, layout, posed


def test_the_worked_example_of_the_paper():
    # Section IV-C: 40 queued jobs' worth of tokens beside three experts of one token, w = 4, four groups.
    counts = np.array([[40, 1, 1, 1]])
    jobs = jobs_of(counts, 4)
    assert jobs.tolist() == [[10, 1, 1, 1]]
    direct, shared = (
        direct_rounds(jobs, np.arange(4), 4),
        broadcast_rounds(jobs, np.zeros(4, dtype=int), 1, 4),
    )
    assert (direct.tolist(), shared.tolist()) == ([10], [4])
    apart, pooled = cascade(counts, direct, 4, 4, 1.0), cascade(counts, shared, 4, 4, 1.0)
    # 13 jobs in 10 x 4 and 4 x 4 places; 43 tokens in 52.
    assert (apart.occupancy, pooled.occupancy) == (0.325, 0.8125)
    assert apart.ideal_mfu == pooled.ideal_mfu == 43 / 52
    assert pooled.actual_mfu == pytest.approx(43 / 64)


@pytest.mark.parametrize(("width", "cap"), [(1, 0.256), (2, 0.512), (4, 1.0)])
def test_width_caps(width, cap):
    # Section IV-D: min(1, 2 w / 7.8125). One expert with 8 tokens fills its jobs: ideal MFU 1.
    unit = rexpert().package.die.core.unit
    counts = np.array([[8]])
    rounds = direct_rounds(jobs_of(counts, width), np.zeros(1, dtype=int), 1)
    found = cascade(counts, rounds, 1, width, unit.roofline_cap(width))
    assert found.ideal_mfu == 1.0
    assert found.adjusted_mfu == pytest.approx(cap)


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_of_nothing_is_refused(width):
    with pytest.raises(UsageError, match="does no work"):
        jobs_of(np.ones((1, 2), dtype=int), width)


def test_means_are_of_steps():
    # Step 1: jobs 1, 0 on one unit each: 1 round, 1 of 2 groups. Step 2: jobs 2, 2: 2 rounds, all groups.
    counts = np.array([[2, 0], [8, 5]])
    rounds = direct_rounds(jobs_of(counts, 4), np.arange(2), 2)
    found = cascade(counts, rounds, 2, 4, 1.0)
    assert rounds.tolist() == [1, 2]
    assert found.rounds == 1.5
    assert found.occupancy == (0.5 + 1.0) / 2
    assert found.ideal_mfu == (2 / 4 + 13 / 16) / 2
    # The mean of products, not the product of means.
    assert found.actual_mfu == (0.5 * 0.5 + 13 / 16) / 2


def test_steps_without_tokens_do_not_count():
    counts = np.array([[4, 0], [0, 0]])
    found = cascade(counts, np.array([1, 0]), 2, 4, 1.0)
    assert (found.rounds, found.occupancy) == (1.0, 0.5)
    with pytest.raises(UsageError, match="no token"):
        cascade(np.zeros((2, 2), dtype=int), np.zeros(2, dtype=int), 2, 4, 1.0)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5))
def test_rounds_agree_with_the_hierarchy(seed, cores, groups, width):
    # hardware.nearmem.mfu counts a single step, core by core and unit by unit.
    rng = np.random.default_rng(seed)
    experts = cores * groups
    counts = rng.integers(0, 20, (3, experts)) + (np.arange(experts) == 0)
    unit_of = rng.permutation(experts)
    jobs = jobs_of(counts, width)
    by_unit = queued(jobs, unit_of, experts).reshape(3, cores, groups)
    for step in range(3):
        for broadcast in (False, True):
            theirs = mfu(int(counts[step].sum()), by_unit[step], width, broadcast=broadcast)
            rounds = (
                broadcast_rounds(jobs, unit_of // groups, cores, groups)
                if broadcast
                else direct_rounds(jobs, unit_of, experts)
            )
            assert rounds[step] == theirs.rounds
            ours = cascade(counts[step : step + 1], rounds[step : step + 1], experts, width, 1.0)
            assert ours.occupancy == pytest.approx(theirs.occupancy)
            assert ours.actual_mfu == pytest.approx(theirs.actual)


def test_least_rounds_by_hand():
    # Two cores of two groups. 9 jobs: ceil(5 / 2) = 3. A hot expert of 7: 4. Three of 4 jobs: two share a
    # core, 8 jobs, 4 rounds, where 12 jobs over 4 groups would be 3.
    jobs = np.array([[3, 3, 3, 0], [7, 1, 0, 0], [4, 4, 4, 0]])
    assert least_rounds(jobs, 2, 2).tolist() == [3, 4, 4]


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3))
def test_least_rounds_are_never_above_the_best_placement(seed, cores, groups):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 6, (1, 12, 1)).astype(np.int16)
    problem = posed(tokens, 6, layout(cores, groups, width=1, room=6))
    assert problem.lower_bound().value_s <= best_of_all(problem)


def test_places_without_experts_are_idle():
    assert queued(np.array([[1, 2, 3]]), np.array([4, 0, 4]), 6).tolist() == [[2, 0, 0, 0, 4, 0]]


def test_an_optimum_is_called_optimal():
    # Four experts of one job each on four units: one round, and no placement takes less.
    problem = posed(np.arange(4, dtype=np.int16).reshape(1, 4, 1), 4, layout(2, 2, width=1))
    assert solve(problem, "lpt").stop == "optimal"
