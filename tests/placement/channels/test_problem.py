"""Posing the question from a model, a platform and traffic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, ProvenInfeasible, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.kernels import evaluate_steps
from moeplan.placement.channels.problem import Decision, Settings, channel_problem, layer_capacity_bytes
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

from .instances import grid, problem, random_tokens


@pytest.fixture(scope="module")
def model():
    return load_model("deepseek-v2-lite")


@pytest.fixture(scope="module")
def platform():
    return load_platform("spimoe-4x8")


@pytest.fixture(scope="module")
def load(model):
    tokens = random_tokens(0, 4, 8, 64, 6)[:, :, None, :]
    return Load(
        experts=tokens,
        layers=(3,),
        num_experts=64,
        model=model.name,
        requests=8,
        repeated=False,
        note="for a test",
    )


def test_a_token_costs_what_the_pim_model_says(model, platform, load):
    """DeepSeek-V2-Lite has d_moe 1408 < d 2048, so auto is col mode; a site has four pseudo-channels."""
    posed = channel_problem(model, platform, load, 3, settings=Settings(layout="rows"))
    for f, factor in enumerate(posed.groups.factors):
        expected = platform.pim.expert_s(
            2048, 1408, matrices=3, weight_bytes=2.0, activation_bytes=2.0, groups=4, mode="col", tp=factor
        )
        assert posed.tables.token_s[posed.groups.factor_start[f]] == expected


def test_modes_and_layouts_change_the_cost(model, platform, load):
    decision = Decision(np.full(64, 62))  # every expert on all 32 sites
    cost = {
        (mode, layout): channel_problem(
            model, platform, load, 3, settings=Settings(mode=mode, layout=layout)
        ).evaluate(decision)
        for mode in ("row", "col", "auto")
        for layout in ("rows", "best")
    }
    assert cost["auto", "rows"] == cost["col", "rows"]
    assert cost["row", "rows"].parts["collective_s"] != cost["col", "rows"].parts["collective_s"]
    for mode in ("row", "col"):
        assert cost[mode, "best"].total_s <= cost[mode, "rows"].total_s


def test_layers_share_memory_equally(model, platform):
    """32 sites of 3 GB, less what is not a routed expert, over 26 MoE layers."""
    expected = (32 * 3e9 - model.other_bytes) / 32 / 26
    assert layer_capacity_bytes(model, platform) == pytest.approx(expected)


def test_a_model_that_does_not_fit_says_how_much_is_missing(platform):
    with pytest.raises(
        ProvenInfeasible, match=r"deepseek-v3 does not fit on spimoe-4x8: \d+\.\d GiB are missing"
    ):
        layer_capacity_bytes(load_model("deepseek-v3"), platform)


def test_refuses_what_does_not_belong_together(model, platform, load):
    with pytest.raises(BadInput, match="no PIM channel sites"):
        channel_problem(model, load_platform("h100"), load, 3)
    with pytest.raises(BadInput, match="64 experts a layer, gpt-oss-20b has 32"):
        channel_problem(load_model("gpt-oss-20b"), platform, load, 3)
    with pytest.raises(BadInput, match="layer 4 is not in the trace"):
        channel_problem(model, platform, load, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"risk": -1.0},
        {"risk": float("nan")},
        {"mode": "both"},
        {"layout": "cols"},
        {"resample": -1},
        {"resample": True},
        {"resample_seed": -1},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(UsageError):
        Settings(**wrong)


def test_check_names_the_fault():
    posed = problem(random_tokens(0, 2, 4, 4, 1), grid(2, 2), 4, room=1.5)
    assert posed.check(Decision(np.array([0, 1, 2, 3]))) is None
    assert "3 experts are placed" in posed.check(Decision(np.array([0, 1, 2])))
    assert "expert 2 is on group -1" in posed.check(Decision(np.array([0, 1, -1, 3])))
    assert "site 1 would hold" in posed.check(Decision(np.array([0, 1, 1, 3])))


def test_risk_adds_standard_deviations():
    tokens = random_tokens(4, 6, 5, 6, 2)
    plain, risky = (problem(tokens, grid(2, 2), 6, risk=risk) for risk in (0.0, 2.0))
    decision = Decision(np.array([0, 1, 2, 3, 0, 1]))
    step_s = plain.step_parts(decision).sum(axis=1)
    assert plain.evaluate(decision).objective_s == pytest.approx(step_s.mean(), rel=1e-12)
    assert risky.evaluate(decision).objective_s == pytest.approx(
        step_s.mean() + 2.0 * step_s.std(), rel=1e-12
    )
    assert risky.evaluate(decision).total_s == plain.evaluate(decision).total_s


def test_sites_round_trip():
    posed = problem(random_tokens(0, 2, 4, 4, 1), grid(2, 4), 4)
    decision = Decision(np.array([0, 9, 13, 14]))
    sites = [posed.sites_of(decision, expert) for expert in range(4)]
    assert posed.decision_from_sites(sites) == decision
    with pytest.raises(BadInput, match=r"the sites \[0, 7\] are no channel group"):
        posed.decision_from_sites([(0, 7), *sites[1:]])


def test_fingerprint_follows_every_input(model, platform, load):
    base = channel_problem(model, platform, load, 3)
    assert base.fingerprint == channel_problem(model, platform, load, 3).fingerprint
    others = [
        channel_problem(model, platform, load, 3, settings=Settings(risk=1.0)),
        channel_problem(model, dataclasses.replace(platform, fingerprint="other"), load, 3),
        channel_problem(model, platform, dataclasses.replace(load, experts=load.experts[:2]), 3),
    ]
    assert base.fingerprint not in {other.fingerprint for other in others}


def test_best_layout_splits_k_for_every_matrix_on_its_own(model, platform, load):
    """32 shards of a DeepSeek-V2-Lite expert in col mode: gate and up are 44 x 2048, down is 64 x 1408."""
    posed = channel_problem(model, platform, load, 3)
    pim, shape = platform.pim, dict(weight_bytes=2.0, activation_bytes=2.0, groups=4)

    def fastest(outputs, inputs):
        return min(pim.gemv_s(outputs, inputs, k_banks=k, **shape) for k in (1, 2, 4, 8, 16, 32))

    expected = 2 * fastest(44, 2048) + fastest(64, 1408)
    assert posed.tables.token_s[posed.groups.factor_start[-2]] == expected
    assert expected < pim.expert_s(2048, 1408, matrices=3, mode="col", tp=32, **shape)


def test_the_objective_counts_drawn_steps_and_the_total_does_not(model, platform, load):
    posed = channel_problem(model, platform, load, 3, held_out=load, settings=Settings(resample=2))
    plain = channel_problem(model, platform, load, 3, settings=Settings(resample=0))
    decision = Decision(np.arange(64) % 63)
    cost, recorded = posed.evaluate(decision), plain.evaluate(decision)
    assert cost.total_s == pytest.approx(recorded.objective_s, rel=1e-12)
    assert sum(cost.parts.values()) == pytest.approx(cost.total_s, rel=1e-12)
    assert posed.drawn.counts.shape == (64, 12)
    np.testing.assert_array_equal(posed.drawn.counts[:, :4], plain.tables.counts)
    every = evaluate_steps(posed.drawn, decision.group_of).parts.sum(axis=1)
    assert cost.objective_s == pytest.approx(every.mean(), rel=1e-12)
    assert posed.lower_bound().value_s <= cost.objective_s
    assert posed.held_out.drawn is None
    other = channel_problem(model, platform, load, 3, settings=Settings(resample=2, resample_seed=1))
    assert (other.drawn.counts != posed.drawn.counts).any()


def test_resampling_stops_at_large_loads():
    """2^16 routed tokens in all; one to 15 drawn steps per recorded one."""
    assert [Settings().times(n) for n in (2**10, 2**13, 2**14, 2**15, 2**20)] == [15, 7, 3, 1, 1]
    assert Settings(resample=9).times(2**20) == 9
