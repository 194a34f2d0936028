"""`moeplan partition`: its answer on counts and on a trace, and what it refuses."""

from __future__ import annotations

import json

import pytest

PLATFORM = ("--platform", "b200-hbmpim")
POLICIES = ["no_exp", "all_exp", "pimoe", "sieve", "fast", "exact"]


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("[40, 17, 0, 3\n 1, 1, 1, 1]\n")
    return ("--model", "mixtral-8x7b", *PLATFORM, "--tokens-per-expert", path)


def answer(cli, *arguments):
    ended = cli("partition", *arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_json_of_counts(cli, counts):
    said = answer(cli, *counts)
    assert {key: said[key] for key in ("model", "platform", "layout")} == {
        "model": "mixtral-8x7b",
        "platform": "b200-hbmpim",
        "layout": "tp",
    }
    rows = {row["policy"]: row for row in said["policies"]}
    assert list(rows) == POLICIES
    keys = ["policy", "total_s", "t_gpu_s", "t_pim_s", "t_comm_s", "bound_s", "gap", "gpu_experts"]
    assert all(list(row) == keys for row in rows.values())
    for row in rows.values():
        assert row["total_s"] == max(row["t_gpu_s"], row["t_pim_s"], row["t_comm_s"])
        assert row["total_s"] >= rows["exact"]["total_s"]
        assert row["gap"] == pytest.approx(1 - row["bound_s"] / row["total_s"], abs=1e-9)
    assert rows["exact"]["gap"] <= 1e-8
    assert (rows["no_exp"]["gpu_experts"], rows["all_exp"]["gpu_experts"]) == (7, 0)


def test_options_change_what_they_name(cli, counts):
    exact = answer(cli, *counts, "--policy", "exact")["policies"][0]
    without = answer(cli, *counts, "--policy", "exact", "--context", 0)["policies"][0]
    assert without["t_pim_s"] < exact["t_pim_s"]
    slow = answer(cli, *counts, "--policy", "exact", "--comm", "5ms")["policies"][0]
    assert (slow["t_comm_s"], slow["total_s"]) == (0.005, 0.005)
    homes = answer(cli, *counts, "--policy", "all_exp", "--layout", "ep")["policies"][0]
    assert homes["t_pim_s"] > answer(cli, *counts, "--policy", "all_exp")["policies"][0]["t_pim_s"]


def test_a_trace_gives_means(cli, world):
    inputs = ("--model", world.model, *PLATFORM, "--trace", world.trace, "--batch", 4)
    rows = answer(cli, *inputs, "--steps", 3)["policies"]
    assert [row["policy"] for row in rows] == POLICIES
    layers = [answer(cli, *inputs, "--steps", 3, "--layers", n, "--policy", "exact") for n in (1, 2, 3)]
    totals = [layer["policies"][0]["total_s"] for layer in layers]
    assert rows[-1]["total_s"] == pytest.approx(sum(totals) / 3, rel=1e-9)


def test_table(cli, counts):
    ended = cli("partition", *counts)
    assert ended.code == 0
    assert all(policy in ended.out for policy in POLICIES)
    assert "/ sieve" in ended.out
    assert "/ sieve" not in cli("partition", *counts, "--policy", "exact").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 x", "value 3"),
        ("1 -2", "'-2'"),
        ("1.5", "'1.5'"),
        ("", "no token counts"),
        ("1 2 3", "8 experts"),
    ],
)
def test_bad_counts(cli, counts, text, said):
    counts[-1].write_text(text)
    ended = cli("partition", *counts)
    assert ended.code == 3
    assert said in ended.err


def test_wrong_usage(cli, counts, tmp_path):
    assert cli("partition", *counts[:-2]).code == 2
    assert cli("partition", *counts, "--trace", tmp_path / "t.parquet").code == 2
    assert cli("partition", *counts, "--policy", "sive").code == 2
    assert cli("partition", *counts[:2], "--platform", "b200", *counts[-2:]).code == 3
