"""`moeplan pareto`: its table, its JSON, its picture, and what it refuses."""

from __future__ import annotations

import json

import pytest

QUICK = ["pareto", "--model", "qwen3-30b-a3b", "--batches", "8,64"]


def test_json_has_every_point_and_rates_follow(cli):
    out = json.loads(cli(*QUICK, "--json").out)
    assert [(p["batch"], p["policy"]) for p in out["points"]] == [
        (b, p) for b in (8, 64) for p in ("no_exp", "all_exp", "pimoe", "sieve", "exact")
    ]
    for point in out["points"]:
        assert point["tokens_per_s_per_user"] == pytest.approx(1 / point["tpot_s"])
        assert point["tokens_per_s_per_gpu"] == pytest.approx(point["batch"] / point["tpot_s"])


def test_picture_is_the_same_twice(cli, tmp_path):
    for name in ("a.svg", "b.svg"):
        assert cli(*QUICK, "--policy", "sieve", "--svg", str(tmp_path / name)).code == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_points_that_do_not_fit_are_marked(cli, tmp_path):
    """Qwen3-30B at a million tokens: 98304 bytes a token, 61 GB of weights, 193 GB of memory."""
    picture = tmp_path / "p.svg"
    asked = [*QUICK[:-1], "1,8", "--contexts", "1024,1000000", "--policy", "sieve"]
    ended = cli(*asked, "--svg", picture, "--json")
    points = json.loads(ended.out)["points"]
    said = {(p["context"], p["batch"]): p["fits"] for p in points}
    assert said == {(1024, 1): True, (1024, 8): True, (1000000, 1): True, (1000000, 8): False}
    assert "memory" not in points[0]
    assert points[3]["memory_bytes"] > points[3]["capacity_bytes"] == points[0]["capacity_bytes"]
    assert "warning: 1 of 4 points do not fit; at context 1000000 and batch 8" in ended.err
    assert "8 GPUs have room" in ended.err
    assert "circled" in picture.read_text()
    table = cli(*asked).out
    rows = [line.split() for line in table.splitlines() if line.startswith(" sieve")]
    assert [row[-1] for row in rows] == ["yes", "yes", "yes", "no"]


def test_where_all_fit_nothing_is_marked(cli, tmp_path):
    ended = cli(*QUICK, "--policy", "sieve", "--svg", tmp_path / "p.svg")
    assert ended.code == 0
    assert "fits" not in ended.out
    assert "warning" not in ended.err
    assert "circled" not in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--batches", "8,x"], 2, "--batches"),
        (["--batches", "6", "--gpus", "4"], 2, "multiples of 4"),
        (["--policy", "seive"], 2, "sieve"),
        (["--policy", "sieve", "--policy", "no_exp", "--policy", "sieve"], 2, "--policy"),
        (["--platform", "h100"], 3, "GPU and PIM"),
        (["--contexts", "0"], 2, "--contexts"),
        (["--gpus", "4", "--tensor-parallel", "3"], 2, "divisor"),
        (["--steps", "9"], 2, "only a trace has steps"),
        (["--prefill-tokens", "9"], 2, "--prefill"),
    ],
)
def test_what_cannot_be_is_refused(cli, more, code, said):
    result = cli(*QUICK, *more)
    assert result.code == code
    assert said in result.err
    assert "Traceback" not in result.err
