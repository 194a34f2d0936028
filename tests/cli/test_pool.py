"""`moeplan pool`, and `moeplan plan` on near-memory dies: answers and refusals."""

from __future__ import annotations

import json

import pytest

MODEL = ("--model", "qwen3.5-35b-a3b")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    import dataclasses

    from moeplan.workload.model import load_model
    from moeplan.workload.synthetic import SyntheticRouting, synthesize
    from moeplan.workload.trace import write_trace

    whole = load_model("qwen3.5-35b-a3b")
    model = dataclasses.replace(whole, moe_layers=whole.moe_layers[:2])
    routing = SyntheticRouting(tokens_per_request=16, concurrency=32, sampler="draws")
    path = tmp_path_factory.mktemp("pool") / "trace.parquet"
    write_trace(synthesize(model, tokens=2048, seed=1, routing=routing), path)
    return path


def test_json(cli, trace):
    ended = cli("pool", *MODEL, "--batch", 32, "--steps", 8, "--trace", trace, "--placement", "lpt", "--json")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert (said["cores"], said["groups"], said["tiles_die"], said["held_out"]) == (20, 16, True, True)
    assert said["rounds"] >= said["rounds_bound"] >= 1.0
    assert said["effective_mfu"] == pytest.approx(said["actual_mfu"] / said["round_stretch"])
    assert [layer["layer"] for layer in said["layers"]] == [0, 1]
    assert said["rounds"] == pytest.approx(sum(layer["rounds"] for layer in said["layers"]) / 2)


def test_fitted_routing_repeats(cli):
    # One published side that does not tile the die, on routing drawn anew.
    once, again = (
        cli("pool", *MODEL, "--batch", 8, "--steps", 2, "--side", 8, "--placement", "contiguous", "--seed", 3,
            "--json")
        for _ in range(2)
    )  # fmt: skip
    assert once.code == 0, once.err
    assert once.out == again.out
    said = json.loads(once.out)
    assert (said["cores"], said["groups"], said["tiles_die"]) == (4, 64, False)
    # 64 choices at most on 256 groups: always one round.
    assert said["rounds"] == 1.0


def test_table(cli, trace):
    ended = cli("pool", *MODEL, "--batch", 32, "--steps", 8, "--trace", trace, "--mode", "direct")
    assert ended.code == 0, ended.err
    assert "20 cores of 16 units, direct, ours placement" in ended.out
    assert "held-out steps" in ended.out


@pytest.mark.parametrize("mode", ["broadcast", "direct"])
def test_fetch(cli, trace, mode):
    """A queue in fifo order is the pool itself; load-aware it takes no more rounds, and no token longer."""
    asked = (
        "pool",
        *MODEL,
        "--batch",
        32,
        "--steps",
        8,
        "--trace",
        trace,
        "--placement",
        "lpt",
        "--mode",
        mode,
    )
    plain = json.loads(cli(*asked, "--json").out)
    assert plain.pop("fetch") is None
    ended = cli(*asked, "--fetch", "load-aware", "--fetch-depth", 3, "--json")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    fetch = said.pop("fetch")
    assert said == plain
    assert (fetch["policy"], fetch["depth"]) == ("load-aware", 3)
    points = {(point["policy"], point["depth"]): point for point in fetch.pop("curve")}
    assert points["load-aware", 3] == fetch
    assert sorted({depth for _, depth in points}) == [0, 1, 2, 3, 4]
    assert all(points["fifo", depth]["rounds"] == pytest.approx(said["rounds"]) for depth in range(5))
    fifo = points["fifo", 3]
    assert fetch["rounds"] < fifo["rounds"]
    assert fifo["actual_mfu"] < fetch["actual_mfu"] <= 1.0
    assert fetch["mean_wait_rounds"] < fifo["mean_wait_rounds"]
    assert fetch["longest_wait_rounds"] <= fifo["longest_wait_rounds"]
    assert 0.0 < fetch["occupancy"] <= 1.0


def test_fetch_as_a_table(cli, trace):
    asked = ("pool", *MODEL, "--batch", 32, "--steps", 3, "--trace", trace, "--placement", "lpt")
    ended = cli(*asked, "--fetch", "fifo")
    assert ended.code == 0, ended.err
    # Three steps queue two behind the first at most.
    assert "fifo (asked)" in next(
        line for line in ended.out.splitlines() if "asked" in line and " 2 " in line
    )


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--fetch-depth", 2), 2, "there is none"),
        (("--fetch", "load-aware", "--steps", 4, "--fetch-depth", 4), 2, "0 to 3"),
        (("--fetch", "lifo"), 2, "lifo"),
        (("--held-out", 0.2), 2, "--held-out and --split are of a trace"),
        (("--split", "time"), 2, "--held-out and --split are of a trace"),
        (("--side", 5), 2, "side 5 do not tile the 16 x 20 units"),
        (("--width", 0), 2, "does no work"),
        (("--placement", "best"), 2, "best"),
    ],
)
def test_refusals(cli, more, code, said):
    ended = cli("pool", *MODEL, "--batch", 8, *more)
    assert ended.code == code
    assert said in ended.err
    assert ended.out == ""


def test_more_experts_than_units(cli):
    ended = cli("pool", "--model", "kimi-k2", "--batch", 8)
    assert ended.code == 4
    assert "384 experts, more than the 320 units of a die hold" in ended.err


def test_models_without_fitted_routing_need_a_trace(cli):
    ended = cli("pool", "--model", "mixtral-8x7b", "--batch", 8)
    assert ended.code == 2
    assert "no fitted routing" in ended.err
    assert "fix: give a trace" in ended.err


def test_plan_and_check(cli, trace, tmp_path):
    plan = tmp_path / "plan.json"
    ended = cli(
        "plan", "--platform", "rexpert-die", *MODEL, "--trace", trace, "--batch", 32, "--steps", 8,
        "--budget", "1000it", "-o", plan, "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert (said["family"], said["shards"], said["dies"]) == ("cores", 1, 40)
    assert said["rounds"] * 2 * 61.44e-6 == pytest.approx(said["held_out"]["total_s"])
    checked = cli("check", plan, "--trace", trace)
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--side", 6), 2, "side 6 do not tile the 16 x 20 units"),
        (("--width", 0), 2, "does no work"),
        (("--mode", "row"), 2, "--mode row is for PIM machines"),
        (("--slots", 300), 2, "--slots says nothing about rexpert-die"),
    ],
)
def test_refusals_of_plan(cli, trace, tmp_path, more, code, said):
    plan = tmp_path / "plan.json"
    ended = cli("plan", "--platform", "rexpert-die", *MODEL, "--trace", trace, "-o", plan, *more)
    assert ended.code == code
    assert said in ended.err
    assert not plan.exists()
