"""The held-out comparison of mappings: what it compares, and what it says of it."""

from __future__ import annotations

import json
import math

import pytest

from moeplan.benchmarks.mapping_table import OURS, PUBLISHED, Row, Score, Sizes, main, markdown, table

SMALL = ["--seeds", "2", "--steps", "4", "--batches", "4", "--oracle-steps", "1"]


@pytest.fixture(scope="module")
def row():
    size = Sizes(seeds=2, layers=1, steps=4, oracle_steps=1)
    (only,) = table(["phi-mini-moe"], [4], size, None)
    return only


def test_every_policy_runs_on_every_instance(row):
    names = {"ep", "lpt", "mixed_tp", "spimoe_cliques", "spimoe"}
    assert set(row.scores) == names | {f"{name}_rows" for name in names} | {OURS}
    assert all(len(scores) == 2 for scores in row.scores.values())


def test_the_layout_alone_makes_no_placement_slower(row):
    """`ep` is the same placement in both layouts, and `best` may always take whole outputs per bank."""
    for best, rows in zip(row.scores["ep"], row.scores["ep_rows"], strict=True):
        assert best.held_out_s <= rows.held_out_s


def test_what_nothing_beats_is_not_beaten(row):
    """Per-step bounds are below every held-out time; one placement fitted to them is no slower than ours."""
    for scores in row.scores.values():
        assert sum(score.held_out_s for score in scores) / 2 >= row.bound_s * (1 - 1e-9)
    shares = row.unavoidable
    assert 0.0 < shares["oracle"] <= 1.0 + 1e-9
    assert shares["fixed_bound"] <= shares["hindsight"] <= 1.0 + 1e-9


def made_up(ours: list[float]) -> Row:
    spimoe = [Score(1e-6, 2e-6, 1.0), Score(1e-6, 4e-6, 1.0)]
    mine = [Score(1e-6, held_out_s, 0.5) for held_out_s in ours]
    names = ["ep", "lpt", "mixed_tp", "spimoe_cliques"]
    scores = {name: spimoe for name in [PUBLISHED, *names, *(f"{n}_rows" for n in [*names, PUBLISHED])]}
    return Row("law", 8, {**scores, OURS: mine}, 1e-6, {})


def test_ratios_are_paired_by_instance():
    """1 / 2 and 3 / 4: mean 0.625, standard error sqrt(2 * 0.125^2 / 1 / 2) = 0.125."""
    mean, error = made_up([1e-6, 3e-6]).ratio(OURS)
    assert mean == pytest.approx(0.625)
    assert error == pytest.approx(0.125)


def test_lost_cells_are_named():
    """1.25 and 1.3 of the published time: 1.275 with an error of 0.025; 0.5 and 0.75 are no loss."""
    text = markdown([made_up([2.5e-6, 5.2e-6]), made_up([1e-6, 3e-6])])
    assert "Ours takes 0.950 of the held-out time" in text
    assert "loses beyond two standard errors in: law at 8." in text
    assert "in: none." in markdown([made_up([1e-6, 3e-6])])


def test_json_holds_every_score(capsys):
    assert main([*SMALL, "--sources", "phi-mini-moe", "--json"]) == 0
    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert cell["source"] == "phi-mini-moe"
    assert all(math.isfinite(score["held_out_s"]) for score in cell["scores"]["auto"])


def test_without_traces_their_cells_are_left_out(capsys, monkeypatch):
    monkeypatch.delenv("MOEPLAN_TRACES", raising=False)
    assert main([*SMALL, "--sources", "law"]) == 0
    assert "the traces are missing" in capsys.readouterr().out


def test_sizes_below_one_are_refused(capsys):
    assert main(["--seeds", "0", "--sources", "phi-mini-moe"]) == 2
    assert "at least 1" in capsys.readouterr().err
