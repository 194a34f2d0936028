"""Solvers of other distributions: found by their entry points, and left out alone where one is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PLUGIN = """
from moeplan.placement.registry import SolverInfo, solvers_of

during = set(solvers_of("channels"))  # may be asked for while plug-ins are loaded
first = SolverInfo("channels", "first", lambda: None, "for a test")
last = SolverInfo("ring", "last", lambda: None, "for a test")
clash = SolverInfo("channels", "auto", lambda: None, "for a test")
nothing = 3
"""
ENTRIES = """
[moeplan.solvers]
a = plugin_of_a_test:first
b = no_such_module_of_a_test:solver
c = broken_plugin_of_a_test:solver
d = plugin_of_a_test:nothing
e = plugin_of_a_test:clash
f = plugin_of_a_test:last
"""
ASK = """
import json, sys, warnings
from moeplan.placement.registry import families, solvers_of
asked, told = [], []
for _ in range(int(sys.argv[1])):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(sys.argv[2])
        try:
            asked.append([sorted(solvers_of("channels")), sorted(solvers_of("ring")), len(families())])
        except RuntimeWarning as error:
            told.append(str(error))
    told += [str(warning.message) for warning in caught]
print(json.dumps([asked, told]))
"""


@pytest.fixture
def ask(tmp_path):
    """Ask for solvers several times, in a process that sees one distribution more."""
    (tmp_path / "plugin_of_a_test.py").write_text(PLUGIN)
    (tmp_path / "broken_plugin_of_a_test.py").write_text("1 / 0")
    about = tmp_path / "third_party-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)

    def run(times: int, on_warning: str):
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-c", ASK, str(times), on_warning]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_broken_entry_point_is_left_out_and_named(ask):
    asked, told = ask(2, "always")
    assert asked[0] == asked[1]
    channels, ring, families = asked[0]
    assert {"auto", "exact", "first"} <= set(channels)
    assert {"auto", "last"} <= set(ring)
    assert families == 5
    causes = {"b": "no_such_module_of_a_test", "c": "division by zero", "d": "no SolverInfo", "e": "'auto'"}
    assert len(told) == len(causes)  # once, not at every call
    for text, (entry, cause) in zip(told, causes.items(), strict=True):
        assert f"entry point {entry!r}" in text
        assert "'third-party'" in text
        assert cause in text


def test_where_warnings_are_errors_nothing_is_registered_twice(ask):
    asked, told = ask(5, "error")
    assert [text.split("entry point ")[1][:3] for text in told] == ["'b'", "'c'", "'d'", "'e'"]
    assert len(asked) == 1
    assert "first" in asked[0][0]
    assert "last" in asked[0][1]
