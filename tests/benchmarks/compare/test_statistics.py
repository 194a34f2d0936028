"""Gaps, standings and profiles from cells whose numbers are worked out by hand."""

from __future__ import annotations

import math

import pytest

from moeplan.benchmarks.compare.best_known import BestKnown
from moeplan.benchmarks.compare.cell import Cell, Finished, Outcome
from moeplan.benchmarks.compare.statistics import PROFILE_AT, behind, profiles, rows, shown, standings


def done(instance, solver, seed, objective, held_out=None, bound=0.0, status="ok"):
    outcome = Outcome(
        status,
        objective_s=objective,
        total_s=objective,
        held_out_s=held_out,
        bound_s=bound,
        bound_by="by hand",
        stop="converged",
        problem=f"question of {instance}",
    )
    return Finished(Cell(instance, solver, seed, 1.0, None), outcome, "1.0")


#: Two channels instances with held-out scores, a ring without.
CELLS = [
    done("channels/a", "auto", 0, 10.0, 11.0, bound=8.0),
    done("channels/a", "auto", 1, 12.0, 13.0, bound=8.0),
    done("channels/a", "lpt", 0, 20.0, 10.0, bound=9.0),
    done("channels/b", "auto", 0, 4.0, 4.0),
    done("channels/b", "auto", 1, 4.0, 4.0),
    done("channels/b", "lpt", 0, 5.0, 8.0),
    done("ring/a", "exact", 0, 2.0, bound=2.0),
    done("ring/a", "snake", 0, 3.0),
    done("ring/a", "ilp", 0, None, status="timeout"),
]


def test_rows_by_hand():
    found = {(row.instance, row.solver): row for row in rows(CELLS, {})}
    auto = found["channels/a", "auto"]
    assert (auto.objective, auto.held_out_s, auto.score_s, auto.seeds) == (11.0, 12.0, 12.0, 2)
    assert auto.bound_s == 9.0  # lpt's bound is the stronger one, and holds for everyone
    assert auto.gap == pytest.approx(1 - 9 / 11)
    assert auto.over_best == pytest.approx(11 / 10 - 1)  # the best single objective is 10
    assert auto.over_first == pytest.approx(12 / 10 - 1)  # lpt holds out better
    assert found["ring/a", "snake"].over_first == pytest.approx(0.5)
    assert ("ring/a", "ilp") not in found
    assert [row.solver for row in rows(CELLS, {}) if row.instance == "channels/a"] == ["lpt", "auto"]


def test_best_known_counts_only_for_the_same_question():
    better = BestKnown("question of ring/a", 1.0, "cpsat", "1.0", 0.5, "by hand", "1.0")
    (exact,) = (row for row in rows(CELLS, {"ring/a": better}) if row.solver == "exact")
    assert exact.over_best == pytest.approx(1.0)
    other = BestKnown("another question", 1.0, "cpsat", "1.0", 0.5, "by hand", "1.0")
    (exact,) = (row for row in rows(CELLS, {"ring/a": other}) if row.solver == "exact")
    assert exact.over_best == 0.0


def test_standings_are_geometric_means_over_instances():
    found = {(s.family, s.solver): s for s in standings(CELLS)}
    assert found["channels", "auto"].ratio == pytest.approx(math.sqrt(1.2 * 1.0))
    assert found["channels", "lpt"].ratio == pytest.approx(math.sqrt(1.0 * 2.0))
    auto = found["channels", "auto"]
    # Resampled seeds give means of 11, 12 or 13 on the first instance.
    assert auto.low == pytest.approx(math.sqrt(1.1))
    assert auto.high == pytest.approx(math.sqrt(1.3))
    lpt = found["channels", "lpt"]
    assert lpt.low == lpt.high == pytest.approx(lpt.ratio)  # one seed says nothing about its spread
    assert [s.solver for s in standings(CELLS) if s.family == "ring"] == ["exact", "snake"]


def test_profiles_count_missing_scores_as_never():
    found = profiles([*CELLS, done("channels/b", "cpsat", 0, 4.0, 4.0)])
    at = {ratio: index for index, ratio in enumerate(PROFILE_AT)}
    assert found["channels"]["auto"][at[1.0]] == 0.5
    assert found["channels"]["auto"][at[1.2]] == 1.0
    assert found["channels"]["cpsat"][at[2.0]] == 0.5
    assert found["channels"]["lpt"][at[1.5]] == 0.5
    assert found["channels"]["lpt"][at[2.0]] == 1.0


def test_behind_names_where_ours_is_not_first():
    assert behind(rows(CELLS, {})) == ["channels/a: auto is 20.00% behind"]


def test_scores_have_the_unit_of_their_family():
    assert shown("channels/law-b32", 2.5e-4) == "250.00 us"
    assert shown("replicas/16e-20s-4r", 811_524.75) == "811,525 tokens"
