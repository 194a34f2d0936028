"""J of sub-batches: the same as the channel problem's on a load that holds nothing else."""

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, NothingFound, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.document import plan_file
from moeplan.placement.channels.planning import plan_channels
from moeplan.placement.channels.problem import Decision, Settings, channel_problem
from moeplan.placement.planning import Search
from moeplan.placement.result import Budget
from moeplan.schedule.moe_time import layer_lives, lpt_timers, moe_timer, plan_timers
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

LAYERS = (1, 2)


@pytest.fixture(scope="module")
def platform():
    return load_platform("spimoe-4x8")


@pytest.fixture(scope="module")
def model():
    return load_model("deepseek-v2-lite")


def load_of(tokens, model):
    """The same tokens [S, B, K] in both layers."""
    return Load(np.stack([tokens, tokens], axis=2), LAYERS, model.experts, model.name, 1, False, "")


@pytest.fixture(scope="module")
def tokens(model):
    rng = np.random.default_rng(0)
    drawn = rng.random((3, 12, model.experts)).argsort(axis=-1)[..., : model.top_k].astype(np.int16)
    drawn[0, 2, 1:] = -1
    drawn[1, 5:7, ::2] = -1
    return drawn


def random_decision(problem, seed):
    rng = np.random.default_rng(seed)
    return Decision(rng.integers(0, len(problem.groups), problem.experts).astype(np.int32))


@pytest.mark.parametrize("mode", ["row", "col"])
def test_steps_and_sub_batches_cost_what_the_problem_says(model, platform, tokens, mode):
    settings = Settings(mode=mode)
    problem = channel_problem(model, platform, load_of(tokens, model), 1, settings=settings)
    for seed in range(3):
        decision = random_decision(problem, seed)
        timer = moe_timer(problem, decision)
        assert timer.steps_s(tokens) == pytest.approx(problem.step_parts(decision), rel=1e-12, abs=1e-18)
        table = timer.table_s(tokens[0])
        for first, last in ((0, 12), (0, 1), (4, 5), (2, 11), (7, 12)):
            alone = np.full((1, 12, model.top_k), -1, dtype=np.int16)
            alone[0, first:last] = tokens[0, first:last]
            posed = channel_problem(model, platform, load_of(alone, model), 1, settings=settings)
            assert table[first, last] == pytest.approx(posed.step_parts(decision).sum(), rel=1e-12)


def test_star_machines_have_no_network(tokens):
    model, platform = load_model("qwen3-30b-a3b"), load_platform("b200-hbmpim")
    load = Load(tokens[:, :, None], (0,), model.experts, model.name, 1, False, "")
    problem = channel_problem(model, platform, load, 0)
    decision = random_decision(problem, 0)
    parts = moe_timer(problem, decision).steps_s(tokens)
    assert parts == pytest.approx(problem.step_parts(decision), rel=1e-12)
    assert (parts[:, 1:] == 0).all()


def test_views_of_one_table_agree(model, platform, tokens):
    problem = channel_problem(model, platform, load_of(tokens, model), 1)
    timer = moe_timer(problem, random_decision(problem, 1))
    table = timer.table_s(tokens[1])
    assert (np.tril(table) == 0).all()
    assert timer.growing_s(tokens[1]) == pytest.approx(table[0, 1:], rel=1e-12)
    starts = np.array([0, 5, 6, 12])
    assert timer.partition_s(tokens[1], starts) == pytest.approx(table[starts[:-1], starts[1:]], rel=1e-12)
    assert timer.table_s(tokens[1], cuts=starts) == pytest.approx(table[np.ix_(starts, starts)], rel=1e-12)
    # slots in another order on the same sites: the sum over all of them is the same
    order = np.array([3, 1, 0, 2, 11, 10, 9, 8, 7, 6, 5, 4])
    moved = timer.table_s(tokens[1][order], home=timer.homes(12)[order])
    assert moved[0, 12] == pytest.approx(table[0, 12], rel=1e-12)
    # more tokens never take less time
    assert (np.diff(table[0]) >= 0).all()


def test_dropped_experts_cost_nothing(model, platform, tokens):
    problem = channel_problem(model, platform, load_of(tokens, model), 1)
    timer = moe_timer(problem, random_decision(problem, 2))
    assert (timer.steps_s(np.full((1, 4, 2), -1)) == 0).all()
    fewer = tokens.copy()
    fewer[:, :, 3:] = -1
    assert (timer.steps_s(fewer)[:, 0] <= timer.steps_s(tokens)[:, 0]).all()


def test_where_experts_live(model, platform, tokens):
    problem = channel_problem(model, platform, load_of(tokens, model), 1)
    decision = random_decision(problem, 3)
    lives = layer_lives({1: moe_timer(problem, decision)})
    assert lives.shape == (1, model.experts, 32)
    for expert in range(0, model.experts, 7):
        assert set(np.flatnonzero(lives[0, expert])) == set(problem.sites_of(decision, expert))


def test_plans_become_timers(model, platform, tokens):
    load = load_of(tokens, model)
    search = Search(solver="lpt", budget=Budget(time_s=None, iterations=10))
    planned = plan_channels(model, platform, load, search=search)
    plan = plan_file(model, platform, load, None, planned, search=search, settings=Settings(), elapsed_s=0.0)
    timers = plan_timers(plan, model, platform, load)
    assert tuple(timers) == LAYERS
    for layer, done in zip(LAYERS, planned, strict=True):
        assert timers[layer].steps_s(tokens).sum(axis=1).mean() == pytest.approx(
            done.problem.evaluate(done.decision).total_s, rel=1e-12
        )
    assert tuple(plan_timers(plan, model, platform, load, [2])) == (2,)
    with pytest.raises(BadInput, match="the plan has no layer 3"):
        plan_timers(plan, model, platform, load, [3])
    with pytest.raises(BadInput, match="the plan places deepseek-v2-lite, not this olmoe-1b-7b"):
        plan_timers(plan, load_model("olmoe-1b-7b"), platform, load)
    with pytest.raises(BadInput, match="not for this b200-hbmpim"):
        plan_timers(plan, model, load_platform("b200-hbmpim"), load)


def test_quick_placements(model, platform, tokens):
    load = load_of(tokens, model)
    timers = lpt_timers(model, platform, load, LAYERS)
    problem = channel_problem(model, platform, load, 1)
    assert tuple(timers) == LAYERS
    assert timers[1].steps_s(tokens).sum(axis=1).mean() >= problem.lower_bound().value_s
    ep = lpt_timers(model, platform, load, LAYERS[:1], solver="ep")
    assert (ep[1].lives.sum(axis=1) == 1).all()


def test_what_does_not_fit(model, platform, tokens):
    problem = channel_problem(model, platform, load_of(tokens, model), 1)
    timer = moe_timer(problem, random_decision(problem, 0))
    with pytest.raises(BadInput, match="expert 64 is not placed"):
        timer.steps_s(np.full((1, 1, 1), 64))
    with pytest.raises(UsageError, match="3 axes"):
        timer.steps_s(tokens[0])
    with pytest.raises(UsageError, match="does not cut 12 tokens"):
        timer.partition_s(tokens[0], np.array([0, 11]))
    with pytest.raises(UsageError, match="one site per token"):
        timer.table_s(tokens[0], home=np.full(12, 32, dtype=np.int32))
    with pytest.raises(BadInput, match="not feasible"):
        moe_timer(problem, Decision(np.zeros(3, dtype=np.int32)))


def test_a_heuristic_that_finds_nothing_says_so(model, platform, tokens):
    # 40 experts on 32 sites with room for one and a half: contiguous placement puts two on some
    small = dataclasses.replace(model, experts=40)
    room = 1.5 * small.expert_bytes * len(small.moe_layers) + small.other_bytes / 32
    tight = dataclasses.replace(platform, site_memory_bytes=room)
    load = load_of(np.where(tokens < 40, tokens, -1), small)
    with pytest.raises(NothingFound, match="ep finds no feasible placement of layer 1"):
        lpt_timers(small, tight, load, (1,), solver="ep")
