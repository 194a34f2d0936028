"""`moeplan export` and `moeplan check --engine`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import moeplan.placement.plan

# The model of `world` has 4 layers, of which 1 to 3 have 8 experts.
ROW = [0, 1, 2, 3, 4, 0, 4, 5, 6, 7, 1, 2]
TRIVIAL = [*range(8), 0, 1, 2, 3]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """A plan of replicas: 12 slots on 2 ranks."""
    document = SimpleNamespace(
        family="replicas",
        model=SimpleNamespace(name="tiny"),
        physical_to_logical=(tuple(ROW), tuple(TRIVIAL), tuple(ROW)),
        layer_ids=(1, 2, 3),
        logical_experts=8,
        ranks=2,
        nodes=1,
        slots_per_rank=(6, 6),
    )
    monkeypatch.setattr(moeplan.placement.plan, "read_plan", lambda path: document)
    path = tmp_path / "plan.json"
    path.write_text("{}")
    return path


def test_export_then_check(cli, world, plan, tmp_path):
    out = tmp_path / "map.json"
    ended = cli("export", plan, "--engine", "vllm-ascend", "--model", world.model, "-o", out)
    assert ended.code == 3  # rank 0 holds expert 0 twice
    assert "duplicates" in ended.err
    assert not out.exists()
    ended = cli("export", plan, "--engine", "sglang", "--model", world.model, "-o", out, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert "--ep-num-redundant-experts 4" in told["launch"]["flags"]
    assert json.loads(out.read_text())["physical_to_logical_map"] == [TRIVIAL, ROW, TRIVIAL, ROW]
    assert json.loads((tmp_path / "map.json.moeplan.json").read_text())["file"] == "map.json"
    asked = ("check", "--engine", "sglang", out, "--model", world.model, "--ep-size", 2)
    ended = cli(*asked, "--redundant", 4, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["ok"] is True
    ended = cli(*asked)
    (line,) = [line for line in ended.out.splitlines() if "duplicates" in line]
    assert "warning" in line
    assert "holds expert 0 twice" in line
    assert (ended.code, "skipped" in ended.out) == (0, False)


def findings(cli, *arguments):
    ended = cli("check", *arguments, "--json")
    assert ended.code == 0, ended.err
    return {found["check"]: found for found in json.loads(ended.out)["findings"]}, ended.err


def test_check_reads_what_the_export_says(cli, world, plan, tmp_path):
    out = tmp_path / "map.json"
    assert cli("export", plan, "--engine", "sglang", "--model", world.model, "-o", out).code == 0
    asked = (out, "--engine", "sglang", "--model", world.model)
    found, err = findings(cli, *asked)
    assert "--ep-size 2, from map.json.moeplan.json" in err
    assert found["sidecar"]["result"] == "ok"
    assert found["divisibility"]["detail"] == "6 slots on each of 2 ranks"
    found, err = findings(cli, *asked, "--ep-size", 4)
    assert "ranks 2 there, 4 here" in found["sidecar"]["detail"]
    assert found["sidecar"]["result"] == "warning"
    assert err == ""
    out.write_text(json.dumps({"physical_to_logical_map": [TRIVIAL] * 4}))
    found, _ = findings(cli, *asked, "--ep-size", 2)
    assert "not the one" in found["sidecar"]["detail"]
    ended = cli("check", *asked)  # nothing is taken from the sidecar of another file
    assert ended.code == 2
    assert "--ep-size" in ended.err
    for text in ("{}", "[", '{"format": "moeplan.export", "ranks": "two"}'):
        (tmp_path / "map.json.moeplan.json").write_text(text)
        assert cli("check", *asked).code == 2


@pytest.mark.parametrize(
    ("name", "content", "engine"),
    [
        ("m.json", {"physical_to_logical_map": [ROW]}, "sglang"),
        ("m.json", [[0, 1], [1, 0]], "vllm"),
        ("m.json", {"moe_layer_count": 1, "layer_list": []}, "vllm-ascend"),
    ],
)
def test_the_file_of_an_engine_is_sent_to_its_rules(cli, tmp_path, name, content, engine):
    (tmp_path / name).write_text(json.dumps(content))
    ended = cli("check", tmp_path / name)
    assert ended.code == 3
    assert f"--engine {engine}" in ended.err


def test_export_shows_what_to_launch(cli, world, plan, tmp_path):
    out = tmp_path / "map.yaml"
    ended = cli("export", plan, "--engine", "tensorrt-llm", "--model", world.model, "-o", out)
    assert ended.code == 0, ended.err
    for text in (f"file:    {out}", "--ep_size 2", "attention data parallelism"):
        assert text in ended.out


def test_export_of_counts_and_traces(cli, world, tmp_path):
    out = tmp_path / "counts.json"
    ended = cli("export", world.trace, "--engine", "sglang", "--model", world.model, "-o", out)
    assert ended.code == 0, ended.err
    counts = np.array(json.loads(out.read_text())["logical_count"])
    assert counts.sum(axis=1).tolist() == [0, 2560, 2560, 2560]  # 1280 tokens, top-2
    ended = cli("export", world.trace, "--engine", "vllm", "--model", world.model, "-o", out)
    assert ended.code == 2
    assert "vllm loads no counts" in ended.err


def test_check_names_what_is_wrong(cli, world, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps({"physical_to_logical_map": [ROW] * 3, "made_by": "x"}))
    asked = ("check", "--engine", "sglang", tmp_path / "m.json", "--model", world.model, "--ep-size", 2)
    ended = cli(*asked)
    assert ended.code == 3
    assert "key 'made_by' stands beside" in ended.out
    (tmp_path / "m.json").write_text(json.dumps({"physical_to_logical_map": [ROW] * 3}))
    ended = cli(*asked[:-1], 5)
    assert ended.code == 3
    assert "where:   layer axis, divisibility" in ended.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--engine", "sglang", "--ep-size", 2), "--model"),
        (("--engine", "sglang", "--model", "deepseek-v3"), "--ep-size"),
        (("--engine", "trt", "--model", "deepseek-v3", "--ep-size", 2), "there is no engine 'trt'"),
        (("--ep-size", 2), "go with --engine"),
        (("--redundant", 0), "go with --engine"),
        (("--engine", "sglang", "--platform", "h100"), "--engine goes with"),
    ],
)
def test_wrong_usage_of_check(cli, world, options, complaint):
    ended = cli("check", world.plan, *options)
    assert ended.code == 2
    assert complaint in ended.err


def test_plans_of_other_families(cli, world, tmp_path):
    ended = cli("export", world.plan, "--engine", "sglang", "-o", tmp_path / "m.json")
    assert ended.code == 3
    assert "a plan of channels, which no serving engine loads" in ended.err
    ended = cli("export", tmp_path / "absent.json", "--engine", "sglang", "-o", tmp_path / "m.json")
    assert ended.code == 3
    ended = cli("export", world.plan, "--engine", "sglang", "-o", world.plan)
    assert ended.code == 2
