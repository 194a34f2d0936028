"""`moeplan compare`: ranks, what is kept for a second run, and what is refused."""

from __future__ import annotations

import json

import pytest

RING = ["compare", "--instance", "ring/4x8-c9", "--solver", "snake", "--solver", "exact", "--seeds", "1"]


@pytest.fixture(scope="module")
def ran(cli, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    more = ["--best-known", folder / "best.json", "--report", folder / "page.html", "--json"]
    return folder, cli(*RING, "-o", folder / "cells", *more)


def test_json_ranks_solvers(ran):
    out = json.loads(ran[1].out)
    assert (out["cells"], out["finished"]) == (2, 2)
    assert [(s["family"], s["solver"]) for s in out["standings"]] == [("ring", "exact"), ("ring", "snake")]
    exact, snake = out["rows"]
    assert exact["gap"] == 0.0  # the exact solver proves its answer
    assert snake["over_best"] == pytest.approx(snake["objective"] / exact["objective"] - 1)
    assert out["without_score"] == []


def test_best_known_and_page_are_written(ran):
    folder, _ = ran
    known = json.loads((folder / "best.json").read_text())["ring/4x8-c9"]
    assert known["solver"] == "exact"
    assert known["bound_s"] == pytest.approx(known["objective_s"])
    assert "ring/4x8-c9" in (folder / "page.html").read_text()


def test_a_second_run_finds_everything_done(ran, cli):
    folder, first = ran
    again = cli(*RING, "-o", folder / "cells", "--json")
    assert "2 of 2 cells" in again.err
    assert json.loads(again.out)["rows"] == json.loads(first.out)["rows"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--instance", "ring/4x8-c8"], "ring/4x8-c9"),
        (["--solver", "snail"], "snake"),
        (["--family", "rings"], "ring"),
        (["--family", "partition"], "no instance is left"),
        (["--memory", "much"], "much"),
        (["--budget", "soon"], "--budget"),
    ],
)
def test_what_cannot_be_is_refused(cli, tmp_path, more, said):
    result = cli(*RING, *more, "-o", tmp_path / "cells")
    assert result.code in (2, 3)
    assert said in result.err
    assert "Traceback" not in result.err


def test_damaged_cells_run_again_with_one_warning(ran, cli, tmp_path):
    folder, first = ran
    cells = tmp_path / "cells"
    cells.mkdir()
    for path in (folder / "cells").iterdir():
        (cells / path.name).write_bytes(b"")
    again = cli(*RING, "-o", cells, "--json")
    assert again.code == 0
    assert again.err.count("2 damaged cells run again") == 1
    found, before = ([row["total_s"] for row in json.loads(answer.out)["rows"]] for answer in (again, first))
    assert found == before
