"""From text to values."""

from __future__ import annotations

from pathlib import Path

import pytest

from moeplan.cli.options import (
    check_outputs,
    parse_budget,
    parse_layers,
    parse_solver_options,
    show_layers,
)
from moeplan.cli.traffic import parse_held_out
from moeplan.common.errors import UsageError


@pytest.mark.parametrize(
    ("text", "time_s", "iterations"),
    [
        ("2s", 2.0, None),
        ("500ms", 0.5, None),
        ("1 min", 60.0, None),
        ("20000it", None, 20000),
        ("2s,20000it", 2.0, 20000),
        ("20000it, 0.25s", 0.25, 20000),
    ],
)
def test_budgets(text, time_s, iterations):
    budget = parse_budget(text, gap=0.01)
    assert (budget.time_s, budget.iterations, budget.gap) == (time_s, iterations, 0.01)


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0s",
        "0it",
        "-1s",
        "-5it",
        "abc",
        "",
        "2",
        "1.5it",
        "infs",
        "nan s",
        "2s,3s",
        "1it,2it",
        "2s,",
        "2 S",
    ],
)
def test_what_is_no_budget_is_refused_with_examples(text):
    with pytest.raises(UsageError, match="is no budget") as caught:
        parse_budget(text)
    assert "--budget 2s" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "layers"), [("3", (3,)), ("3-5,8", (3, 4, 5, 8)), ("8, 3-4", (3, 4, 8)), ("1-7/3", (1, 4, 7))]
)
def test_layers(text, layers):
    assert parse_layers(text, tuple(range(1, 10)), "the trace") == layers


@pytest.mark.parametrize("text", ["", "x", "3-", "5-3", "3..5"])
def test_what_names_no_layers_is_refused(text):
    with pytest.raises(UsageError, match="names no layers"):
        parse_layers(text, (1, 2, 3), "the trace")


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="the trace has no MoE layer 4") as caught:
        parse_layers("2-4", (1, 2, 3, 7), "the trace")
    assert caught.value.allowed == "1-3,7"


def test_layer_ids_are_shown_as_they_are_written():
    assert show_layers((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert show_layers(()) == ""


def test_solver_options_read_numbers_and_words():
    pairs = ["a=1", "b=0.5", "c=true", "d=fast", "e=x=y"]
    assert parse_solver_options(pairs) == {"a": 1, "b": 0.5, "c": True, "d": "fast", "e": "x=y"}


@pytest.mark.parametrize("pairs", [["a"], ["=1"], ["a=1", "a=2"]])
def test_what_is_no_option_is_refused(pairs):
    with pytest.raises(UsageError):
        parse_solver_options(pairs)


def test_held_out_is_a_share_or_a_path():
    assert parse_held_out("0.5") == 0.5
    assert parse_held_out("other.parquet") == Path("other.parquet")


def test_outputs_are_distinct_and_writable(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    check_outputs({"-o": a, "--report": b}, {"--trace": tmp_path / "c"})
    with pytest.raises(UsageError, match="--report and -o name the same file"):
        check_outputs({"-o": a, "--report": tmp_path / "x" / ".." / "a"}, {})
    with pytest.raises(UsageError, match="-o and --trace name the same file"):
        check_outputs({"-o": a}, {"--trace": a})
    assert list(tmp_path.iterdir()) == []
