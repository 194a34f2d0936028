import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.workload.model import load_model
from moeplan.workload.replay import replay, split
from moeplan.workload.stats import load_statistics, trace_statistics
from moeplan.workload.synthetic import (
    SAMPLERS,
    SyntheticRouting,
    synthesize,
    synthesize_blocks,
    synthesize_load,
)
from moeplan.workload.trace import check_model, read_trace, write_trace

PLAIN = SyntheticRouting(
    tokens_per_request=50,
    skew=0.5,
    skew_spread=0.0,
    cold_tail=0.0,
    drift=0.0,
    persistence=0.0,
    coactivation=0.0,
)


@pytest.fixture(scope="module")
def model():
    """OLMoE (64 experts, top-8) cut to four MoE layers."""
    return dataclasses.replace(load_model("olmoe-1b-7b"), moe_layers=(2, 3, 4, 5), dense_intermediate_size=8)


def draw(model, tokens=12_800, seed=0, **knobs):
    return synthesize(model, tokens=tokens, seed=seed, routing=dataclasses.replace(PLAIN, **knobs))


def steps(trace):
    return load_statistics(replay(trace, batch=64, steps=100, seed=0))


def test_same_seed_same_bytes(tmp_path, model):
    traces = [synthesize(model, tokens=500, seed=seed) for seed in (3, 3, 4)]
    for name, trace in zip("abc", traces, strict=True):
        write_trace(trace, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert traces[0].fingerprint == traces[1].fingerprint != traces[2].fingerprint
    assert read_trace(tmp_path / "a").fingerprint == traces[0].fingerprint


def test_it_is_a_trace_of_the_model_and_says_what_made_it(model):
    trace = synthesize(model, tokens=100, seed=7)
    check_model(trace, model)
    assert trace.experts.shape == (100, 4, 8)
    assert trace.source.startswith("synthetic (seed 7, tokens_per_request 256, concurrency 64, skew ")


def test_requests_run_side_by_side(model):
    # three at a time, two tokens each: rows 0-2 are step 0 of requests 0-2, row 6 begins request 3
    trace = draw(model, tokens=8, concurrency=3, tokens_per_request=2)
    assert trace.request.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert trace.position.tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert trace.step.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_top_1_without_correlation_is_drawn_by_popularity(model, sampler):
    # Plackett-Luce with one draw is the softmax; two experts of log popularity 0 and -2 share
    # 1 / (1 + e^-2) = 0.8808 and 0.1192; 12,800 draws give a standard error of 0.003
    pair = dataclasses.replace(model, experts=2, top_k=1)
    trace = draw(pair, skew=0.0, cold_tail=0.5, cold_depth=2.0, sampler=sampler)
    for layer in range(4):
        shares = np.bincount(trace.experts[:, layer, 0], minlength=2) / trace.tokens
        assert shares.max() == pytest.approx(0.8808, abs=0.012)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_top_2_follows_plackett_luce(model, sampler):
    # weights 1, 1, e^-1 (one cold expert of three): P(cold in top-2) = p + 2 q p / (1 - q)
    # with q = 1 / (2 + e^-1) = 0.4223, p = 0.1554: 0.1554 + 2 * 0.4223 * 0.1554 / 0.5777 = 0.3826
    triple = dataclasses.replace(model, experts=3, top_k=2)
    trace = draw(triple, skew=0.0, cold_tail=0.34, cold_depth=1.0, sampler=sampler)
    for layer in range(4):
        rates = np.bincount(trace.experts[:, layer].ravel(), minlength=3) / trace.tokens
        assert rates.min() == pytest.approx(0.3826, abs=0.016)


def test_no_skew_is_uniform(model):
    counts = np.bincount(draw(model, skew=0.0).experts[:, 0].ravel(), minlength=64)
    # 12,800 x 8 / 64 = 1,600 each; a binomial count scatters by 37
    assert np.abs(counts - 1600).max() < 5 * 37


def test_more_skew_more_gini(model):
    found = [steps(draw(model, skew=skew)).gini.mean for skew in (0.2, 0.6, 1.0, 1.5)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.2


def test_spread_of_skew_tells_layers_apart(model):
    many = dataclasses.replace(model, moe_layers=tuple(range(16)))

    def scatter(spread):
        return np.std(steps(draw(many, tokens=3200, skew_spread=spread)).gini.per_layer)

    assert scatter(0.6) > 1.5 * scatter(0.0)


def test_cold_tail_is_activated_less(model):
    found = [steps(draw(model, cold_tail=tail, cold_depth=4.0)).union[64].mean for tail in (0.0, 0.25, 0.5)]
    assert found == sorted(found, reverse=True)


def test_drift_moves_popularity_over_the_recording(model):
    def moved(drift):
        halves = split(draw(model, drift=drift, drift_memory=0.99), 0.5, by="time", seed=0)
        shares = [
            np.bincount(half.experts[:, 0].ravel(), minlength=64) / half.experts[:, 0].size for half in halves
        ]
        return 0.5 * np.abs(shares[0] - shares[1]).sum()

    assert moved(0.0) < 0.02
    assert moved(0.0) < moved(0.3) < moved(0.8)


def test_persistence_makes_consecutive_tokens_overlap(model):
    found = [trace_statistics(draw(model, persistence=strength)) for strength in (0.0, 1.0, 2.0)]
    assert found[0].overlap.mean == pytest.approx(found[0].overlap_by_chance.mean, abs=0.005)
    excess = [item.overlap.mean - item.overlap_by_chance.mean for item in found]
    assert excess == sorted(excess)
    assert excess[-1] > 0.2


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_coactivation_groups_pairs(model, sampler):
    found = [
        trace_statistics(draw(model, coactivation=strength, sampler=sampler)) for strength in (0.0, 1.5, 3.0)
    ]
    distances = [item.pair_distance.mean for item in found]
    assert distances == sorted(distances)
    assert distances[-1] > distances[0] + 0.15
    assert found[-1].top_lifts[0].lift > 2.0


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [{"concurrency": 7, "tokens_per_request": 3}, {"concurrency": 5000}])
def test_blocks_are_the_whole_in_pieces(model, sampler, size):
    # 1,500 experts: blocks of 2,796 rows, which no step and no wave of requests divides
    wide = dataclasses.replace(model, moe_layers=(2,), experts=1500)
    routing = SyntheticRouting(sampler=sampler, **size)
    whole = synthesize(wide, tokens=3001, seed=5, routing=routing)
    blocks = list(synthesize_blocks(wide, tokens=3001, seed=5, routing=routing))
    assert [block.tokens for block in blocks] == [2796, 205]
    for name in ("experts", "request", "position", "step"):
        assert np.array_equal(
            np.concatenate([getattr(block, name) for block in blocks]), getattr(whole, name)
        )
    assert {block.source for block in blocks} == {whole.source}


def test_both_samplers_draw_the_same_distribution(model):
    race, draws = (steps(draw(model, skew=1.0, sampler=sampler)) for sampler in SAMPLERS)
    assert race.gini.mean == pytest.approx(draws.gini.mean, rel=0.02)
    assert race.union[8].mean == pytest.approx(draws.union[8].mean, rel=0.02)


def test_a_trace_drawn_as_earlier_versions_did_says_the_same(model):
    later = ("head", "ceiling", "cold_spread", "even", "sampler")
    source = draw(model, tokens=10).source
    assert not any(name in source for name in later)
    changed = draw(
        model, tokens=10, head=1.5, ceiling=2.0, cold_spread=0.1, even=True, sampler="draws"
    ).source
    assert "head 1.5" in changed
    assert changed.endswith("even 1, sampler draws)")


def test_a_load_is_the_recorded_steps(model):
    load = synthesize_load(model, batch=12, steps=9, seed=3, routing=PLAIN)
    trace = draw(model, tokens=108, seed=3, concurrency=12)
    assert load.experts.shape == (9, 12, 4, 8)
    assert np.array_equal(load.experts.reshape(trace.experts.shape), trace.experts)
    assert (load.layers, load.requests, load.repeated) == (trace.layers, 12, False)
    for size in ({"batch": 0, "steps": 1}, {"batch": 1, "steps": 0}):
        with pytest.raises(UsageError, match="must be at least 1"):
            synthesize_load(model, **size, seed=0)


def test_even_popularities_differ_in_who_not_in_how_much(model):
    def shares(seed):
        trace = draw(model, skew=1.0, even=True, seed=seed)
        return np.bincount(trace.experts[:, 0].ravel(), minlength=64) / trace.tokens

    one, other = shares(0), shares(1)
    assert np.abs(one - other).max() > 0.1
    # binomial scatter of 12,800 draws: at most 0.0044
    assert np.abs(np.sort(one) - np.sort(other)).max() < 5 * 0.0044


def test_head_and_ceiling_shape_the_hottest(model):
    def hottest(**knobs):
        return steps(draw(model, skew=0.7, even=True, **knobs)).hottest_over_mean.mean

    assert hottest(head=0.5) < hottest() < hottest(head=1.5)
    assert hottest(ceiling=1.0) < hottest(ceiling=2.0) < hottest()


def test_cold_spread_tells_layers_apart(model):
    many = dataclasses.replace(model, moe_layers=tuple(range(16)))

    def scatter(spread):
        cold = {"cold_tail": 0.3, "cold_depth": 3.0, "cold_spread": spread, "even": True}
        return np.std(steps(draw(many, tokens=3200, **cold)).union[64].per_layer)

    assert scatter(0.5) > 2 * scatter(0.0)


@pytest.mark.parametrize(
    ("knobs", "complaint"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"skew": -1.0}, "skew must lie between 0 and 20"),
        ({"skew": float("nan")}, "skew must lie between 0 and 20"),
        ({"cold_tail": 1.0}, "cold_tail must be at least 0 and less than 1"),
        ({"head": -0.1}, "head must lie between 0 and 20"),
        ({"sampler": "dice"}, "there is no sampler 'dice'"),
        ({"drift_memory": 1.0}, "drift_memory must be at least 0 and less than 1"),
    ],
)
def test_knobs_out_of_range(knobs, complaint):
    with pytest.raises(UsageError, match=complaint):
        SyntheticRouting(**knobs)


def test_no_tokens(model):
    with pytest.raises(UsageError, match="at least one token"):
        synthesize(model, tokens=0, seed=0)
