"""The best-known file only improves, and refuses contradictions."""

from __future__ import annotations

import json

import pytest

from moeplan.benchmarks.compare.best_known import (
    SHIPPED,
    BestKnown,
    improved,
    read_best_known,
    write_best_known,
)
from moeplan.benchmarks.compare.cell import Cell, Finished, Outcome
from moeplan.benchmarks.compare.instances import instances
from moeplan.common.errors import BadInput
from moeplan.placement.registry import solvers_of

OLD = BestKnown("q", 10.0, "auto", "0.1", 8.0, "average load", "0.1")


def cell(objective, bound, problem="q", status="ok"):
    outcome = Outcome(status, objective_s=objective, bound_s=bound, bound_by="new argument", problem=problem)
    return Finished(Cell("ring/a", "exact", 0, 1.0, None), outcome, "0.2")


def test_better_objective_and_better_bound_come_in_separately():
    assert improved({"ring/a": OLD}, [cell(9.0, 7.0)])["ring/a"] == BestKnown(
        "q", 9.0, "exact", "0.2", 8.0, "average load", "0.1"
    )
    assert improved({"ring/a": OLD}, [cell(11.0, 9.0)])["ring/a"] == BestKnown(
        "q", 10.0, "auto", "0.1", 9.0, "new argument", "0.2"
    )


def test_nothing_gets_worse():
    assert improved({"ring/a": OLD}, [cell(11.0, 7.0), cell(None, None, status="failed")]) == {"ring/a": OLD}


def test_another_question_starts_anew():
    assert improved({"ring/a": OLD}, [cell(20.0, 1.0, problem="r")])["ring/a"].objective_s == 20.0


@pytest.mark.parametrize(("objective", "bound"), [(11.0, 10.5), (7.0, 6.0)])
def test_contradictions_are_refused(objective, bound):
    with pytest.raises(BadInput, match="bug"):
        improved({"ring/a": OLD}, [cell(objective, bound)])


def test_round_trip(tmp_path):
    path = tmp_path / "best.json"
    write_best_known({"ring/a": OLD}, path)
    assert read_best_known(path) == {"ring/a": OLD}
    path.write_text(json.dumps({"ring/a": {**vars(OLD), "bound_s": 11.0}}))
    with pytest.raises(BadInput, match="above its objective"):
        read_best_known(path)


def test_shipped_file_speaks_of_instances_and_solvers_that_there_are():
    for name, entry in read_best_known(SHIPPED).items():
        instance = instances()[name]
        assert entry.solver in solvers_of(instance.family)
        if instance.unavailable() is None and instance.size == "small":
            assert instance.pose().fingerprint == entry.problem, f"{name} asks something else now"
