"""Scores of a pool, on loads whose figures are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.placement.cores.layout import published_die
from moeplan.placement.cores.pooling import pool
from moeplan.placement.result import Budget
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

MODEL = dataclasses.replace(load_model("qwen3.5-35b-a3b"), name="one-layer", moe_layers=(0,))


def load(experts: np.ndarray) -> Load:
    return Load(
        experts=experts, layers=(0,), num_experts=256, model="one-layer", requests=1, repeated=False, note=""
    )


def hot(extra: int) -> Load:
    """One step of 32 + `extra` tokens: every expert once, and experts 0..7 in each extra token."""
    whole = np.arange(256).reshape(32, 8)
    more = np.tile([0, 1, 2, 3, 4, 5, 6, 7], (extra, 1))
    return load(np.concatenate([whole, more])[None, :, None, :].astype(np.int16))


def test_contiguous_by_hand():
    # 256 experts of one token: one underfilled job each. 20 cores of 12 or 13: one round, 256 of 320 groups.
    die = published_die(4)
    for mode in ("broadcast", "direct"):
        score = pool(MODEL, die, hot(0), None, placement="contiguous", mode=mode)
        assert (score.rounds, score.rounds_bound) == (1.0, 1.0)
        assert (score.ideal_mfu, score.occupancy, score.stretch) == (0.25, 256 / 320, 1.0)
        assert score.actual_mfu == score.effective_mfu == 0.25 * 256 / 320
        assert score.step_s == pytest.approx(61.44e-6)


def test_direct_waits_for_the_hottest_unit():
    # 13 extra tokens: experts 0..7 have 14 tokens, 4 jobs. Direct: four rounds; 248 + 32 jobs.
    score = pool(MODEL, published_die(4), hot(13), None, placement="contiguous", mode="direct")
    assert (score.rounds, score.rounds_bound) == (4.0, 4.0)
    assert score.occupancy == 280 / (4 * 320)
    # Pooled: core 0 has experts 0..12, 8 x 4 + 5 = 37 jobs on 16 groups: three rounds.
    shared = pool(MODEL, published_die(4), hot(13), None, placement="contiguous")
    assert shared.rounds == 3.0
    assert shared.multicast_peak_bytes_per_s == 8 * 51.2e9
    # Spread over cores, one round is enough for 280 jobs on 320 groups: 14 jobs a core.
    for placement in ("lpt", "ours"):
        assert pool(MODEL, published_die(4), hot(13), None, placement=placement).rounds == 1.0


def test_figures_are_of_the_held_out_steps():
    score = pool(MODEL, published_die(4), hot(13), hot(0), placement="lpt")
    assert (score.rounds, score.ideal_mfu) == (1.0, 0.25)


@pytest.mark.parametrize(("side", "units"), [(2, 320), (4, 320), (6, 324), (8, 256)])
def test_every_side(side, units):
    score = pool(MODEL, published_die(side), hot(0), None, placement="contiguous")
    assert score.occupancy == 256 / units


def test_ours_repeats_and_is_never_above_the_published_on_its_profile():
    rng = np.random.default_rng(0)
    scores = rng.gumbel(size=(16, 40, 256)) + rng.normal(0.0, 1.0, 256)
    steps = load(np.argsort(-scores, axis=2)[:, :, None, :8].astype(np.int16))
    budget = Budget(time_s=None, iterations=5_000)
    found = {
        rule: pool(MODEL, published_die(2), steps, None, placement=rule, budget=budget)
        for rule in ("contiguous", "lpt", "coactivation", "ours")
    }
    assert found["ours"] == pool(MODEL, published_die(2), steps, None, placement="ours", budget=budget)
    assert found["ours"].rounds_bound <= found["ours"].rounds
    assert found["ours"].rounds < found["contiguous"].rounds


def test_unknown_placements_are_refused():
    with pytest.raises(UsageError, match="unknown placement"):
        pool(MODEL, published_die(4), hot(0), None, placement="best")
