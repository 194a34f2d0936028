"""Tables on replicas: leads and noise by hand, and cells of small situations."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from moeplan.benchmarks.replicas_table import (
    OTHERS,
    OURS,
    Cell,
    drift_cells,
    held_out_table,
    trace_cells,
    zipf_loads,
)
from moeplan.placement.result import Budget

SHORT = Budget(time_s=None, iterations=4_000)


def test_leads_are_paired_over_layers():
    cell = Cell("made up", {OURS: np.array([0.9, 0.8, 0.7]), "eplb": np.array([0.8, 0.8, 0.6])})
    lead, noise = cell.lead("eplb")
    assert lead == pytest.approx(0.2 / 3)
    # Differences 0.1, 0, 0.1: standard deviation sqrt(1 / 300), over three layers.
    assert noise == pytest.approx(2 * np.sqrt(1 / 300) / np.sqrt(3))


def test_a_table_names_who_is_ahead():
    ahead = {name: np.array([0.5, 0.5]) for name in OTHERS} | {"snake": np.array([0.9, 0.9])}
    table = held_out_table([Cell("made up", {OURS: np.array([0.8, 0.8]), **ahead})])
    assert "0.1000 (snake)" in table
    assert "+0.3000 +- 0.0000" in table


def test_zipf_loads_are_the_share_of_their_rank():
    loads = zipf_loads(2, 4, 1.0, 1, tokens=100_000)
    assert loads.sum(axis=1).tolist() == [800_000.0] * 2
    assert np.sort(loads[0])[::-1] / 800_000 == pytest.approx(np.array([12, 6, 4, 3]) / 25, rel=0.01)


def test_drifted_windows_are_held_out():
    cells = list(drift_cells(SHORT, layers=2))
    assert [cell.name for cell in cells] == ["drift 0.2", "drift 0.5"]
    for cell in cells:
        assert cell.balancedness[OURS].mean() > cell.balancedness["linear"].mean()
    # More drift, less balance, whoever plans.
    assert (cells[0].balancedness["eplb"] > cells[1].balancedness["eplb"]).all()


def test_on_recorded_traffic_ours_beats_eplb():
    if "MOEPLAN_TRACES" not in os.environ:
        pytest.skip("MOEPLAN_TRACES does not name the folder of real traces")
    cells = list(trace_cells(Path(os.environ["MOEPLAN_TRACES"]), SHORT, layers=3))
    assert len(cells) == 8
    assert np.mean([cell.lead("eplb")[0] for cell in cells]) > 0.0
