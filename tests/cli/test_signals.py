"""Ctrl-C and SIGTERM."""

from __future__ import annotations

import json
import os
import pty
import signal
import threading
import time

import pytest

from moeplan.placement.control import Claim
from moeplan.placement.registry import SolverInfo, register, unregister
from moeplan.placement.result import Stop


@pytest.fixture
def signalled():
    """Register a solver that sends this process signals once, and then works until it is told to stop."""

    def install(number, times):
        sent = threading.Lock()

        def work(control):
            if sent.acquire(blocking=False):
                for _ in range(times):
                    signal.raise_signal(number)
            assert control.interrupt.wait(timeout=30.0)
            return Claim(Stop.INTERRUPTED)

        register(SolverInfo("channels", "test_signalled", lambda: work, "for a test", uses_start=True))
        return "test_signalled"

    yield install
    unregister("channels", "test_signalled")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_writes_the_best_so_far(cli, plan_inputs, signalled, number, tmp_path, capfd):
    path, page = tmp_path / "p.json", tmp_path / "r.html"
    solver = signalled(number, times=1)
    ended = cli("plan", *plan_inputs, "--solver", solver, "--jobs", 1, "-o", path, "--report", page, "--json")
    answer = json.loads(ended.out)
    assert ended.code == 130
    assert answer["stop"] == "interrupted"
    assert len(answer["layers"]) == 3  # those not yet begun hold their best baseline
    assert answer["profile"]["objective_s"] <= min(b["objective_s"] for b in answer["baselines"].values())
    assert f"the best found until the interruption is in {path}" in ended.err
    assert "once more to stop at once" in capfd.readouterr().err
    assert json.loads(path.read_text())["totals"]["stop"] == "interrupted"
    assert {file.name for file in tmp_path.iterdir()} == {"p.json", "r.html"}
    assert cli("check", path, "--model", plan_inputs[1], "--trace", plan_inputs[5]).code == 0


def test_the_second_signal_stops_at_once_and_writes_nothing(cli, plan_inputs, signalled, tmp_path, capfd):
    before = signal.getsignal(signal.SIGINT)
    solver = signalled(signal.SIGINT, times=2)
    ended = cli("plan", *plan_inputs, "--solver", solver, "--jobs", 1, "-o", tmp_path / "p.json")
    assert (ended.code, ended.out) == (130, "")
    assert "stopped" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_layers_side_by_side_hear_it_too(cli, plan_inputs, signalled, tmp_path):
    solver = signalled(signal.SIGINT, times=1)
    ended = cli("plan", *plan_inputs, "--solver", solver, "--jobs", 2, "-o", tmp_path / "p.json", "--json")
    assert ended.code == 130
    assert {layer["stop"] for layer in json.loads(ended.out)["layers"]} == {"interrupted"}


def test_a_terminal_shows_a_bar_and_ctrl_c_reaches_the_real_solver(start_cli, plan_inputs, tmp_path):
    import subprocess

    controller, terminal = pty.openpty()
    process = start_cli(
        "plan", *plan_inputs, "--solver", "annealing", "--jobs", 1, "--budget", "1500ms", "--json",
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    seen = b""
    deadline = time.monotonic() + 60.0
    while b"1/3" not in seen and time.monotonic() < deadline:
        seen += os.read(controller, 4096)
    process.send_signal(signal.SIGINT)
    drain = threading.Thread(target=_drain, args=(controller,), daemon=True)
    drain.start()
    out, _ = process.communicate(timeout=60)
    assert b"planning layers" in seen
    assert process.returncode == 130
    assert json.loads(out)["layers"][-1]["stop"] == "interrupted"
    assert json.loads((tmp_path / "plan.json").read_text())["totals"]["stop"] == "interrupted"
    # Layers that ended are kept, so that the same command goes on.
    assert {file.name for file in tmp_path.iterdir()} == {"plan.json", "plan.json.work"}
    drain.join(timeout=10)
    os.close(controller)


def _drain(controller: int) -> None:
    try:
        while os.read(controller, 4096):
            pass
    except OSError:
        pass  # the other end is closed


SWALLOWED = """
import signal, time
from moeplan.cli import signals
signals._GRACE_S = 0.2
with signals.stop_on_signals():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        pass  # as a library may, whose import was interrupted
    {then}
"""


@pytest.mark.parametrize(
    "then",
    ["time.sleep(60)", "pass", "signals.keep_best_on_signals().__enter__()"],
    ids=["on", "end", "work"],
)
def test_a_wish_to_stop_that_a_library_swallows_is_kept(then):
    import subprocess
    import sys

    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(then=then)], capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr


def test_signals_are_heard_before_anything_is_imported():
    import subprocess
    import sys

    code = (
        "import os, signal, sys; import moeplan.cli.entry as entry; "
        "assert 'typer' not in sys.modules, 'imported too early'; "
        "signal.raise_signal(signal.SIGINT); sys.exit(7)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (130, "")
