"""What the plan report says: ranks, comparisons with baselines, and the table for the terminal."""

from __future__ import annotations

import io

import pytest

from moeplan.benchmarks.report.page import render
from moeplan.benchmarks.report.terminal import headline, summary_table
from moeplan.benchmarks.report.verdict import best_baseline, comparison, reference, rows
from moeplan.placement.channels.document import ChannelPlan

from .report_plans import grid, layer_entry, plan_file, small_plan


def test_rows_rank_by_held_out_time_and_say_what_the_plan_is_beside_them() -> None:
    found = rows(small_plan())
    assert [row.name for row in found] == ["annealing", "lpt", "round_robin", "ep"]
    assert [row.verdict for row in found] == [
        "the plan",
        "5.0% slower than the plan",  # 210 / 200 - 1
        "50.0% slower than the plan",  # 300 / 200 - 1
        "60.0% slower than the plan",  # 320 / 200 - 1
    ]
    assert [row.gap for row in found] == pytest.approx([1 - 150 / x for x in (180, 210, 320, 340)])


def test_a_plan_that_loses_on_held_out_steps_is_said_to_lose() -> None:
    layer = layer_entry(
        0, 8, 8, plan_us=(80.0, 100.0), baselines_us={"ep": (99.0, 150.0), "lpt": (90.0, 98.0)}, bound_us=70.0
    )
    plan = plan_file([layer], grid(2, 4))
    first = rows(plan)[0]
    assert (first.name, first.verdict) == ("lpt", "2.0% faster than the plan")
    assert comparison(plan) == "2.0% more than lpt, the best baseline"  # 100 / 98 - 1 = 2.04 %
    page = render(plan)
    assert "2.0% more than lpt, the best baseline" in page
    assert "2.0% faster than the plan" in page


def test_comparison_is_with_the_best_baseline_on_held_out_steps() -> None:
    assert comparison(small_plan()) == "4.8% less than lpt, the best baseline"  # 1 - 200 / 210
    best = best_baseline(small_plan())
    assert best is not None
    assert best.name == "lpt"


def test_equal_times_are_called_equal() -> None:
    layer = layer_entry(0, 8, 8, plan_us=(80.0, 90.0), baselines_us={"lpt": (80.0, 90.0)}, bound_us=70.0)
    plan = plan_file([layer], grid(2, 4))
    assert comparison(plan) == "the same as lpt, the best baseline"
    assert [row.verdict for row in rows(plan)] == ["the plan", "as fast as the plan"]


def test_reference_is_ep_where_it_fits_else_the_slowest() -> None:
    assert reference(small_plan()) == "ep"
    without_ep = {"ep": None, "lpt": (95.0, 95.0), "round_robin": (120.0, 120.0)}
    layer = layer_entry(0, 8, 8, plan_us=(80.0, 90.0), baselines_us=without_ep, bound_us=70.0)
    assert reference(plan_file([layer], grid(2, 4))) == "round_robin"


def test_a_baseline_that_does_not_fit_is_kept_last_and_named() -> None:
    baselines = {"ep": None, "lpt": (95.0, 95.0)}
    layer = layer_entry(0, 8, 8, plan_us=(80.0, 90.0), baselines_us=baselines, bound_us=70.0)
    plan = plan_file([layer], grid(2, 4))
    last = rows(plan)[-1]
    assert (last.name, last.verdict, last.stop, last.gap) == ("ep", "does not fit", "does not fit", None)
    assert "does not fit" in render(plan)


def test_without_held_out_steps_all_is_said_of_the_profile() -> None:
    layer = layer_entry(0, 8, 8, plan_us=(80.0, None), baselines_us={"ep": (100.0, None)}, bound_us=60.0)
    plan = plan_file([layer], grid(2, 4))
    page = render(plan)
    assert comparison(plan) == "20.0% less than ep, the best baseline"  # 1 - 80 / 100
    assert "held-out" not in page
    assert "on the profile that it was planned on" in page
    assert "no site loads of baselines" in page


def test_a_plan_without_baselines_is_reported_alone() -> None:
    layer = layer_entry(0, 8, 8, plan_us=(80.0, 90.0), baselines_us={}, bound_us=60.0)
    plan = plan_file(
        [layer, layer_entry(1, 8, 8, plan_us=(70.0, 90.0), baselines_us={}, bound_us=60.0)], grid(2, 4)
    )
    assert comparison(plan) == ""
    assert "best baseline" not in render(plan)
    assert headline(plan) == "180.0 us on held-out steps; gap 20.0%"  # 1 - 120 / 150


def test_the_large_picture_shows_the_layer_of_median_gain() -> None:
    gains = {3: 120.0, 4: 300.0, 5: 150.0}  # ep / plan = 1.2, 3.0, 1.5: layer 5 is in the middle
    layers = [
        layer_entry(k, 8, 8, plan_us=(100.0, 100.0), baselines_us={"ep": (ep, ep)}, bound_us=50.0)
        for k, ep in gains.items()
    ]
    assert "Layer 5, the one with the median gain over ep." in render(plan_file(layers, grid(2, 4)))


def test_layers_note_counts_wins_against_the_best_baseline() -> None:
    # lpt is best (95 + 105 = 200 against ep 300); the plan has 90 and 108, so it wins one layer of two.
    pairs = [(90.0, 95.0), (108.0, 105.0)]
    layers = [
        layer_entry(
            k,
            8,
            8,
            plan_us=(80.0, own),
            baselines_us={"ep": (150.0, 150.0), "lpt": (99.0, lpt)},
            bound_us=50.0,
        )
        for k, (own, lpt) in enumerate(pairs)
    ]
    page = render(plan_file(layers, grid(2, 4)))
    assert "the plan is faster on 1 and slower on 1 of 2 layers." in page


# The terminal


def on_terminal(plan: ChannelPlan) -> list[str]:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(summary_table(plan))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_summary_table_has_a_row_per_solver_and_fits_80_columns() -> None:
    lines = on_terminal(small_plan())
    assert lines[0].split() == ["solver", "profile", "us", "held-out", "us", "bound", "us", "gap", "stop"]
    assert [line.split() for line in lines[2:6]] == [
        ["annealing", "(plan)", "180.0", "200.0", "150.0", "16.7%", "iteration", "limit"],
        ["lpt", "210.0", "210.0", "150.0", "28.6%", "baseline"],
        ["round_robin", "320.0", "300.0", "150.0", "53.1%", "baseline"],
        ["ep", "340.0", "320.0", "150.0", "55.9%", "baseline"],
    ]
    assert max(map(len, lines)) <= 80


def test_summary_table_takes_names_literally() -> None:
    lines = on_terminal(small_plan(solver="[b]x[/b]"))
    assert any("[b]x[/b] (plan)" in line for line in lines)


def test_headline_fits_one_line_of_ascii() -> None:
    line = headline(small_plan())
    assert line == "200.0 us on held-out steps, 4.8% less than lpt, the best baseline; gap 16.7%"
    assert len(line) <= 80
    assert line.isascii()
