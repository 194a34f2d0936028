"""Importing the planner is cheap: heavy libraries are loaded where they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "numba",
    "networkx",
    "scipy",
    "ortools",
    "pulp",
    "highspy",
    "pyarrow",
    "matplotlib",
    "pydantic",
    "joblib",
    "rich",
)


@pytest.mark.parametrize("module", ["moeplan.placement", "moeplan.placement.channels.planning"])
def test_no_heavy_library_is_imported(module):
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
