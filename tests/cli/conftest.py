"""A small world on disk, and the command line run in this process or in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from moeplan.cli.main import run

MODEL = """\
name: tiny
source: made up for tests
layers: 4
moe_layers: "1-3"
hidden_size: 256
expert_intermediate_size: 128
experts: 8
top_k: 2
dense_intermediate_size: 512
vocab_size: 1000
attention: {kind: gqa, heads: 4, kv_heads: 4, head_dim: 64}
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class World:
    """Files of a small model: `plan` was planned on `trace` with half of it held out."""

    model: Path
    trace: Path
    other_trace: Path
    plan: Path


def invoke(*arguments: object) -> Outcome:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    return Outcome(int(str(code or 0)), out.getvalue(), err.getvalue())


def start(*arguments: object, cwd: Path, **pipes: int) -> subprocess.Popen[str]:
    """Start a command line in a process of its own."""
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "moeplan.cli", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, env=environment, text=True, **pipes)


def invoke_process(*arguments: object, cwd: Path) -> Outcome:
    """Run a command line in a process of its own, in the folder `cwd`."""
    process = start(*arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    return Outcome(process.returncode, out, err)


@pytest.fixture(scope="session")
def cli() -> Callable[..., Outcome]:
    return invoke


@pytest.fixture(scope="session")
def cli_process() -> Callable[..., Outcome]:
    return invoke_process


@pytest.fixture(scope="session")
def start_cli() -> Callable[..., subprocess.Popen[str]]:
    return start


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    made = World(*(folder / name for name in ("tiny.yaml", "trace.parquet", "other.parquet", "plan.json")))
    made.model.write_text(MODEL)
    for seed, path in enumerate((made.trace, made.other_trace)):
        size = ("--tokens", 1280, "--requests", 80, "--concurrency", 40)
        ended = invoke("trace", "synth", "--model", made.model, *size, "--seed", seed, "-o", path)
        assert ended.code == 0, ended.err
    ended = invoke("plan", *inputs(made), "--budget", "500it", "--seed", 3, "-o", made.plan)
    assert ended.code == 0, ended.err
    return made


def inputs(world: World) -> list[object]:
    """The options of `moeplan plan` that say what to plan, at a small batch."""
    named = ["--model", world.model, "--platform", "spimoe-4x8", "--trace", world.trace]
    return [*named, "--batch", 8, "--steps", 12]


@pytest.fixture(scope="session")
def plan_inputs(world: World) -> list[object]:
    return inputs(world)
