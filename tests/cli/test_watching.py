"""The bar of long work over tokens."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from moeplan.cli import watching


@pytest.mark.parametrize("terminal", [True, False])
def test_rate_and_time_left_on_a_terminal_only(monkeypatch, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(watching, "stderr", lambda: console)
    monkeypatch.setattr(console, "get_time", lambda: float(next(clock)))
    with watching.watch("counting", 4_000_000) as on_progress:
        for done in range(0, 2_000_001, 500_000):
            on_progress(done, 4_000_000)
    drawn = console.file.getvalue()
    assert ("counting" in drawn) == terminal
    assert bool(re.search(r"\d+\.\d [kM] tokens/s", drawn)) == terminal
    assert bool(re.search(r"time left.*\d:\d\d:\d\d", drawn)) == terminal
