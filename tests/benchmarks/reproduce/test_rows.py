"""Differences by hand, and what a reader gets of a row."""

from __future__ import annotations

import pytest

from moeplan.benchmarks.reproduce.page import render
from moeplan.benchmarks.reproduce.rows import Row


@pytest.mark.parametrize(
    ("published", "to", "ours", "difference"),
    [
        (2.0, None, 2.5, 0.25),
        (2.0, None, 1.5, -0.25),
        (1.11, 1.17, 1.15, 0.0),
        (1.0, 1.25, 1.5, 0.2),
        (1.0, 1.25, 0.9, -0.1),
        (3.33, 2.03, 2.5, 0.0),  # a range that falls
        (None, None, 1.0, None),
        (1.0, None, None, None),
    ],
)
def test_difference(published, to, ours, difference):
    row = Row("sieve", "x", published, ours, published_to=to)
    assert row.difference == (None if difference is None else pytest.approx(difference))


def test_json_and_cells():
    row = Row("sieve", "figure 9", 1.11, 1.742, "why", published_to=1.17)
    assert row.as_dict() == {
        "source": "sieve",
        "item": "figure 9",
        "published": [1.11, 1.17],
        "ours": 1.742,
        "difference": pytest.approx(1.742 / 1.17 - 1),
        "note": "why",
    }
    assert row.cells() == ("1.11 .. 1.17", "1.742", "+48.9%")
    assert Row("sieve", "x", None, None, "missing").cells() == ("-", "-", "-")


def test_page_says_how_many_are_close():
    page = render(
        [Row("sieve", "a<b", 1.0, 1.05), Row("eplb", "b", 1.0, 2.0), Row("eplb", "c", None, None, "n")]
    )
    assert "3 published figures, 2 with a number of ours beside them, 1 of those within 10 %" in page
    assert "a&lt;b" in page
