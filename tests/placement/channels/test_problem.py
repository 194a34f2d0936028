"""Posing the question from a model, a platform and traffic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, ProvenInfeasible, UsageError
from moeplan.hardware.platform import load_platform
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
    posed = channel_problem(model, platform, load, 3)
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
    "wrong", [{"risk": -1.0}, {"risk": float("nan")}, {"mode": "both"}, {"layout": "cols"}]
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


def test_resampled_steps_are_slots_of_the_profile_at_other_steps():
    """Every bootstrapped column is a slot of the profile, rotated; the first steps are the profile itself."""
    tokens = random_tokens(3, 5, 4, 7, 2)
    posed = problem(tokens, grid(2, 2), 7)
    t = posed.resampled(2, seed=1)
    assert t.counts.shape == (7, 15)
    np.testing.assert_array_equal(t.counts[:, :5], posed.tables.counts)
    rotations = {np.roll(tokens[:, slot], shift, axis=0).tobytes() for slot in range(4) for shift in range(5)}
    for part in (1, 2):
        for slot in range(4):
            column = [
                [
                    e
                    for e in range(7)
                    if slot in t.slots[t.slot_start[e * 15 + s] : t.slot_start[e * 15 + s + 1]]
                ]
                for s in range(5 * part, 5 * part + 5)
            ]
            drawn = np.sort(np.array(column, dtype=np.int16), axis=1)
            assert any(
                (np.sort(np.frombuffer(r, dtype=np.int16).reshape(5, 2), axis=1) == drawn).all()
                for r in rotations
            )
