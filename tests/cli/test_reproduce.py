"""`moeplan reproduce`: rows with differences, a page, and what is refused."""

from __future__ import annotations

import json

import pytest

from moeplan.benchmarks.reproduce.collect import SOURCES


def test_rows_of_one_source_and_their_page(cli, tmp_path):
    page = tmp_path / "page.html"
    out = json.loads(cli("reproduce", "eplb", "--json", "--report", page).out)
    assert {row["source"] for row in out["rows"]} == {"eplb"}
    numbers = [row for row in out["rows"] if row["difference"] is not None]
    assert len(numbers) >= 40
    for row in numbers:
        assert row["difference"] == pytest.approx(row["ours"] / row["published"] - 1)
    assert all(row["note"] for row in out["rows"] if row["ours"] is None)
    # Nothing is drawn towards the published side: balance agrees because the algorithm is the same.
    balance = [row["difference"] for row in numbers if "balancedness" in row["item"]]
    assert max(map(abs, balance)) < 0.05
    assert f"{len(out['rows'])} published figures" in page.read_text()


def test_an_unknown_source_is_corrected(cli):
    result = cli("reproduce", "seive")
    assert result.code == 2
    assert "sieve" in result.err
    assert SOURCES == ("sieve", "spimoe", "rexpert", "eplb")


def test_what_cannot_be_made_again_is_said_with_its_reason(cli):
    printed = " ".join(cli("reproduce", "eplb").out.split())
    rows = json.loads(cli("reproduce", "eplb", "--json").out)["rows"]
    missing = [row for row in rows if row["ours"] is None]
    assert missing
    assert all(row["note"] in printed and row["item"] in printed for row in missing)
