"""`moeplan plan`: its answer, its files, its repeatability."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

BUDGET = ("--budget", "500it")


def plan_json(cli, *arguments):
    ended = cli("plan", *arguments, "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out), ended.err


def without_times(text: str) -> str:
    return re.sub(r'"elapsed_s": [0-9.e+-]+', '"elapsed_s": 0', text)


def test_json_is_the_answer(cli, plan_inputs, tmp_path):
    path = tmp_path / "p.json"
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "--seed", 5, "--solver", "annealing", "-o", path)
    assert list(answer) == [
        "solver", "family", "model", "platform", "seed", "profile", "held_out", "bound_s", "gap", "stop",
        "baselines", "published", "layers", "plan", "report", "warnings", "elapsed_s",
    ]  # fmt: skip
    named = {key: answer[key] for key in ("solver", "family", "model", "platform", "seed", "plan", "report")}
    assert named == {
        "solver": "annealing",
        "family": "channels",
        "model": "tiny",
        "platform": "spimoe-4x8",
        "seed": 5,
        "plan": str(path),
        "report": None,
    }
    assert [layer["layer"] for layer in answer["layers"]] == [1, 2, 3]
    assert set(answer["baselines"]) >= {"ep", "round_robin", "lpt"}


def test_totals_are_sums_and_the_plan_beats_its_baselines_on_the_profile(cli, plan_inputs, tmp_path):
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "-o", tmp_path / "p.json")
    profile, layers = answer["profile"], answer["layers"]
    assert profile["total_s"] == pytest.approx(math.fsum(layer["profile_s"] for layer in layers), rel=1e-12)
    assert profile["total_s"] == pytest.approx(math.fsum(profile["parts"].values()), rel=1e-12)
    held_out_s = math.fsum(layer["held_out_s"] for layer in layers)
    assert answer["held_out"]["total_s"] == pytest.approx(held_out_s, rel=1e-12)
    assert answer["bound_s"] == pytest.approx(math.fsum(layer["bound_s"] for layer in layers), rel=1e-12)
    assert answer["gap"] == pytest.approx(1.0 - answer["bound_s"] / profile["objective_s"], abs=1e-12)
    same = [*answer["baselines"].values(), answer["published"]["spimoe"]]
    assert profile["objective_s"] <= min(b["objective_s"] for b in same)


def test_the_plan_file_says_the_same(cli, plan_inputs, tmp_path):
    path = tmp_path / "p.json"
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "-o", path)
    written = json.loads(path.read_text())
    assert written["totals"]["profile"] == answer["profile"]
    assert written["totals"]["held_out"] == answer["held_out"]
    assert written["warnings"] == answer["warnings"]
    assert [len(layer["experts"]) for layer in written["layers"]] == [8, 8, 8]


def test_twice_the_same_bytes_but_for_times(cli, plan_inputs, tmp_path):
    path = tmp_path / "p.json"
    seen = []
    for jobs in (1, 2):
        ended = cli("plan", *plan_inputs, *BUDGET, "--jobs", jobs, "-o", path, "--json")
        seen.append((without_times(ended.out), without_times(path.read_text()), ended.err))
    assert seen[0] == seen[1]


def test_people_get_a_table_and_the_names_of_the_files(cli, plan_inputs, tmp_path):
    path, page = tmp_path / "p.json", tmp_path / "r.html"
    ended = cli("plan", *plan_inputs, *BUDGET, "-o", path, "--report", page)
    assert ended.code == 0
    for word in (
        "ep",
        "round_robin",
        "lpt",
        "profile",
        "held-out",
        "bound",
        "gap",
        "stop",
        str(path),
        str(page),
    ):
        assert word in ended.out
    assert page.read_text().lower().startswith("<!doctype html>")
    assert {file.name for file in tmp_path.iterdir()} == {"p.json", "r.html"}


def test_quiet_prints_nothing_but_warnings(cli, plan_inputs, tmp_path):
    ended = cli("plan", *plan_inputs, *BUDGET, "--held-out", 0, "-o", tmp_path / "p.json", "--quiet")
    assert (ended.code, ended.out) == (0, "")
    assert all(line.startswith("warning: ") for line in ended.err.splitlines())


def test_holding_nothing_out_is_said(cli, plan_inputs, tmp_path):
    answer, err = plan_json(cli, *plan_inputs, *BUDGET, "--held-out", 0, "-o", tmp_path / "p.json")
    assert answer["held_out"] is None
    assert all(baseline["held_out_s"] is None for baseline in answer["baselines"].values())
    assert any("nothing was held out" in warning for warning in answer["warnings"])
    assert "warning: nothing was held out" in err


def test_another_trace_is_held_out(cli, plan_inputs, world, tmp_path):
    path = tmp_path / "p.json"
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "--held-out", world.other_trace, "-o", path)
    written = json.loads(path.read_text())
    assert answer["held_out"]["total_s"] > 0.0
    assert written["held_out"]["source"].startswith("other.parquet: synthetic (seed 1")
    assert (written["held_out"]["batch"], written["held_out"]["steps"]) == (8, 12)
    assert written["held_out"]["split"] == "whole"


def test_some_layers_only(cli, plan_inputs, tmp_path):
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "--layers", "1,3", "-o", tmp_path / "p.json")
    assert [layer["layer"] for layer in answer["layers"]] == [1, 3]


def test_risk_raises_the_objective_above_the_mean(cli, plan_inputs, tmp_path):
    answer, _ = plan_json(cli, *plan_inputs, *BUDGET, "--risk", 1.0, "-o", tmp_path / "p.json")
    assert answer["profile"]["objective_s"] > answer["profile"]["total_s"]


def test_a_gap_that_is_proven_from_the_start_stops_the_search(cli, plan_inputs, tmp_path):
    answer, _ = plan_json(cli, *plan_inputs, "--budget", "60s", "--gap", 0.999, "-o", tmp_path / "p.json")
    assert {layer["stop"] for layer in answer["layers"]} <= {"gap_reached", "optimal"}


def test_real_routing_as_the_readme_says(cli, tmp_path):
    if "MOEPLAN_TRACES" not in os.environ:
        pytest.skip("MOEPLAN_TRACES does not name the folder of real traces")
    archive = Path(os.environ["MOEPLAN_TRACES"]) / "deepseek-v2-lite-law.npz"
    trace = tmp_path / "t.parquet"
    assert cli("trace", "import", archive, "--model", "deepseek-v2-lite", "-o", trace).code == 0
    inputs = ("--model", "deepseek-v2-lite", "--platform", "spimoe-4x8", "--trace", trace, "--batch", 32)
    answer, _ = plan_json(cli, *inputs, "--steps", 16, "--budget", "500it", "-o", tmp_path / "p.json")
    assert [layer["layer"] for layer in answer["layers"]] == list(range(1, 27))
    assert answer["profile"]["total_s"] <= min(b["profile_s"] for b in answer["baselines"].values())
    same = [*answer["baselines"].values(), answer["published"]["spimoe"]]
    assert answer["profile"]["objective_s"] <= min(b["objective_s"] for b in same)
    assert 0.0 < answer["bound_s"] <= answer["profile"]["total_s"]
