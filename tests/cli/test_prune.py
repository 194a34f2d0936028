"""`moeplan prune`: its answers, what it writes, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from moeplan.workload.trace import read_trace, write_trace

MACHINE = ("--platform", "spimoe-4x8")
SIZE = ("--batch", 8, "--steps", 4)


@pytest.fixture
def weighted(world, tmp_path):
    """The world's trace with router weights, one of two choices three times the other, and phases."""
    path = tmp_path / "weighted.parquet"
    trace = read_trace(world.trace)
    weights = np.where(np.arange(trace.top_k) == 0, 0.75, 0.25).astype(np.float32)
    told = replace(
        trace,
        weights=np.broadcast_to(weights, trace.experts.shape),
        phase=np.where(trace.position < 8, 1, 2).astype(np.int8),
    )
    write_trace(told, path)
    return path


@pytest.fixture
def job(world, weighted):
    return ("prune", "--model", world.model, *MACHINE, "--trace", weighted, *SIZE)


def answer(cli, *arguments):
    ended = cli(*arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_given_settings_say_before_and_after(cli, job):
    said = answer(cli, *job, "--alpha", 0.5)
    assert (said["experts_per_token_before"], said["experts_per_token"]) == (2.0, 1.0)
    assert said["kept_mass"] == pytest.approx(0.75)
    assert said["j_after_s"] < said["j_before_s"]
    assert said["speed_up"] == pytest.approx(said["j_before_s"] / said["j_after_s"])
    assert said["settings"]["uniform"] == 0.5
    one_third = answer(cli, *job, "--alpha", 0.3)
    assert (one_third["kept_mass"], one_third["speed_up"]) == (1.0, 1.0)


def test_phases_tiers_and_boost(cli, job):
    said = answer(cli, *job, "--alpha-think", "0.5,0.5,0.3", "--k-min", "1,2,1")
    # of layers 1 to 3 of four, the first is shallow, the second middle, the third deep
    assert said["settings"]["think"] == [0.5, 0.5, 0.3]
    think_share = 2.0 - said["experts_per_token"]
    assert 0 < think_share < 1 / 3
    boosted = answer(cli, *job, "--alpha-think", 0.5, "--boost", 2, "--cognitive", 8, "--mark", "think:0-3")
    # all experts are favoured alike: nothing changes
    assert boosted["kept_mass"] == answer(cli, *job, "--alpha-think", 0.5)["kept_mass"]


def test_a_table_for_people(cli, job):
    ended = cli(*job, "--alpha", 0.5)
    assert ended.code == 0
    assert "75.00%" in ended.out
    assert "measured on held-out steps" in " ".join(ended.out.split())
    assert "of the whole trace" in " ".join(cli(*job, "--alpha", 0.5, "--held-out", 0).out.split())
    assert "speed-up" in ended.out


def test_the_plans_placement_is_used(cli, job, world):
    said = answer(cli, *job, "--plan", world.plan, "--congestion")
    assert said["placement"] == str(world.plan)
    assert said["dropped_by_weight"] == 0
    assert said["dropped_by_congestion"] > 0


def test_calibration_gives_a_front(cli, job):
    said = answer(cli, *job, "--calibrate", "--keep", 0.7)
    front = said["front"]
    assert front[0]["kept_mass"] == 1.0
    for before, after in pairwise(front):
        assert after["kept_mass"] < before["kept_mass"]
        assert after["j_s"] < before["j_s"]
    assert said["chosen"] in front
    assert said["chosen"]["kept_mass"] >= 0.7
    assert {"kept_mass", "j_s", "experts_per_token"} <= set(front[0]["held_out"])
    ended = cli(*job, "--calibrate")
    assert "--keep SHARE" in ended.out
    assert "profile J us" in " ".join(ended.out.split())
    assert "held-out J us" in " ".join(ended.out.split())
    assert "--keep" not in cli(*job, "--calibrate", "--keep", 0.7).out


def test_calibration_repeats_exactly(cli, job):
    first, second = (cli(*job, "--calibrate", "--variant", "boost", "--json").out for _ in range(2))
    assert first == second


def test_the_pruned_trace_can_be_read_and_planned_on(cli, job, world, tmp_path, weighted):
    path = tmp_path / "pruned.parquet"
    assert cli(*job, "--alpha", 0.5, "-o", path).code == 0
    whole, pruned = read_trace(weighted), read_trace(path)
    assert pruned.tokens == whole.tokens
    assert np.array_equal(pruned.experts[..., 0], whole.experts[..., 0])
    assert (pruned.experts[..., 1] == -1).all()
    assert pruned.weights[..., 0] == pytest.approx(1.0)
    planned = tmp_path / "plan.json"
    ended = cli(
        "plan", "--model", world.model, *MACHINE, "--trace", path, *SIZE,
        "--solver", "lpt", "-o", planned, "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["profile"]["total_s"] > 0


def test_congestion_writes_the_measured_steps(cli, job, tmp_path):
    path = tmp_path / "pruned.parquet"
    ended = cli(*job, "--congestion", "-o", path)
    assert ended.code == 0, ended.err
    written = read_trace(path)
    assert written.tokens == 8 * 4
    assert np.unique(written.step).tolist() == [0, 1, 2, 3]
    assert (written.experts == -1).any()


def test_assumptions_are_said_aloud(cli, world):
    job = ("prune", "--model", world.model, *MACHINE, "--trace", world.trace, *SIZE)
    ended = cli(*job, "--assume-weights", 0.5, "--think-share", 0.8, "--alpha-think", 0.6, "--json")
    assert ended.code == 0, ended.err
    assert "assumed" in ended.err
    assert json.loads(ended.out)["kept_mass"] < 1


def test_layers_can_be_chosen(cli, job):
    assert (
        answer(cli, *job, "--alpha", 0.5, "--layers", 2)["j_before_s"]
        < (answer(cli, *job, "--alpha", 0.5)["j_before_s"])
    )


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ((), 2, "nothing says how to prune"),
        (("--alpha", 0), 2, "alpha of uniform is 0"),
        (("--alpha", 1.5), 2, "alpha of uniform is 1.5"),
        (("--alpha-think", "0.2,0.3"), 2, "--alpha-think"),
        (("--alpha-answer", "much"), 2, "--alpha-answer"),
        (("--alpha", 0.5, "--k-min", 3), 2, "k_min is 3, and a token has only 2"),
        (("--alpha", 0.5, "--k-min", "1.5"), 2, "--k-min"),
        (("--alpha", 0.5, "--keep", 0.9), 2, "--keep goes with --calibrate"),
        (("--alpha", 0.5, "--variant", "boost"), 2, "--variant goes with --calibrate"),
        (("--alpha", 0.5, "--mark", "0-3"), 2, "none are asked for"),
        (("--calibrate", "--mark", "0-3"), 2, "none are asked for"),
        (("--alpha", 0.5, "--cognitive", 2), 2, "neither is given"),
        (("--calibrate", "--alpha", 0.5), 2, "--calibrate searches"),
        (("--calibrate", "-o", "t.parquet"), 2, "-o writes one trace"),
        (("--calibrate", "--keep", 2), 2, "share of mass to keep is 2"),
        (("--alpha", 0.5, "--mark", "1-x"), 2, "marks no tokens"),
        (("--alpha", 0.5, "--mark", "dream"), 2, "unknown phase 'dream'"),
        (("--congestion", "--cognitive", 9), 2, "9 cognitive experts of 8"),
        (("--alpha-think", 0.5, "--boost", 2), 2, "needs cognitive experts"),
        (("--alpha", 0.5, "--think-share", 0.5), 3, "phases of its own"),
        (("--alpha", 0.5, "--assume-weights", 0.5), 3, "weights of its own"),
        (("--alpha", 0.5, "--layers", 9), 2, "no MoE layer 9"),
        (("--alpha", 0.5, "--held-out", 1.5), 2, "held-out fraction"),
        (("--alpha", 0.5, "--platform", "h100"), 3, "PIM"),
    ],
)
def test_what_it_refuses(cli, job, options, code, says):
    ended = cli(*job, *options)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert not ended.out
    assert "bug" not in ended.err


def test_traces_that_do_not_say_enough(cli, job, world, weighted, tmp_path):
    bare = ("prune", "--model", world.model, *MACHINE, "--trace", world.trace, *SIZE)
    ended = cli(*bare, "--alpha", 0.5)
    assert ended.code == 3
    assert "no router weights" in ended.err
    assert "--assume-weights" in ended.err
    phaseless = tmp_path / "phaseless.parquet"
    write_trace(replace(read_trace(weighted), phase=None), phaseless)
    calm = tmp_path / "calm.parquet"
    write_trace(replace(read_trace(weighted), phase=np.full(1280, 2, dtype=np.int8)), calm)
    for path, says in ((phaseless, "does not tell phases"), (calm, "'think', which never occurs")):
        ended = cli(*job[:5], "--trace", path, *SIZE, "--alpha-think", 0.5)
        assert ended.code == 3, ended.err
        assert says in ended.err


def test_a_plan_of_another_model(cli, job, world, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(world.model.read_text().replace("hidden_size: 256", "hidden_size: 512"))
    ended = cli("prune", "--model", other, *job[3:], "--plan", world.plan, "--alpha", 0.5)
    assert ended.code == 3
    assert "the plan places tiny" in ended.err
