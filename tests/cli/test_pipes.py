"""Pipes and devices are refused before they are opened: to open or read one can wait for ever."""

from __future__ import annotations

import os

import pytest

TRACE = ("--model", "deepseek-v2-lite", "-o", "out.parquet")
PLAN = ("plan", "--model", "deepseek-v2-lite", "-o", "out.json")
COUNTED = ("--model", "deepseek-v2-lite", "--platform", "b200-hbmpim", "--tokens-per-expert")


@pytest.mark.parametrize(
    "command",
    [
        ("trace", "import", "in.npz", *TRACE),
        ("trace", "import", "in.npy", *TRACE),
        ("trace", "import", "in.json", *TRACE),
        ("trace", "import", "in.jsonl", *TRACE),
        ("trace", "import", "in.pt", *TRACE),
        ("trace", "import", "in", *TRACE),
        ("trace", "stats", "in.parquet"),
        ("trace", "stats", "/dev/null"),
        ("platforms", "./in.yaml"),
        ("platforms", "./in"),
        ("models", "./in.yaml"),
        ("models", "./in.json"),
        ("models", "./in"),
        ("check", "in.json"),
        ("report", "in.json"),
        ("explain", "in.json"),
        ("export", "in.json", "--engine", "vllm", "-o", "out.json"),
        ("export", "in.npz", "--engine", "sglang", "-o", "out.json"),
        (*PLAN, "--platform", "spimoe-4x8", "--trace", "in.parquet"),
        (*PLAN, "--platform", "h20x32", "--load", "in.npz"),
        (*PLAN, "--platform", "h20x32", "--load", "in.npy"),
        ("partition", *COUNTED, "in.txt"),
        ("timeline", *COUNTED, "in.txt"),
    ],
)
def test_no_pipe_is_opened(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for word in command:
        if word.removeprefix("./").partition(".")[0] == "in":
            os.mkfifo(word)
    before = sorted(tmp_path.iterdir())
    ended = cli(*command)
    assert (ended.code, ended.out) == (3, "")
    assert "is no regular file" in ended.err
    assert "fix: " in ended.err
    assert sorted(tmp_path.iterdir()) == before
