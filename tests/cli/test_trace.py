"""`moeplan trace`: import, synth, stats."""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from moeplan.cli.trace import synth
from moeplan.workload.synthetic import SyntheticRouting
from moeplan.workload.trace import read_trace


def test_import_keeps_what_the_archive_holds(cli, world, tmp_path):
    experts = np.array([[[0, 1], [2, 3], [4, 5]], [[7, 6], [5, 4], [3, 2]]], dtype=np.int16)
    np.savez(tmp_path / "a.npz", experts=experts, request=np.array([4, 4]))
    out = tmp_path / "t.parquet"
    ended = cli(
        "trace", "import", tmp_path / "a.npz", "--model", world.model, "-o", out, "--source", "by hand"
    )
    assert ended.code == 0
    assert f"trace: {out}" in ended.out
    assert "2 tokens of 1 requests, layers 1-3 of tiny, 8 experts, top-2" in ended.out
    trace = read_trace(out)
    assert np.array_equal(trace.experts, experts)
    assert trace.position.tolist() == [0, 1]
    assert trace.source == "by hand"


def test_synth_makes_the_requests_that_were_asked_for(cli, world, tmp_path):
    out = tmp_path / "t.parquet"
    asked = ("--model", world.model, "--tokens", 60, "--requests", 12, "--layers", "2-3")
    assert cli("trace", "synth", *asked, "-o", out).code == 0
    trace = read_trace(out)
    assert trace.layers == (2, 3)
    assert np.bincount(trace.request).tolist() == [5] * 12  # 60 tokens over 12 requests
    assert trace.step.max() == 4  # all side by side
    assert cli("trace", "synth", *asked, "--concurrency", 4, "-o", out).code == 0
    trace = read_trace(out)
    assert np.bincount(trace.request).tolist() == [5] * 12
    assert trace.step.max() == 14  # three waves of 4 requests, 5 steps each


def test_synth_repeats_by_seed(cli, world, tmp_path):
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        files.append(tmp_path / name)
        asked = ("--model", world.model, "--tokens", 60, "--requests", 12, "--seed", seed)
        assert cli("trace", "synth", *asked, "-o", files[-1]).code == 0
    same, again, other = (file.read_bytes() for file in files)
    assert same == again != other


def test_synth_offers_every_knob_with_its_default():
    offered = {name: parameter.default for name, parameter in inspect.signature(synth).parameters.items()}
    for field in fields(SyntheticRouting):
        if field.name not in ("tokens_per_request", "concurrency"):  # follow from --tokens and --requests
            assert offered[field.name] == field.default, field.name


def test_stats_of_a_trace_made_by_hand(cli, world, tmp_path):
    # Every token of the 3 layers chooses experts 0 and 1: two of eight experts get half of the choices each.
    np.savez(
        tmp_path / "a.npz", experts=np.tile(np.int16([0, 1]), (40, 3, 1)), request=np.repeat([0, 1, 2, 3], 10)
    )
    assert cli("trace", "import", tmp_path / "a.npz", "--model", world.model, "-o", tmp_path / "t").code == 0
    ended = cli("trace", "stats", tmp_path / "t", "--batch", 4, "--steps", 10, "--json")
    stats = json.loads(ended.out)
    replayed, tokens = stats["replay"], stats["tokens"]
    assert replayed["gini"]["mean"] == pytest.approx(0.75)  # 2 of 8 hold all: 1 - 2/8
    assert replayed["hottest_over_mean"]["mean"] == pytest.approx(4.0)  # 4 tokens over a mean of 4 * 2 / 8
    assert replayed["top8_share"]["mean"] == pytest.approx(1.0)
    assert replayed["union"]["1"]["mean"] == replayed["union"]["4"]["mean"] == pytest.approx(2.0)
    assert replayed["persistence"]["mean"] == pytest.approx(1.0)
    assert tokens["overlap"]["mean"] == pytest.approx(1.0)
    assert (tokens["tokens"], tokens["requests"]) == (40, 4)
    table = cli("trace", "stats", tmp_path / "t", "--batch", 4, "--steps", 10).out
    assert [line.split()[:2] for line in table.splitlines() if "0.75" in line] == [
        [layer, "0.75"] for layer in ("1", "2", "3", "mean")
    ]


def test_the_replay_of_a_real_trace_has_the_statistics_of_the_trace(cli, tmp_path):
    if "MOEPLAN_TRACES" not in os.environ:
        pytest.skip("MOEPLAN_TRACES does not name the folder of real traces")
    archive = Path(os.environ["MOEPLAN_TRACES"]) / "gpt-oss-20b-decode.npz"
    assert cli("trace", "import", archive, "--model", "gpt-oss-20b", "-o", tmp_path / "t").code == 0
    replayed = json.loads(cli("trace", "stats", tmp_path / "t", "--batch", 128, "--json").out)["replay"]
    # Measured on the recording itself, over all layers.
    assert replayed["hottest_over_mean"]["mean"] == pytest.approx(2.91, rel=0.03)
    assert replayed["union"]["8"]["mean"] == pytest.approx(17.6, rel=0.03)
    assert replayed["union"]["64"]["mean"] == pytest.approx(29.2, rel=0.03)
