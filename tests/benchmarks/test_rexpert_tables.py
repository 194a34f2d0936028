"""ReXpert's printed figures are met; the bars are those of the text's own digits."""

from __future__ import annotations

import pytest

from moeplan.benchmarks.rexpert_row import Row, text, worst
from moeplan.benchmarks.rexpert_tables import rows

ROWS = rows()


def compared(table: str, words: str = "") -> list[Row]:
    found = [row for row in ROWS if row.table == table and words in row.name and row.error is not None]
    assert found
    return found


@pytest.mark.parametrize("table", ["I", "III", "V", "VII", "VIII", "XI"])
def test_tables_are_met(table: str) -> None:
    for row in compared(f"Table {table}"):
        bar = 0.02 if "glm" in row.name else 0.01
        assert abs(row.error or 0.0) < bar, row


def test_counts_of_figures() -> None:
    # Every figure of the tables is compared: 4 + 6 of Table I, 20 of III, 7 and the weights of V; 12 rows of
    # five columns in XI less four t_FFN that are inputs, and two ratios.
    counts = {table: len(compared(f"Table {table}")) for table in ("I", "III", "V", "XI")}
    assert counts == {"I": 10, "III": 20, "V": 8, "XI": 12 * 5 - 4 + 2}


def test_layer_times_are_met() -> None:
    times = compared("Figure 8", ": layer")
    assert len(times) == 2
    for row in times:
        assert abs(row.error or 0.0) < 0.02, row


def test_demands_and_penalties_are_met() -> None:
    for row in compared("Section V-C"):
        assert abs(row.error or 0.0) < 0.15, row
    # Equation 3 with the published layer time instead of columns x 2.5 ns would come closer than 3 %.
    for row in [*compared("Figure 8", ": D2D"), *compared("Table IV")]:
        assert abs(row.error or 0.0) < 0.03, row
    for row in compared("Figure 8", ": dies"):
        assert row.error == 0.0, row


def test_rounding_is_to_the_printed_digits_only() -> None:
    assert Row("T", "n", 1.617, 1.6, decimals=1).error == pytest.approx(0.0)
    assert Row("T", "n", 1.617, 1.6).error == pytest.approx(0.017 / 1.6)
    assert Row("T", "n", 1.617, None).error is None


def test_text() -> None:
    page = text(ROWS)
    assert page.startswith("## Table I\n")
    assert "| h20: FLOP per byte | 74 | 74 | +0.0% |  |" in page
    assert page.count("## ") == len({row.table for row in ROWS})
    assert "largest error" in worst("Table I", ROWS)
