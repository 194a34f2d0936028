"""Adaptive routing: algorithm 1 against a twin that follows the paper line by line, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.pruning import (
    PruningSettings,
    depth_tier,
    prune,
    with_phase,
    with_rank_weights,
)
from moeplan.workload.trace import PHASES, RoutingTrace, read_trace, write_trace

THINK, ANSWER = PHASES.index("think"), PHASES.index("answer")


def weighted(seed, tokens=40, layers=(0, 2, 5), num_experts=8, top_k=4, steps=5):
    rng = np.random.default_rng(seed)
    draws = rng.random((tokens, len(layers), num_experts)).argsort(axis=-1)[..., :top_k]
    return RoutingTrace(
        experts=draws.astype(np.int16),
        weights=rng.dirichlet(np.full(top_k, 0.7), (tokens, len(layers))).astype(np.float32),
        request=np.arange(tokens, dtype=np.int32) % 4,
        position=np.arange(tokens, dtype=np.int32) // 4,
        step=np.sort(rng.integers(0, steps, tokens)).astype(np.int32),
        phase=rng.integers(THINK, ANSWER + 1, tokens).astype(np.int8),
        model="tiny",
        layers=layers,
        num_experts=num_experts,
        top_k=top_k,
        source="test",
    )


def one(weights, phase=ANSWER, layers=(0,), num_experts=None):
    """One token whose expert i has the i-th weight, in one layer."""
    weights = np.array(weights, dtype=np.float32)
    return RoutingTrace(
        experts=np.arange(len(weights), dtype=np.int16)[None, None].repeat(len(layers), axis=1),
        weights=weights[None, None].repeat(len(layers), axis=1),
        request=np.zeros(1, dtype=np.int32),
        position=np.zeros(1, dtype=np.int32),
        phase=np.array([phase], dtype=np.int8),
        model="tiny",
        layers=layers,
        num_experts=num_experts or len(weights),
        top_k=len(weights),
        source="test",
    )


def twin(trace, setting, cognitive, lives, tier):
    """Algorithm 1 with loops; who stays, as a set per (token, layer)."""
    alpha_of = {THINK: setting.think, ANSWER: setting.answer}
    stays = {}
    for t in range(trace.tokens):
        for index, depth in enumerate(tier):
            ids = [int(e) for e in trace.experts[t, index]]
            raw = dict(zip(ids, trace.weights[t, index], strict=True))
            think = trace.phase[t] == THINK
            lifted = {
                e: raw[e] * np.float32(setting.boost) if think and cognitive[index, e] else raw[e]
                for e in ids
            }
            if setting.uniform is not None:
                alpha = setting.uniform
            else:
                tiers = alpha_of.get(int(trace.phase[t]))
                alpha = 0.0 if tiers is None else tiers[depth]
            limit = np.float32(alpha) * max(lifted.values())
            kept = [e for e in ids if lifted[e] >= limit]
            for e in sorted(ids, key=lambda e: -lifted[e]):
                if len(kept) >= setting.k_min[depth]:
                    break
                if e not in kept:
                    kept.append(e)
            stays[t, index] = kept
    if setting.congestion:
        for index, depth in enumerate(tier):
            for step in set(trace.step.tolist()):
                rows = [t for t in range(trace.tokens) if trace.step[t] == step]
                active = {e for t in rows for e in stays[t, index]}
                eta = np.array([sum(lives[index, e, c] for e in active) for c in range(lives.shape[2])])
                full = eta > eta.mean() + eta.std()
                for t in rows:
                    for e in sorted(stays[t, index], key=lambda e: _weight(trace, t, index, e)):
                        crowded = (lives[index, e] & full).any()
                        enough = len(stays[t, index]) > setting.k_min[depth]
                        if crowded and enough and not cognitive[index, e]:
                            stays[t, index].remove(e)
    return stays


def _weight(trace, t, index, expert):
    return trace.weights[t, index][trace.experts[t, index] == expert][0]


def kept_sets(done):
    tokens, layers, _ = done.trace.experts.shape
    return {
        (t, index): {int(e) for e in done.trace.experts[t, index] if e >= 0}
        for t in range(tokens)
        for index in range(layers)
    }


SETTINGS = [
    PruningSettings(uniform=0.3),
    PruningSettings(uniform=1.0, k_min=(3, 2, 1)),
    PruningSettings(think=(0.2, 0.3, 0.5), answer=(0.4, 0.6, 0.9), k_min=(2, 1, 1)),
    PruningSettings(answer=(0.5, 0.5, 0.5), congestion=True),
    PruningSettings(think=(0.3, 0.3, 0.3), boost=2.0, cognitive=2),
    PruningSettings(think=(0.1, 0.2, 0.4), answer=(0.3,) * 3, boost=1.5, cognitive=2, congestion=True),
    PruningSettings(congestion=True, k_min=(2, 2, 2)),
]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_algorithm_1_against_the_twin(setting, seed):
    trace = weighted(seed)
    rng = np.random.default_rng(seed + 100)
    cognitive = rng.random((3, 8)) < 0.25
    lives = rng.random((3, 8, 6)) < 0.3
    lives[np.arange(3)[:, None], np.arange(8), rng.integers(0, 6, (3, 8))] = True
    done = prune(trace, setting, cognitive=cognitive, lives=lives, model_layers=6)
    favoured = cognitive if setting.cognitive else np.zeros_like(cognitive)
    expected = twin(trace, setting, favoured, lives, depth_tier(trace.layers, 6))
    assert kept_sets(done) == {place: set(kept) for place, kept in expected.items()}
    assert done.by_weight + done.by_congestion == (~done.kept).sum()


def test_thresholds_by_hand():
    trace = one([0.5, 0.3, 0.15, 0.05])
    assert prune(trace, PruningSettings(uniform=0.6)).trace.experts.tolist() == [[[0, 1, -1, -1]]]
    assert prune(trace, PruningSettings(uniform=0.61)).trace.experts.tolist() == [[[0, -1, -1, -1]]]
    # k_min fills up by weight
    floor = prune(trace, PruningSettings(uniform=1.0, k_min=(3, 1, 1)))
    assert floor.trace.experts.tolist() == [[[0, 1, 2, -1]]]
    assert floor.kept_mass == pytest.approx([0.95])
    assert floor.experts_per_token.tolist() == [3.0]
    # remaining weights keep their ratios and the token's sum
    assert floor.trace.weights[0, 0] == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.0])


def test_weights_that_do_not_sum_to_one_keep_their_sum():
    done = prune(one([0.2, 0.1, 0.05]), PruningSettings(uniform=0.5))
    assert done.trace.weights.sum() == pytest.approx(0.35)
    assert done.kept_mass == pytest.approx([0.3 / 0.35])


def test_boost_lifts_cognitive_experts_in_the_think_phase_alone():
    setting = PruningSettings(think=(0.6,) * 3, boost=2.0, cognitive=1)
    cognitive = np.array([[False, False, True]])
    think = one([0.5, 0.3, 0.2], THINK)  # the third counts as 0.4, so the limit is 0.3
    assert prune(think, setting, cognitive=cognitive).trace.experts.tolist() == [[[0, 1, 2]]]
    assert prune(think, PruningSettings(think=(0.6,) * 3)).trace.experts.tolist() == [[[0, 1, -1]]]
    # a boosted expert may push others below the threshold
    tall = replace(setting, boost=4.0)
    assert prune(think, tall, cognitive=cognitive).trace.experts.tolist() == [[[0, -1, 2]]]
    both = replace(setting, answer=(0.6,) * 3)
    mixed = RoutingTrace(
        experts=np.tile(think.experts, (2, 1, 1)),
        weights=np.tile(think.weights, (2, 1, 1)),
        request=np.zeros(2, dtype=np.int32),
        position=np.arange(2, dtype=np.int32),
        phase=np.array([THINK, ANSWER], dtype=np.int8),
        model="tiny",
        layers=(0,),
        num_experts=3,
        top_k=3,
        source="test",
    )
    assert prune(mixed, both, cognitive=cognitive).trace.experts[:, 0].tolist() == [[0, 1, 2], [0, 1, -1]]


def test_congestion_by_hand():
    # Channel 0 holds experts 0 to 3, channels 1 to 3 one each: eta 4, 1, 1, 1; mean 1.75, deviation 1.3.
    lives = np.zeros((1, 7, 4), dtype=np.bool_)
    lives[0, range(7), [0, 0, 0, 0, 1, 2, 3]] = True
    trace = one([0.05, 0.1, 0.15, 0.2, 0.1, 0.2, 0.2])
    setting = PruningSettings(congestion=True, k_min=(5, 5, 5))
    done = prune(trace, setting, lives=lives, together=np.array([7]))
    assert done.trace.experts.tolist() == [[[-1, -1, 2, 3, 4, 5, 6]]]
    assert (done.by_weight, done.by_congestion) == (0, 2)
    cognitive = np.zeros((1, 7), dtype=np.bool_)
    cognitive[0, 0] = True
    spared = prune(
        trace, replace(setting, cognitive=1), lives=lives, together=np.array([7]), cognitive=cognitive
    )
    assert spared.trace.experts.tolist() == [[[0, -1, -1, 3, 4, 5, 6]]]


def test_even_channels_are_never_congested():
    everywhere = np.ones((1, 4, 3), dtype=np.bool_)
    trace = one([0.4, 0.3, 0.2, 0.1])
    done = prune(trace, PruningSettings(congestion=True), lives=everywhere, together=np.array([0]))
    assert done.kept.all()


def test_phases_without_alpha_are_left_alone():
    trace = weighted(3)
    done = prune(trace, PruningSettings(answer=(1.0, 1.0, 1.0)))
    assert done.kept[trace.phase == THINK].all()
    assert (done.kept[trace.phase == ANSWER].sum(axis=-1) == 1).all()


def test_nothing_set_changes_nothing():
    trace = weighted(0)
    done = prune(trace, PruningSettings())
    assert done.kept.all()
    assert np.array_equal(done.trace.experts, trace.experts)
    assert done.trace.weights == pytest.approx(trace.weights)


@given(
    st.integers(0, 1000),
    st.floats(0.05, 1.0),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_invariants(seed, alpha, k_min, congestion):
    trace = weighted(seed, tokens=20)
    lives = np.random.default_rng(seed).random((3, 8, 5)) < 0.4
    setting = PruningSettings(uniform=alpha, k_min=k_min, congestion=congestion)
    done = prune(trace, setting, lives=lives, model_layers=6)
    count = done.kept.sum(axis=-1)
    assert (count >= np.array(k_min)[depth_tier(trace.layers, 6)]).all()
    assert np.take_along_axis(done.kept, trace.weights.argmax(axis=-1)[..., None], -1).all() or congestion
    assert done.trace.weights.sum(axis=-1) == pytest.approx(trace.weights.sum(axis=-1), rel=1e-5)
    tighter = prune(trace, PruningSettings(uniform=min(1.0, alpha + 0.1), k_min=k_min), model_layers=6)
    looser = prune(trace, PruningSettings(uniform=alpha, k_min=k_min), model_layers=6)
    assert (tighter.kept <= looser.kept).all()


def test_a_pruned_trace_can_be_pruned_again():
    once = prune(weighted(1), PruningSettings(uniform=0.3)).trace
    twice = prune(once, PruningSettings(uniform=0.3))
    assert twice.kept.sum() == (once.experts >= 0).sum()
    more = prune(once, PruningSettings(uniform=0.9, k_min=(2, 2, 2)))
    assert (more.kept.sum(axis=-1) >= np.minimum(2, (once.experts >= 0).sum(axis=-1))).all()
    assert (more.trace.experts[once.experts < 0] == -1).all()


def test_round_trip_on_disk(tmp_path):
    pruned = prune(weighted(2), PruningSettings(uniform=0.5)).trace
    write_trace(pruned, tmp_path / "pruned.parquet")
    again = read_trace(tmp_path / "pruned.parquet")
    assert again.fingerprint == pruned.fingerprint
    assert (again.experts == -1).any()


def test_depth_tiers():
    assert depth_tier((0, 1, 2, 3, 4, 5)).tolist() == [0, 0, 1, 1, 2, 2]
    assert depth_tier((1, 26), 27).tolist() == [0, 2]
    assert depth_tier((3, 4), 12).tolist() == [0, 1]


def test_assumed_phases_and_weights():
    bare = replace(weighted(0, tokens=12), phase=None, weights=None)
    told = with_phase(bare, 2 / 3)
    assert [
        told.phase[bare.request == r][np.argsort(bare.position[bare.request == r])].tolist() for r in range(4)
    ] == [[THINK, THINK, ANSWER]] * 4
    ranked = with_rank_weights(bare, 0.5)
    assert ranked.weights[3, 1] == pytest.approx(np.array([8, 4, 2, 1]) / 15)
    assert "assumed" in ranked.source
    with pytest.raises(BadInput, match="phases of its own"):
        with_phase(told, 0.5)
    with pytest.raises(BadInput, match="weights of its own"):
        with_rank_weights(ranked, 0.5)
    for call, value in ((with_phase, 1.1), (with_rank_weights, 0.0)):
        with pytest.raises(UsageError, match="is"):
            call(bare, value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"uniform": 0.0}, "alpha of uniform is 0.0"),
        ({"uniform": 1.01}, "alpha of uniform is 1.01"),
        ({"think": (0.1, float("nan"), 0.2)}, "alpha of think is nan"),
        ({"answer": (0.1, 0.2)}, "needs 3 values"),
        ({"uniform": 0.5, "think": (0.1, 0.1, 0.1)}, "goes for all phases"),
        ({"k_min": (1, 0, 1)}, "k_min is"),
        ({"boost": 0.5, "cognitive": 1}, "boost is 0.5"),
        ({"boost": 2.0}, "needs cognitive experts"),
        ({"cognitive": -1}, "-1 cognitive experts"),
    ],
)
def test_settings_out_of_range(wrong, says):
    with pytest.raises(UsageError, match=says):
        PruningSettings(**wrong)


def test_what_does_not_fit_the_trace():
    trace = weighted(0)
    with pytest.raises(UsageError, match="k_min is 5, and a token has only 4"):
        prune(trace, PruningSettings(uniform=0.5, k_min=(5, 1, 1)))
    with pytest.raises(BadInput, match="no router weights"):
        prune(replace(trace, weights=None), PruningSettings(uniform=0.5))
    with pytest.raises(BadInput, match="does not tell phases"):
        prune(replace(trace, phase=None), PruningSettings(think=(0.5,) * 3))
    calm = replace(trace, phase=np.full(40, ANSWER, dtype=np.int8))
    with pytest.raises(BadInput, match="'think', which never occurs"):
        prune(calm, PruningSettings(think=(0.5,) * 3))
    with pytest.raises(UsageError, match="where experts live"):
        prune(trace, PruningSettings(congestion=True))
    with pytest.raises(UsageError, match="bool, with axes of 3 layers and 8 experts"):
        prune(trace, PruningSettings(congestion=True), lives=np.ones((3, 9, 2), dtype=np.bool_))
    with pytest.raises(UsageError, match="no decode steps"):
        prune(
            replace(trace, step=None),
            PruningSettings(congestion=True),
            lives=np.ones((3, 8, 2), dtype=np.bool_),
        )
    with pytest.raises(UsageError, match="one step per token"):
        prune(
            trace,
            PruningSettings(congestion=True),
            lives=np.ones((3, 8, 2), dtype=np.bool_),
            together=np.zeros(3),
        )
    with pytest.raises(UsageError, match="cognitive experts"):
        prune(trace, PruningSettings(think=(0.5,) * 3, boost=2.0, cognitive=2))
