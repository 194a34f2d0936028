"""Traces that are larger than what is read whole, and traces in several files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from moeplan.workload.trace import read_trace, write_trace

TIMES = ("elapsed_s", "created", "plan")


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr("moeplan.workload.stream.IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("moeplan.workload.trace_writer.ROW_GROUP_ROWS", 100)

    def whole(*_):
        raise AssertionError("a large trace was read whole")

    monkeypatch.setattr("moeplan.workload.stream.TraceStream.read", whole)


@pytest.fixture
def parts(world, tmp_path):
    """The world's trace in two files, and in one."""
    trace = read_trace(world.trace)
    folder = tmp_path / "parts"
    folder.mkdir()
    half = int(np.flatnonzero(trace.request == 40)[0])  # requests of the second wave
    write_trace(trace.take(np.arange(half)), folder / "a.parquet")
    write_trace(trace.take(np.arange(half, trace.tokens)), folder / "b.parquet")
    return folder


def test_stats_of_a_large_trace_are_those_of_a_small_one(cli, world, request):
    asked = ("trace", "stats", world.trace, "--batch", 8, "--steps", 12, "--json")
    small = cli(*asked)
    request.getfixturevalue("everything_is_large")
    large = cli(*asked)
    assert small.code == large.code == 0
    assert json.loads(small.out) == json.loads(large.out)
    assert cli(*asked[:-1]).out.startswith(f"{world.trace}: 1280 tokens of 80 requests, layers 1-3 of tiny")


def test_a_folder_has_the_stats_of_the_whole(cli, world, parts):
    whole, folder = (
        json.loads(cli("trace", "stats", path, "--batch", 8, "--json").out) for path in (world.trace, parts)
    )
    assert folder["replay"] == whole["replay"]
    assert folder["tokens"] == whole["tokens"]


def timeless(value):
    """A plan without the fields that say how long things took."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("split", ["request", "time"])
def test_a_large_trace_is_planned_like_a_small_one(cli, plan_inputs, tmp_path, request, split):
    asked = ("plan", *plan_inputs, "--budget", "200it", "--split", split, "--quiet", "-o")
    assert cli(*asked, tmp_path / "small.json").code == 0
    request.getfixturevalue("everything_is_large")
    assert cli(*asked, tmp_path / "large.json").code == 0
    small, large = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("small", "large"))
    assert timeless(small) == timeless(large)


def test_some_layers_of_a_large_trace_are_planned_and_checked(
    cli, world, plan_inputs, tmp_path, everything_is_large
):
    plan = tmp_path / "plan.json"
    asked = ("plan", *plan_inputs, "--layers", "2-3", "--budget", "200it", "--quiet", "-o", plan)
    ended = cli(*asked)
    assert ended.code == 0, ended.err
    assert [entry["layer"] for entry in json.loads(plan.read_text())["layers"]] == [2, 3]
    ended = cli("check", plan, "--trace", world.trace, "--model", world.model)
    assert ended.code == 0, ended.out + ended.err
    refused = cli("plan", *plan_inputs, "--layers", "0", "-o", plan)
    assert refused.code == 2
    assert "the trace has no MoE layer 0" in refused.err


def test_the_other_trace_may_be_large_too(cli, world, plan_inputs, tmp_path, everything_is_large):
    plan = tmp_path / "plan.json"
    asked = ("plan", *plan_inputs, "--held-out", world.other_trace, "--layers", "1", "--budget", "100it")
    ended = cli(*asked, "--quiet", "-o", plan)
    assert ended.code == 0, ended.err
    assert json.loads(plan.read_text())["held_out"]["split"] == "whole"


def test_folders_that_cannot_be_read_as_one_trace(cli, world, parts, tmp_path, plan_inputs):
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = cli("trace", "stats", empty)
    assert (refused.code, "is empty" in refused.err) == (3, True)
    (parts / "b.parquet").write_bytes((parts / "b.parquet").read_bytes()[:-50])
    refused = cli("trace", "stats", parts)
    assert (refused.code, "b.parquet" in refused.err) == (3, True)
    assert "fix:" in refused.err


def test_synth_writes_what_it_draws_block_by_block(cli, world, tmp_path, monkeypatch):
    size = ("--tokens", 1280, "--requests", 80, "--concurrency", 40)
    asked = ("--model", world.model, *size, "--seed", 0, "--sampler", "draws")
    assert cli("trace", "synth", *asked, "-o", tmp_path / "one").code == 0
    monkeypatch.setattr("moeplan.workload.synthetic_layer._CHUNK_ELEMENTS", 8 * 100)  # blocks of 100 rows
    ended = cli("trace", "synth", *asked, "-o", tmp_path / "many")
    assert "1280 tokens of 80 requests, layers 1-3 of tiny, 8 experts, top-2" in ended.out
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()
    before = sorted(tmp_path.iterdir())
    refused = cli("trace", "synth", *asked, "-o", tmp_path / "absent" / "t")
    assert refused.code == 3
    assert sorted(tmp_path.iterdir()) == before
