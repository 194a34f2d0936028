"""The one scorer against a twin in plain Python; feasibility; what the objective adds to the mean."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.placement.cores.annealing import prices
from moeplan.placement.cores.kernels import anneal, largest_after, score, shift, state_of
from moeplan.placement.cores.problem import Decision, Settings, bootstrap
from moeplan.placement.search.random import seeded

from .instances import layout, posed, random_tokens, twin_rounds


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(["broadcast", "direct"]), st.integers(1, 4))
def test_rounds_job_by_job(seed, mode, width):
    die = layout(3, 3, mode=mode, width=width, room=9)
    problem = posed(random_tokens(seed, 3, 7, 9, 2), 9, die)
    decision = Decision(np.random.default_rng(seed).permutation(9) % die.places)
    assert problem.rounds(decision).tolist() == twin_rounds(problem, decision)
    cost = problem.evaluate(decision)
    assert cost.total_s == pytest.approx(np.mean(twin_rounds(problem, decision)))


def test_dropped_choices_are_no_jobs():
    tokens = np.array([[[0, -1], [0, 1], [-1, -1]]], dtype=np.int16)
    problem = posed(tokens, 2, layout(1, 2, width=1))
    assert problem.counts.tolist() == [[2, 1]]


def test_parts_by_hand():
    # Jobs 3 and 1 on two cores of two groups: 2 rounds, in which 4 jobs could have taken one.
    tokens = np.array([0, 0, 0, 1], dtype=np.int16).reshape(1, 4, 1)
    cost = posed(tokens, 2, layout(2, 2, width=1)).evaluate(Decision(np.array([0, 1])))
    assert (cost.total_s, dict(cost.parts)) == (2.0, {"busy_s": 1.0, "wait_s": 1.0})


def test_risk_is_added_to_the_objective_alone():
    # Steps of 1 and 3 rounds: mean 2, standard deviation 1.
    tokens = np.array([[[0], [-1], [-1]], [[0], [0], [0]]], dtype=np.int16)
    cost = posed(tokens, 1, layout(1, 1, width=1), risk=0.5).evaluate(Decision(np.zeros(1)))
    assert (cost.total_s, cost.objective_s) == (2.0, 2.5)


def test_resampled_steps_count_in_the_objective_alone():
    problem = posed(random_tokens(3, 5, 6, 6, 2), 6, layout(2, 3, width=1), resample=2, seed=9)
    assert problem.jobs.shape == (15, 6)
    decision = Decision(np.arange(6) % 2)
    cost = problem.evaluate(decision)
    assert cost.total_s == pytest.approx(np.mean(twin_rounds(problem, decision)))
    assert cost.objective_s == pytest.approx(problem.all_rounds(decision).mean())


def test_bootstrapped_slots_keep_their_course():
    # Slot b chooses b and then b + 10, b + 20, ... in step s: every drawn slot is one, begun anywhere.
    tokens = (np.arange(3)[None, :, None] + 10 * np.arange(4)[:, None, None]).astype(np.int16)
    drawn = bootstrap(tokens, 2, seed=1)
    assert drawn.shape == (8, 3, 1)
    for draw in drawn.reshape(2, 4, 3):
        for course in draw.T.tolist():
            assert len({choice % 10 for choice in course}) == 1
            assert all((after - before) % 40 == 10 for before, after in itertools.pairwise(course))
    assert (bootstrap(tokens, 2, seed=1) == drawn).all()
    assert not (drawn[:4] == drawn[4:]).all()


@pytest.mark.parametrize(
    ("place_of", "fault"),
    [
        ([0, 1], "2 experts are placed, the layer has 3"),
        ([0, 1, 2], "expert 2 is on core 2, allowed are 0..1"),
        ([0, -1, 0], "expert 1 is on core -1"),
        ([1, 1, 1], "core 1 would hold 3 experts of layer 0, it has room for 2"),
    ],
)
def test_faults(place_of, fault):
    problem = posed(random_tokens(1, 2, 3, 3, 1), 3, layout(2, 2))
    assert fault in problem.check(Decision(np.array(place_of)))


def test_too_many_experts():
    problem = posed(random_tokens(1, 2, 3, 5, 1), 5, layout(2, 2))
    assert problem.infeasible() == "5 experts do not fit on 2 cores for 4"
    unpooled = posed(random_tokens(1, 2, 3, 5, 1), 5, layout(2, 2, mode="direct"))
    assert unpooled.infeasible() == "5 experts do not fit on 4 units for 4"


def test_core_of_units():
    problem = posed(random_tokens(1, 2, 3, 4, 1), 4, layout(2, 3, mode="direct"))
    assert problem.core_of(Decision(np.array([5, 2, 3, 0]))).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "wrong", [{"mode": "both"}, {"width": 0}, {"risk": -1.0}, {"resample": -1}, {"resample_seed": -1}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(UsageError):
        Settings(**wrong)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 11))
def test_moves_against_the_whole(seed, places):
    rng = np.random.default_rng(seed)
    jobs = rng.integers(0, 9, (7, 6)).astype(np.int32)
    place_of = rng.integers(0, places, 7).astype(np.int32)
    old = int(place_of[0])
    new = (old + 1) % places
    state = state_of(jobs, place_of.copy(), places)
    out = np.empty(6, dtype=np.int32)
    largest_after(state.load, state.block, old, new, jobs[0], out)
    place_of[0] = new
    after = state_of(jobs, place_of, places)
    assert (out == after.load.max(axis=0)).all()
    shift(state.load, state.block, old, new, jobs[0])
    assert (state.load == after.load).all()
    assert (state.block == after.block).all()


@pytest.mark.parametrize("risk", [0.0, 1.5])
def test_annealing_keeps_its_score(risk):
    # What the kernel says of its best placement, against the whole.
    problem = posed(random_tokens(5, 6, 12, 10, 2), 10, layout(3, 4, width=1), risk=risk)
    jobs, price = np.ascontiguousarray(problem.jobs.T), prices(problem)
    place_of = (np.arange(10) % 3).astype(np.int32)
    state, best_place = state_of(jobs, place_of.copy(), 3), place_of.copy()
    begin = score(state.load.max(axis=0), price, risk)
    current, best = anneal(
        jobs, state, 4, price, risk, seeded(1), 5_000, 0.5, 0.001, begin, begin, best_place, np.empty(0)
    )
    assert best < begin
    assert best == pytest.approx(score(state_of(jobs, best_place, 3).load.max(axis=0), price, risk))
    assert current == pytest.approx(score(state_of(jobs, state.place_of, 3).load.max(axis=0), price, risk))
    assert np.bincount(state.place_of, minlength=3).tolist() == state.held.tolist()
    assert state.held.max() <= 4
