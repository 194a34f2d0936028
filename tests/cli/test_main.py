"""Help, version, how commands end, and what starting up costs."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from moeplan.cli.console import show_json
from moeplan.common.errors import MissingLibrary
from moeplan.placement.control import Claim
from moeplan.placement.registry import SolverInfo, register, unregister
from moeplan.placement.result import Stop

HEAVY = (
    "numpy",
    "numba",
    "scipy",
    "pandas",
    "pyarrow",
    "networkx",
    "ortools",
    "pulp",
    "matplotlib",
    "pydantic",
)


@pytest.fixture
def solver(request):
    """Register a solver that does what the test says: a function of its control."""
    names = []

    def add(function):
        name = f"test_{len(names)}"
        register(SolverInfo("channels", name, lambda: function, "for a test"))
        names.append(name)
        return name

    yield add
    for name in names:
        unregister("channels", name)


def test_version(cli):
    assert cli("--version").out == metadata.version("moeplan") + "\n"


def test_help_names_every_verb_and_exit_code(cli):
    text = cli("--help").out
    for verb in ("demo", "plan", "trace", "report", "check", "models", "platforms", "solvers", "versions"):
        assert f"│ {verb} " in text
    for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "130 "):
        assert f"\n {code}" in text


def test_help_imports_nothing_heavy(tmp_path):
    import os
    import sys

    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "moeplan.cli", "--help"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ),
    )
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in ended.stderr.splitlines()}
    assert "moeplan" in imported
    assert imported.isdisjoint(HEAVY)


def test_no_verb_shows_the_help(cli):
    ended = cli()
    assert ended.code == 2
    assert "Usage: moeplan" in ended.out + ended.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("plna",), "Did you mean 'plan'"),
        (("plan", "--bugdet", "1s"), "--budget"),
        (("plan",), "Missing option"),
        (("trace", "stat"), "Did you mean"),
    ],
)
def test_usage_errors_end_with_2_and_help(cli, arguments, hint):
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert hint in ended.err


def test_a_reader_that_leaves_early_is_no_error(start_cli, tmp_path):
    process = start_cli(
        "platforms", "spimoe-4x8", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 0


def test_no_colour_without_a_terminal(cli):
    assert "\x1b" not in cli("models", "--help").out + cli("models").out + cli("models", "nothing").err


def test_a_bug_is_owned_up_to_and_shows_its_traceback_only_on_demand(
    cli, plan_inputs, solver, monkeypatch, tmp_path
):
    def broken(control):
        raise ZeroDivisionError("oh")

    arguments = ("plan", *plan_inputs, "--solver", solver(broken), "--jobs", 1, "-o", tmp_path / "p.json")
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (1, "")
    assert "bug of moeplan: ZeroDivisionError: oh" in ended.err
    assert "Traceback" not in ended.err
    monkeypatch.setenv("MOEPLAN_DEBUG", "1")
    assert "Traceback" in cli(*arguments).err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_ends_with_6(cli, plan_inputs, solver, tmp_path):
    def needs(control):
        raise MissingLibrary("this solver needs the library xyz", fix="pip install xyz")

    ended = cli("plan", *plan_inputs, "--solver", solver(needs), "--jobs", 1, "-o", tmp_path / "p.json")
    assert (ended.code, ended.out) == (6, "")
    assert "fix: pip install xyz" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_found_ends_with_5(cli, plan_inputs, solver, tmp_path):
    def idle(control):
        return Claim(Stop.TIME_LIMIT)

    ended = cli("plan", *plan_inputs, "--solver", solver(idle), "--jobs", 1, "-o", tmp_path / "p.json")
    assert (ended.code, ended.out) == (5, "")
    assert "raise the budget" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_with_exact_numbers(capsys):
    show_json({"a": 0.1, "path": Path("x") / "y"})
    assert capsys.readouterr().out == '{\n  "a": 0.1,\n  "path": "x/y"\n}\n'
