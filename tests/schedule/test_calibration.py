"""Calibration of adaptive routing: figures of a point, the front by hand, and the grids."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.problem import channel_problem
from moeplan.placement.solve import solve
from moeplan.schedule.calibration import Measure, Point, calibrate, choose, grid, mean_j_s, pareto
from moeplan.schedule.moe_time import lpt_timers
from moeplan.workload.cognitive import TokenRule, cognitive_experts
from moeplan.workload.model import load_model
from moeplan.workload.pruning import PruningSettings, with_phase, with_rank_weights
from moeplan.workload.rows import replay_rows
from moeplan.workload.synthetic import synthesize

MODEL = load_model("olmoe-1b-7b")
LAYERS = MODEL.moe_layers[:2]


@pytest.fixture(scope="module")
def measure():
    few = replace(MODEL, moe_layers=LAYERS)
    bare = synthesize(few, tokens=2048, seed=0)
    trace = with_phase(with_rank_weights(bare, 0.7), 0.75)
    replayed = replay_rows(trace, batch=16, steps=6, seed=0)
    timers = lpt_timers(MODEL, load_platform("spimoe-4x8"), replayed.load, LAYERS)
    marked = TokenRule("think").marks(trace)
    return Measure(replayed, timers, lambda count: cognitive_experts(trace, count, marked), MODEL.layers)


def test_time_is_the_channel_problems(measure):
    load, platform = measure.replayed.load, load_platform("spimoe-4x8")
    expected = 0.0
    for layer in LAYERS:
        problem = channel_problem(MODEL, platform, load, layer)
        expected += problem.evaluate(solve(problem, "lpt").decision).total_s
    assert mean_j_s(load, measure.timers) == pytest.approx(expected, rel=1e-12)
    nothing = measure.point(PruningSettings())
    assert nothing.j_s == pytest.approx(expected, rel=1e-12)
    assert (nothing.kept_mass, nothing.experts_per_token) == (1.0, MODEL.top_k)


def test_mass_by_hand(measure):
    # weights fall by 0.7, so that alpha 0.5 keeps 1 and 0.7 of 1 + 0.7 + ... + 0.7^7
    point = measure.point(PruningSettings(uniform=0.5))
    assert point.experts_per_token == 2.0
    assert point.kept_mass == pytest.approx(1.7 / ((1 - 0.7**8) / 0.3), rel=1e-6)
    assert point.dropped_by_weight == pytest.approx(6 / 8)
    assert point.j_s < measure.point(PruningSettings()).j_s


def test_congestion_takes_time_off_the_busiest_channels(measure):
    point = measure.point(PruningSettings(congestion=True, k_min=(4, 4, 4)))
    assert point.dropped_by_congestion > 0
    assert point.dropped_by_weight == 0
    assert point.experts_per_token >= 4
    assert point.j_s < measure.point(PruningSettings()).j_s


def point(kept_mass, j_s):
    return Point(PruningSettings(), kept_mass, 1.0, j_s, 0.0, 0.0)


def test_front_and_choice_by_hand():
    points = [point(*p) for p in ((0.5, 3.0), (1.0, 9.0), (0.9, 5.0), (0.9, 4.0), (0.8, 4.0), (0.7, 6.0))]
    front = pareto(points)
    assert [(p.kept_mass, p.j_s) for p in front] == [(1.0, 9.0), (0.9, 4.0), (0.5, 3.0)]
    assert choose(front, 0.9).j_s == 4.0
    assert choose(front, 0.95).j_s == 9.0
    assert choose(front, 0.1).j_s == 3.0
    assert pareto([]) == []
    for wrong in (0.0, 1.1):
        with pytest.raises(UsageError, match="share of mass"):
            choose(front, wrong)
    with pytest.raises(UsageError, match="no setting keeps"):
        choose(front[1:], 0.95)


def test_no_point_of_a_front_is_dominated():
    rng = np.random.default_rng(0)
    points = [point(*p) for p in rng.integers(0, 8, (60, 2)) / 8.0]
    front = pareto(points)
    for p in points:
        better = [q for q in front if q.kept_mass >= p.kept_mass and q.j_s <= p.j_s]
        assert better
    for p in front:
        assert not any(
            q.kept_mass >= p.kept_mass and q.j_s <= p.j_s and (q.kept_mass, q.j_s) != (p.kept_mass, p.j_s)
            for q in points
        )


def test_calibration_starts_from_doing_nothing(measure):
    front = calibrate(measure, [PruningSettings(uniform=alpha) for alpha in (0.3, 0.6, 0.9)])
    assert front[0].settings == PruningSettings()
    assert [p.settings.uniform for p in front[1:]] == [0.3, 0.6, 0.9]
    assert all(a.j_s > b.j_s and a.kept_mass > b.kept_mass for a, b in pairwise(front))


@pytest.mark.parametrize("variant", ["static", "dynamic", "boost"])
@pytest.mark.parametrize("top_k", [1, 2, 8])
def test_grids_hold_what_their_name_says(variant, top_k):
    candidates = list(grid(variant, top_k, 64))
    assert len(candidates) == len(set(candidates)) > 10
    assert sum(s.congestion for s in candidates) * 2 == len(candidates)
    for settings in candidates:
        assert max(settings.k_min) <= top_k
        assert (settings.uniform is not None) == (variant == "static")
        assert (settings.boost > 1.0) == (variant == "boost") == (settings.cognitive > 0)
        if variant != "static":
            assert all(t < a for t, a in zip(settings.think, settings.answer, strict=True))
            assert settings.k_min[0] >= settings.k_min[1] == settings.k_min[2]


def test_boosted_settings_are_measured(measure):
    settings = PruningSettings(think=(0.6,) * 3, boost=2.0, cognitive=8)
    plain = measure.point(replace(settings, boost=1.0, cognitive=0))
    assert measure.point(settings).experts_per_token != plain.experts_per_token


def test_what_does_not_fit(measure):
    with pytest.raises(UsageError, match="unknown variant"):
        next(grid("bold", 8, 64))
    with pytest.raises(BadInput, match="has no layer"):
        Measure(measure.replayed, {LAYERS[0]: measure.timers[LAYERS[0]]})
    with pytest.raises(UsageError, match="none are known"):
        Measure(measure.replayed, measure.timers).point(
            PruningSettings(think=(0.5,) * 3, boost=2.0, cognitive=1)
        )
    other = replace(measure.replayed, load=replace(measure.replayed.load, num_experts=65))
    with pytest.raises(BadInput, match="64 experts in layer 0, the trace 65"):
        Measure(other, measure.timers)
