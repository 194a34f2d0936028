"""`moeplan demo` and the data that ships with it; `moeplan report`."""

from __future__ import annotations

import json

import numpy as np

from moeplan.cli.demo import MODEL, TRACE
from moeplan.workload.trace import read_trace


def test_the_demo_plans_and_says_where(cli, tmp_path):
    folder = tmp_path / "made" / "here"
    ended = cli("demo", "-o", folder)
    assert ended.code == 0, ended.err
    assert {file.name for file in folder.iterdir()} == {"trace.parquet", "plan.json", "report.html"}
    for word in ("ep", "round_robin", "lpt", "annealing", "bound", "gap", "stop", str(folder / "plan.json")):
        assert word in ended.out
    assert str(folder / "report.html") in ended.out
    assert "next:" in ended.out
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["solver"] == "annealing"
    assert (plan["profile"]["batch"], plan["profile"]["steps"], plan["held_out"]["steps"]) == (32, 128, 128)
    assert not plan["profile"]["repeated"]
    assert not plan["held_out"]["repeated"]
    commands = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("  moeplan check")]
    assert cli(*commands[0]).code == 0


def test_the_shipped_trace_is_what_its_recipe_gives(cli, tmp_path):
    recipe = (TRACE.parent / "README.md").read_text()
    command = next(line for line in recipe.splitlines() if line.strip().startswith("moeplan ")).split()[1:-1]
    assert cli(*command, tmp_path / "t.parquet").code == 0
    shipped, made = read_trace(TRACE), read_trace(tmp_path / "t.parquet")
    assert (shipped.model, shipped.layers, shipped.source) == (MODEL, (1, 2, 3, 4), made.source)
    # Exponentials may differ in the last bit between processors, and turn a close choice.
    assert np.mean(shipped.experts == made.experts) > 0.999
    assert TRACE.stat().st_size < 400_000


def test_a_report_is_one_page(cli, world, tmp_path):
    page = tmp_path / "r.html"
    ended = cli("report", world.plan, "-o", page)
    assert ended.code == 0
    assert str(page) in ended.out
    text = page.read_text()
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
