"""What the plan report draws: machines, scales with the numbers beside them, and the search curve."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.benchmarks.report.charts import total_curve
from moeplan.benchmarks.report.machine import layout, links_note
from moeplan.benchmarks.report.scales import COLOURS, bins, percent, plain, ticks, time_format
from moeplan.placement.channels.document import ChannelLayer
from moeplan.placement.plan import Machine, Point

from .report_plans import grid, layer_entry, machine, star

# Machines


def test_a_grid_is_drawn_as_it_is() -> None:
    places = layout(grid(2, 4))
    rows_of = {site: places.at[site][1] for site in range(8)}
    assert len({rows_of[s] for s in range(4)}) == 1
    assert rows_of[4] > rows_of[0]
    assert [places.at[s][0] for s in range(4)] == [places.at[s][0] for s in range(4, 8)]


@pytest.mark.parametrize("platform", [star(128), machine("ring", 12, [(i, (i + 1) % 12) for i in range(12)])])
def test_sites_on_a_circle_do_not_overlap_and_stay_inside(platform: Machine) -> None:
    places = layout(platform)
    around = [places.at[site] for site in range(platform.sites)]
    for a, b in pairwise([*around, around[0]]):
        assert math.dist(a, b) > places.cell
    for x, y in places.at.values():
        assert places.cell / 2 <= x <= places.size[0] - places.cell / 2
        assert places.cell / 2 <= y <= places.size[1] - places.cell / 2


def test_the_hub_of_a_star_stands_in_the_middle() -> None:
    hub = layout(machine("star", 5, [(i, 0) for i in range(1, 5)]))
    assert hub.at[0] == (hub.size[0] / 2, hub.size[1] / 2)
    switch = layout(star(6))
    assert switch.at[6] == pytest.approx((switch.size[0] / 2, switch.size[1] / 2))


def test_links_that_would_hide_the_picture_are_left_out_and_counted() -> None:
    clique = machine("fully_connected", 40, [(i, j) for i in range(40) for j in range(i)])
    assert not layout(clique).with_links
    assert links_note(clique) == "The 780 links are not drawn."  # 40 x 39 / 2
    assert links_note(grid(2, 4)) == "Every link carries 32\N{NO-BREAK SPACE}GB/s."


# Numbers


@pytest.mark.parametrize(
    ("largest_s", "value_s", "text"),
    [
        (613.2e-6, 613.2e-6, "613.2 µs"),
        (1.2345e-3, 12.3e-6, "12 µs"),
        (12345e-6, 12345e-6, "12,345 µs"),
        (0.25, 0.25, "250.0 ms"),
        (12.5, 12.5, "12.50 s"),
        (5e-7, 5e-7, "500.0 ns"),
        (0.0, 0.0, "0.0 µs"),
    ],
)
def test_time_format_shows_four_digits_of_the_largest(largest_s: float, value_s: float, text: str) -> None:
    assert time_format(largest_s).text(value_s) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0%"), (0.0314, "3.1%"), (0.00031, "0.03%"), (0.00001, "under 0.01%")]
)
def test_percent_never_rounds_something_to_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (12500.0, "12,500"), (0.25, "0.25"), (1e7, "10,000,000")]
)
def test_plain_numbers_have_no_exponent(value: float, text: str) -> None:
    assert plain(value) == text


def test_ticks_are_round_and_reach_the_highest() -> None:
    assert ticks(87.0) == pytest.approx((0.0, 20.0, 40.0, 60.0, 80.0, 100.0))
    assert ticks(0.0) == (0.0, 1.0)


def test_bins_start_at_zero_unless_that_wastes_half() -> None:
    assert bins(10.0, 90.0).edges == pytest.approx([10.0 * i for i in range(10)])
    assert bins(80.0, 89.0).edges == pytest.approx([80.0 + i for i in range(10)])


@settings(deadline=None, derandomize=True)
@given(st.floats(0.0, 1e3), st.floats(0.0, 1e3))
def test_bins_cover_their_range_and_colours_rise(a: float, b: float) -> None:
    low, high = sorted((a * 1e-6, b * 1e-6))
    scale = bins(low, high)
    tolerance = 1e-6 * max(high, 1e-9)
    assert scale.edges[0] <= low + tolerance
    assert high <= scale.edges[-1] + tolerance
    assert len(scale.edges) - 1 <= COLOURS
    assert list(scale.colours) == sorted(set(scale.colours))
    assert 0 <= scale.colour(low) <= scale.colour(high) < COLOURS


def test_the_curve_of_all_layers_is_the_gap_of_their_sum() -> None:
    def searched(layer: int, curve: list[tuple[int, float]], bound_s: float) -> ChannelLayer:
        entry = layer_entry(layer, 8, 8, plan_us=(1.0, 1.0), baselines_us={}, bound_us=1.0)
        points = tuple(Point(iterations=i, elapsed_s=0.0, best_s=best) for i, best in curve)
        return entry.model_copy(update={"anytime": points, "bound_s": bound_s, "iterations": 100})

    first = searched(0, [(0, 10.0), (10, 6.0)], 3.0)
    second = searched(1, [(5, 8.0), (50, 4.0)], 3.0)
    # Known from 5 on: 10 + 8 = 18; at 10: 6 + 8 = 14; at 50: 6 + 4 = 10, kept to 100. Bound 3 + 3 = 6.
    assert total_curve([first, second], 100) == [
        (5, pytest.approx(1 - 6 / 18)),
        (10, pytest.approx(1 - 6 / 14)),
        (50, pytest.approx(1 - 6 / 10)),
        (100, pytest.approx(1 - 6 / 10)),
    ]
