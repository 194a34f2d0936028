"""The expert predictor: equation 5 by hand, its calibration against numpy, its worth on real routing."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.schedule.moe_time import lpt_timers
from moeplan.schedule.predictor import (
    Predictor,
    calibrate_predictor,
    cost_bias,
    hit_rates,
    step_zero_table,
)
from moeplan.workload.load import Load
from moeplan.workload.model import load_model
from moeplan.workload.readers.arrays import read_arrays
from moeplan.workload.replay import split
from moeplan.workload.rows import replay_rows
from moeplan.workload.trace import RoutingTrace


def sticky(seed, stay, requests=12, length=30, layers=(0, 4), num_experts=10, top_k=3):
    """Requests whose token keeps each expert set of the one before with probability `stay`."""
    rng = np.random.default_rng(seed)
    odds = rng.random(num_experts) + 0.2
    rows = []
    for _ in range(requests):
        now = None
        for _ in range(length):
            fresh = np.stack([(rng.exponential(size=num_experts) / odds).argsort()[:top_k] for _ in layers])
            now = fresh if now is None or rng.random() >= stay else now
            rows.append(now)
    return RoutingTrace(
        experts=np.array(rows, dtype=np.int16),
        request=np.repeat(np.arange(requests, dtype=np.int32), length),
        position=np.tile(np.arange(length, dtype=np.int32), requests),
        model="tiny",
        layers=layers,
        num_experts=num_experts,
        top_k=top_k,
        source="test",
    )


def load_of(experts, num_experts):
    experts = np.array(experts, dtype=np.int16)
    layers = tuple(range(experts.shape[2]))
    return Load(experts, layers, num_experts, "tiny", 1, False, "")


def by_hand(weights, decay, frequency, top_k=1):
    frequency = np.array([frequency])
    return Predictor(np.array([weights]), np.array([decay]), frequency, np.zeros(1), layers=(0,), top_k=top_k)


def test_equation_5_by_hand():
    # one slot, top-1 of 3: it runs 2, 0, 0, 1
    load = load_of([[[[2]]], [[[0]]], [[[0]]], [[[1]]]], 3)
    f = [0.2, 0.5, 0.3]
    # nothing known at first: the most frequent
    assert by_hand((1, 0, 0), 0.5, f).predict(load).ravel().tolist() == [1, 2, 0, 0]
    assert by_hand((0, 0, 1), 0.5, f).predict(load).ravel().tolist() == [1, 1, 1, 1]
    # averages: (.1 .25 .65), then (.55 .125 .325), then (.775 .0625 .1625)
    assert by_hand((0, 1, 0), 0.5, f).predict(load).ravel().tolist() == [1, 2, 0, 0]
    # a slower one, decay .9: (.18 .45 .37), (.262 .405 .333), (.3358 .3645 .2997)
    assert by_hand((0, 1, 0), 0.9, f).predict(load).ravel().tolist() == [1, 1, 1, 1]
    # with a nudge for the last token, .04: 2 scores .41, 0 .302, then 0 .3758
    assert by_hand((0.04, 1, 0), 0.9, f).predict(load).ravel().tolist() == [1, 1, 1, 0]


def test_a_fresh_token_forgets_its_slot():
    load = load_of([[[[2]]], [[[2]]], [[[2]]]], 3)
    fresh = np.array([[True], [False], [True]])
    told = by_hand((1, 1, 0), 0.5, [0.2, 0.5, 0.3]).predict(load, fresh)
    assert told.ravel().tolist() == [1, 2, 1]


def test_predictions_are_distinct_and_best_first():
    load = load_of([[[[0, 1]]], [[[0, 1]]]], 4)
    told = by_hand((1.0, 0, 1.0), 0.5, [0.1, 0.2, 0.9, 0.8], top_k=3).predict(load)
    # scores 1.1, 1.2, .9, .8
    assert told[1, 0, 0].tolist() == [1, 0, 2]


def test_calibration_is_least_squares():
    trace = sticky(0, 0.5)
    predictor = calibrate_predictor(trace, decays=(0.8,))
    marks = np.zeros((trace.tokens, 2, 10))
    np.put_along_axis(marks, trace.experts.astype(int), 1.0, axis=2)
    frequency = marks.mean(axis=0)
    assert predictor.frequency == pytest.approx(frequency)
    for layer in range(2):
        rows, targets = [], []
        for request in range(12):
            average = frequency[layer]
            for t in range(request * 30, request * 30 + 30):
                if t > request * 30:
                    rows.append(np.stack([marks[t - 1, layer], average, frequency[layer]], axis=1))
                    targets.append(marks[t, layer])
                average = 0.8 * average + 0.2 * marks[t, layer]
        x, *_ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)
        found = predictor.weights[layer]
        assert (found >= 0).all()
        if (x >= 0).all():
            assert found == pytest.approx(x, abs=1e-9)
        left = np.concatenate(rows)[:, :1].ravel()
        assert predictor.autocorrelation[layer] == pytest.approx(
            np.corrcoef(left, np.concatenate(targets))[0, 1]
        )


def test_coefficients_follow_what_predicts():
    # tokens that never change: the last one says it all; independent tokens: only popularity is left
    still, loose = calibrate_predictor(sticky(1, 1.0)), calibrate_predictor(sticky(1, 0.0, requests=60))
    assert still.weights[:, 0] == pytest.approx(1.0, abs=1e-6)
    assert still.autocorrelation == pytest.approx(1.0)
    assert (loose.weights[:, 0] < 0.1).all()
    assert (loose.weights[:, 2] > 0.5).all()


def test_the_order_of_rows_does_not_matter():
    trace = sticky(2, 0.5)
    mixed = trace.take(np.random.default_rng(0).permutation(trace.tokens))
    one, other = calibrate_predictor(trace), calibrate_predictor(mixed)
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.decay, other.decay)


def test_hit_rates_by_hand():
    load = load_of([[[[0, 1]], [[2, 3]]], [[[0, 1]], [[0, 2]]]], 4)
    told = np.array([[[[0, 1]], [[0, 1]]], [[[0, 3]], [[0, 1]]]], dtype=np.int16)
    predictor = by_hand((1, 0, 0), 0.5, [0.4, 0.1, 0.3, 0.2], top_k=2)
    rates = hit_rates(predictor, load, told)
    # step 1 alone: slot 0 has one of two right, slot 1 one of two; active 0, 1, 2, of which 0 and 1 are told
    assert rates.token.tolist() == [0.5]
    assert rates.active == pytest.approx([2 / 3])
    assert rates.choices.tolist() == [0.75]
    # always 0 and 2: slot 0 one of two, slot 1 both
    assert rates.chance.tolist() == [0.75]
    every = hit_rates(predictor, load, told, fresh=np.zeros((2, 2), dtype=np.bool_))
    assert every.token == pytest.approx([4 / 8])
    assert every.means()["token"] == pytest.approx(0.5)


def test_dropped_experts_are_neither_hit_nor_missed():
    load = load_of([[[[0, 1]]], [[[0, -1]]]], 4)
    told = np.zeros((2, 1, 1, 2), dtype=np.int16)
    told[..., 1] = 1
    rates = hit_rates(by_hand((1, 0, 0), 0.5, [0.25] * 4, top_k=2), load, told)
    assert (rates.token.tolist(), rates.active.tolist()) == ([1.0], [1.0])
    after = load_of([[[[0, -1]]], [[[1, 2]]]], 4)
    assert by_hand((1, 0, 0), 0.5, [0.1, 0.2, 0.3, 0.4]).predict(after)[1].ravel().tolist() == [0]


def test_the_past_is_worth_something_on_real_routing():
    folder = os.environ.get("MOEPLAN_TRACES")
    if not folder:
        pytest.skip("MOEPLAN_TRACES does not name the folder of recorded traces")
    model = load_model("gpt-oss-20b")
    trace = read_arrays(Path(folder) / "gpt-oss-20b-decode.npz", model)
    few = replace(trace, experts=trace.experts[:, :4], weights=None, layers=trace.layers[:4])
    profile, held_out = split(few, 0.5, seed=0)
    predictor = calibrate_predictor(profile)
    replayed = replay_rows(held_out, batch=32, steps=32, seed=0)
    told = predictor.predict(replayed.load, replayed.fresh)
    rates = hit_rates(predictor, replayed.load, told, replayed.fresh)
    assert (rates.token > rates.chance).all()
    assert (rates.choices >= rates.active - 0.05).all()


def test_step_zero_table_is_the_mean_over_profiled_steps(platform_and_timers):
    load, timers = platform_and_timers
    table = step_zero_table(timers, load, steps=load.steps)
    assert table[0] == 0.0
    assert (np.diff(table) > 0).all()
    whole = sum(timer.steps_s(load.experts[:, :, i]).sum(axis=1) for i, timer in enumerate(timers))
    assert table[-1] == pytest.approx(whole.mean(), rel=1e-12)


def test_cost_bias_is_one_for_true_predictions(platform_and_timers):
    load, timers = platform_and_timers
    assert cost_bias(timers, load, load.experts) == pytest.approx([1.0] * len(timers))
    crowded = np.zeros_like(load.experts) + np.arange(load.top_k, dtype=np.int16)
    assert (cost_bias(timers, load, crowded) < 1.0).all()
    single = replace(load, experts=load.experts[:1])
    with pytest.raises(BadInput, match="one step has no prediction"):
        cost_bias(timers, single, single.experts)


@pytest.fixture(scope="module")
def platform_and_timers():
    from moeplan.hardware.platform import load_platform

    model = load_model("deepseek-v2-lite")
    rng = np.random.default_rng(0)
    drawn = rng.random((4, 16, 2, model.experts)).argsort(axis=-1)[..., : model.top_k]
    load = Load(drawn.astype(np.int16), (1, 2), model.experts, model.name, 1, False, "")
    return load, list(lpt_timers(model, load_platform("spimoe-4x8"), load, (1, 2)).values())


def test_what_cannot_be_predicted():
    alone = sticky(0, 0.5, length=1)
    with pytest.raises(BadInput, match="no token of the trace follows another"):
        calibrate_predictor(alone)
    trace = sticky(0, 0.5)
    for decays in ((), (1.0,), (-0.1,)):
        with pytest.raises(UsageError, match="decays"):
            calibrate_predictor(trace, decays=decays)
    predictor = calibrate_predictor(trace)
    with pytest.raises(BadInput, match="other layers or experts"):
        predictor.predict(load_of([[[[0, 1]]]], 10))
    load = load_of([[[[0, 1]]]], 4)
    with pytest.raises(BadInput, match="nothing was foretold"):
        hit_rates(by_hand((1, 0, 0), 0.5, [0.25] * 4), load, load.experts)
