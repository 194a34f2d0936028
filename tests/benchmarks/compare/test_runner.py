"""Cells run in their own processes, are kept one by one, and are picked up again."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from moeplan.benchmarks.compare import runner
from moeplan.benchmarks.compare.cell import Cell, Finished, Outcome
from moeplan.benchmarks.compare.instances import Instance, find
from moeplan.benchmarks.compare.runner import Limits, grid, run
from moeplan.benchmarks.compare.store import Store
from moeplan.common.errors import BadInput, UsageError
from moeplan.placement.result import Budget

RING = "ring/4x8-c9"
SNAKE = Cell(RING, "snake", 0, 1.0, None)


def go(cells, store, memory_bytes=0, jobs=1):
    seen = []
    found = run(cells, store, Limits(memory_bytes, jobs), interrupt=threading.Event(), on_cell=seen.append)
    return found, seen


def test_grid_runs_constructions_once_and_searches_with_every_seed():
    cells = grid([find(RING)], ["snake", "annealing"], range(3), Budget(time_s=1.0))
    assert [(c.solver, c.seed) for c in cells] == [
        ("snake", 0),
        ("annealing", 0),
        ("annealing", 1),
        ("annealing", 2),
    ]


def test_a_cell_gives_what_solve_gives_and_is_not_run_twice(tmp_path):
    from moeplan.placement.solve import solve

    store = Store(tmp_path)
    found, seen = go([SNAKE], store)
    assert [f.outcome.status for f in found] == ["ok"]
    here = solve(find(RING).pose(), "snake")
    assert found[0].outcome.objective_s == here.cost.objective_s
    assert found[0].outcome.bound_s == here.bound.value_s
    assert found[0].outcome.peak_bytes > 2**20
    again, seen_again = go([SNAKE], store)
    assert (again, len(seen), len(seen_again)) == (found, 1, 0)


def test_a_crash_is_listed_and_tried_again(tmp_path):
    cell = Cell(RING, "no_such_solver", 0, 1.0, None)
    store = Store(tmp_path)
    found, _ = go([cell, SNAKE], store, jobs=2)
    assert [f.outcome.status for f in found] == ["failed", "ok"]
    assert "no_such_solver" in found[0].outcome.reason
    assert store.missing([cell, SNAKE]) == [cell]


@pytest.mark.parametrize("mebibytes", [64, 300])  # too little for Python's own libraries, and for compilers
def test_a_memory_limit_is_honoured(tmp_path, mebibytes):
    found, _ = go([SNAKE], Store(tmp_path), memory_bytes=mebibytes * 2**20)
    assert found[0].outcome.status == "memory"
    assert found[0].outcome.objective_s is None


def test_what_runs_too_long_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_GRACE_S", -2.0)  # the budget is 1 s: late from the start
    found, _ = go([SNAKE], Store(tmp_path))
    assert found[0].outcome.status == "timeout"


def test_skips_have_reasons(tmp_path, monkeypatch):
    monkeypatch.delenv("MOEPLAN_TRACES", raising=False)
    cells = [Cell("channels/law-b32", "lpt", 0, 1.0, None), Cell("channels/olmoe-b32", "exact", 0, 1.0, None)]
    found, _ = go(cells, Store(tmp_path))
    assert [f.outcome.status for f in found] == ["skipped", "skipped"]
    assert "MOEPLAN_TRACES" in found[0].outcome.reason
    assert "tree" in found[1].outcome.reason


def test_killed_in_the_middle_a_second_run_finishes_what_is_missing(tmp_path):
    """A stand-in for `kill -9`: the process is killed after the first cell has been kept."""
    script = (
        "import os, signal, sys, threading; from pathlib import Path\n"
        "from moeplan.benchmarks.compare.cell import Cell\n"
        "from moeplan.benchmarks.compare.runner import Limits, run\n"
        "from moeplan.benchmarks.compare.store import Store\n"
        f"cells = [Cell({RING!r}, s, 0, 1.0, None) for s in ('snake', 'row_major')]\n"
        "kill = lambda finished: os.kill(os.getpid(), signal.SIGKILL)\n"
        "run(cells, Store(Path(sys.argv[1])), Limits(0, 1), interrupt=threading.Event(), on_cell=kill)\n"
    )
    died = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True)
    assert died.returncode == -9
    cells = [Cell(RING, solver, 0, 1.0, None) for solver in ("snake", "row_major")]
    assert Store(tmp_path).missing(cells) == cells[1:]
    found, seen = go(cells, Store(tmp_path))
    assert [f.outcome.status for f in found] == ["ok", "ok"]
    assert [f.cell for f in seen] == cells[1:]


def test_a_damaged_cell_is_named(tmp_path):
    store = Store(tmp_path)
    store.write(Finished(SNAKE, Outcome("ok", objective_s=1.0), "1"))
    (path,) = tmp_path.glob("*.parquet")
    path.write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="delete it"):
        store.read(SNAKE)


def test_unknown_instance_is_corrected():
    with pytest.raises(UsageError, match="ring/4x8-c9"):
        find("ring/4x8-c8")


def test_family_is_the_first_part_of_the_name():
    assert Instance("ring/x", "small", lambda: None).family == "ring"


def test_damaged_cells_run_again(tmp_path):
    store = Store(tmp_path)
    solvers = ("snake", "row_major", "annealing", "exact")
    cells = [Cell(RING, solver, 0, None, 50) for solver in solvers]
    for cell in cells:
        store.write(Finished(cell, Outcome("ok", objective_s=1.0), "1"))
    paths = [tmp_path / f"{cell.key}.parquet" for cell in cells]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    paths[2].write_bytes(paths[3].read_bytes())  # whole, but another cell's
    assert store.missing(cells) == store.damaged == cells[:3]
    assert [found.cell for found in store.finished(cells)] == cells[3:]
    found, seen = go(cells[:2], store)
    assert [f.outcome.status for f in found] == ["ok", "ok"]
    assert [f.cell for f in seen] == cells[:2]
    assert store.missing(cells[:2]) == store.damaged == []


def test_a_folder_in_place_of_a_cell_is_named(tmp_path):
    (tmp_path / f"{SNAKE.key}.parquet").mkdir()
    with pytest.raises(BadInput, match=f"{SNAKE.key}.parquet' is no regular file") as caught:
        Store(tmp_path).missing([SNAKE])
    assert "remove it or move it away" in caught.value.fix
