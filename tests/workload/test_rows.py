import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.pruning import PruningSettings
from moeplan.workload.replay import replay
from moeplan.workload.rows import prune_replayed, replay_rows


def weights_for(trace, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(trace.top_k), trace.experts.shape[:2]).astype(np.float32)


@pytest.fixture
def trace(make_trace):
    bare = make_trace((5, 3, 4, 6), layers=(1, 3), num_experts=6, top_k=3)
    return make_trace(
        (5, 3, 4, 6), layers=(1, 3), num_experts=6, top_k=3, experts=bare.experts, weights=weights_for(bare)
    )


@pytest.mark.parametrize(("batch", "steps"), [(3, 7), (8, 4), (1, 30)])
def test_same_steps_as_replay(trace, batch, steps):
    replayed, plain = (f(trace, batch=batch, steps=steps, seed=5) for f in (replay_rows, replay))
    assert replayed.load.fingerprint == plain.fingerprint
    assert (replayed.load.note, replayed.load.requests) == (plain.note, plain.requests)
    assert np.array_equal(trace.experts[replayed.rows], plain.experts)


def test_fresh_tokens_do_not_follow(trace):
    replayed = replay_rows(trace, batch=3, steps=12, seed=1)
    assert replayed.fresh[0].all()
    for step, slot in zip(*np.nonzero(~replayed.fresh), strict=True):
        now, before = replayed.rows[step, slot], replayed.rows[step - 1, slot]
        assert trace.request[now] == trace.request[before]
        assert trace.position[now] == trace.position[before] + 1
    # 36 tokens in 3 slots, requests of 3 to 6 tokens: some slots took a new request
    assert replayed.fresh[1:].any()


def test_taken_tokens_carry_their_step(trace):
    replayed = replay_rows(trace, batch=3, steps=4, seed=1)
    taken = replayed.taken()
    assert taken.step.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert np.array_equal(taken.experts.reshape(4, 3, 2, 3), replayed.load.experts)
    assert np.array_equal(taken.weights, trace.weights[replayed.rows.ravel()])


def test_pruned_steps_count_what_is_left(trace):
    replayed = replay_rows(trace, batch=3, steps=4, seed=1)
    load, done = prune_replayed(replayed, PruningSettings(uniform=0.8))
    assert np.array_equal(load.experts.reshape(12, 2, 3), done.trace.experts)
    assert load.counts().sum() == done.kept.sum() < replayed.load.counts().sum()
    assert "are pruned" in load.note


def test_short_traces_are_refused_as_by_replay(trace):
    with pytest.raises(BadInput, match="18 tokens"):
        replay_rows(trace, batch=19, steps=1, seed=0)
