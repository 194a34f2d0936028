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


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--batches", "8,x"], 2, "--batches"),
        (["--batches", "6", "--gpus", "4"], 2, "multiples of 4"),
        (["--policy", "seive"], 2, "sieve"),
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
