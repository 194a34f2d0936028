"""The plan report: a page for the browser, a table for the terminal."""

from __future__ import annotations

import io
import math
import random
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.benchmarks.report.charts import total_curve
from moeplan.benchmarks.report.machine import layout, links_note
from moeplan.benchmarks.report.page import render
from moeplan.benchmarks.report.scales import COLOURS, bins, percent, plain, ticks, time_format
from moeplan.benchmarks.report.terminal import headline, summary_table
from moeplan.benchmarks.report.verdict import best_baseline, comparison, reference, rows
from moeplan.common.errors import BadInput
from moeplan.placement.channels.document import (
    ChannelBaseline,
    ChannelLayer,
    ChannelPlan,
    ChannelTotals,
    ExpertPlace,
)
from moeplan.placement.plan import Link, Machine, ModelEntry, Point, Scores, TrafficEntry

PARTS = {"dram_s": 0.8, "dispatch_s": 0.05, "collective_s": 0.07, "gather_s": 0.05, "scatter_s": 0.03}


def scores(total_us: float) -> Scores:
    total_s = total_us * 1e-6
    return Scores(total_s=total_s, objective_s=total_s, parts={k: v * total_s for k, v in PARTS.items()})


def grid(rows: int, cols: int, *, wrap: bool = False) -> Machine:
    at = [(r, c) for r in range(rows) for c in range(cols)]
    ends = [((r, c), (r, c + 1)) for r, c in at if c + 1 < cols] + [
        ((r, c), (r + 1, c)) for r, c in at if r + 1 < rows
    ]
    if wrap:
        ends += [((r, 0), (r, cols - 1)) for r in range(rows)] + [
            ((0, c), (rows - 1, c)) for c in range(cols)
        ]
    pairs = [(a[0] * cols + a[1], b[0] * cols + b[1]) for a, b in ends]
    return machine("torus" if wrap else "mesh", rows * cols, pairs, rows, cols)


def star(sites: int) -> Machine:
    return machine("star", sites, [(site, sites) for site in range(sites)])


def machine(kind: str, sites: int, wires: list[tuple[int, int]], rows: int = 0, cols: int = 0) -> Machine:
    both = wires + [(b, a) for a, b in wires]
    links = tuple(Link(source=a, target=b, bandwidth_bytes_per_s=32e9) for a, b in sorted(both))
    return Machine(
        name="hand-made",
        fingerprint="sha256:0123456789abcdef",
        kind=kind,
        rows=rows,
        cols=cols,
        sites=sites,
        links=links,
        site_capacity_bytes=64 * 2**20,
    )


def layer_entry(
    layer: int,
    sites: int,
    experts: int,
    *,
    plan_us: tuple[float, float | None],
    baselines_us: dict[str, tuple[float, float | None] | None],
    bound_us: float,
) -> ChannelLayer:
    """One layer of invented site loads; the search halves its way from the best baseline to the plan."""
    rng = random.Random(layer)
    profile_us, held_out_us = plan_us

    def loads(total_us: float, lowest: float) -> tuple[float, ...]:
        return tuple(0.75e-6 * total_us * rng.uniform(lowest, 1.0) for _ in range(sites))

    start_us = min((pair[0] for pair in baselines_us.values() if pair), default=profile_us * 1.2)
    curve = [
        Point(
            iterations=10**power,
            elapsed_s=1e-6 * 10**power,
            best_s=1e-6 * (profile_us + (start_us - profile_us) * (4 - power) / 5),
        )
        for power in range(5)
    ]
    return ChannelLayer(
        layer=layer,
        stop="iteration_limit",
        iterations=50_000,
        profile=scores(profile_us),
        held_out=scores(held_out_us) if held_out_us is not None else None,
        bound_s=bound_us * 1e-6,
        bound_by="average load",
        gap=1.0 - bound_us / profile_us,
        experts=tuple(
            ExpertPlace(tp=1 + e % 2, sites=tuple((e + i) % sites for i in range(1 + e % 2)))
            for e in range(experts)
        ),
        site_load_s=loads(profile_us, 0.8),
        held_out_site_load_s=loads(held_out_us, 0.7) if held_out_us is not None else (),
        baselines={
            name: ChannelBaseline(
                profile=scores(pair[0]) if pair else None,
                held_out=scores(pair[1]) if pair and pair[1] is not None else None,
                held_out_site_load_s=loads(pair[1], 0.3) if pair and pair[1] is not None else (),
            )
            for name, pair in baselines_us.items()
        },
        anytime=(Point(iterations=0, elapsed_s=0.0, best_s=start_us * 1e-6), *curve),
    )


def total(found: list[Scores | None]) -> Scores | None:
    known = [s for s in found if s]
    if len(known) < len(found):
        return None
    return scores(1e6 * math.fsum(s.total_s for s in known))


def plan_file(layers: list[ChannelLayer], platform: Machine, **changes: object) -> ChannelPlan:
    profile = total([layer.profile for layer in layers])
    bound_s = math.fsum(layer.bound_s for layer in layers)
    traffic = TrafficEntry(
        fingerprint="sha256:aaaa",
        source="trace.parquet",
        split="request",
        share=0.5,
        batch=32,
        steps=128,
        requests=17,
        repeated=True,
        note="17 requests replayed in 32 slots; 15 slots repeat a request from another position",
    )
    held_out = total([layer.held_out for layer in layers])
    plan = ChannelPlan(
        family="channels",
        solver="annealing",
        seed=7,
        budget={"time_s": None, "iterations": 50_000, "gap": 0.0},
        settings={"risk": 0.0, "mode": "auto", "layout": "rows"},
        options={},
        model=ModelEntry(
            name="tiny-moe", fingerprint="sha256:bbbb", experts=8, top_k=2, expert_bytes=17301504.0
        ),
        platform=platform,
        profile=traffic,
        held_out=traffic if held_out else None,
        totals=ChannelTotals(
            profile=profile,
            held_out=held_out,
            bound_s=bound_s,
            gap=1.0 - bound_s / profile.total_s,
            stop="iteration_limit",
            baselines={
                name: ChannelBaseline(
                    profile=total([layer.baselines[name].profile for layer in layers]),
                    held_out=total([layer.baselines[name].held_out for layer in layers]),
                    held_out_site_load_s=(),
                )
                for name in layers[0].baselines
            },
        ),
        layers=tuple(layers),
        warnings=("17 requests replayed in 32 slots; 15 slots repeat a request from another position",),
        versions={"moeplan": "0.1.0", "numpy": "2.4.6"},
        elapsed_s=1.25,
    )
    return plan.model_copy(update=changes)


def small_plan(**changes: object) -> ChannelPlan:
    """Two layers, 2 x 4 mesh, eight experts.

    Held-out totals in us: plan 90 + 110 = 200, ep 150 + 170 = 320, round_robin 140 + 160 = 300,
    lpt 95 + 115 = 210. Profile: plan 80 + 100 = 180, lpt 100 + 110 = 210; bound 70 + 80 = 150.
    """
    first = layer_entry(
        1,
        8,
        8,
        plan_us=(80.0, 90.0),
        baselines_us={"ep": (160.0, 150.0), "round_robin": (150.0, 140.0), "lpt": (100.0, 95.0)},
        bound_us=70.0,
    )
    second = layer_entry(
        2,
        8,
        8,
        plan_us=(100.0, 110.0),
        baselines_us={"ep": (180.0, 170.0), "round_robin": (170.0, 160.0), "lpt": (110.0, 115.0)},
        bound_us=80.0,
    )
    return plan_file([first, second], grid(2, 4), **changes)


# 1. What is said


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


# 2. The page


class Outline(HTMLParser):
    """Collects tags and what would reach the network; notices tags that do not close."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "aria-labelledby":
                self.labels += (value or "").split()
            if name in {"src", "href", "xlink:href", "data", "action"}:
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


def edge_plans() -> dict[str, ChannelPlan]:
    baselines = {"ep": (99.0, 98.0), "lpt": (90.0, 91.0)}

    def layers(count: int, sites: int, bound_us: float = 70.0, held_out: bool = True) -> list[ChannelLayer]:
        return [
            layer_entry(
                k,
                sites,
                8,
                plan_us=(80.0, 90.0 if held_out else None),
                baselines_us={name: (a, b if held_out else None) for name, (a, b) in baselines.items()},
                bound_us=bound_us,
            )
            for k in range(count)
        ]

    ring = machine("ring", 6, [(i, (i + 1) % 6) for i in range(6)])
    cluster = machine("gpu_cluster", 4, [(0, 4), (1, 4), (2, 5), (3, 5), *((i, 6) for i in range(4))])
    hub = machine("star", 5, [(i, 0) for i in range(1, 5)])
    clique = machine("fully_connected", 40, [(i, j) for i in range(40) for j in range(i)])
    still = [layer.model_copy(update={"iterations": 0, "anytime": ()}) for layer in layers(2, 8)]
    return {
        "small": small_plan(),
        "one layer": plan_file(layers(1, 8), grid(2, 4)),
        "not held out": plan_file(layers(2, 8, held_out=False), grid(2, 4)),
        "bound zero": plan_file(layers(2, 8, bound_us=0.0), grid(2, 4)),
        "torus": plan_file(layers(2, 16), grid(4, 4, wrap=True)),
        "ring": plan_file(layers(2, 6), ring),
        "cluster": plan_file(layers(2, 4), cluster),
        "hub": plan_file(layers(2, 5), hub),
        "star": plan_file(layers(2, 128), star(128)),
        "clique": plan_file(layers(2, 40), clique),
        "one site": plan_file(layers(2, 1), machine("mesh", 1, [], 1, 1)),
        "no search": plan_file(still, grid(2, 4)),
        "no site loads": plan_file(layers(2, 8), grid(3, 3)),
    }


@pytest.mark.parametrize("name", list(edge_plans()))
def test_every_page_is_well_formed_labelled_and_needs_no_network(name: str) -> None:
    page = render(edge_plans()[name])
    found = outline(page)
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.labels) <= set(found.ids)
    assert found.addresses == []
    assert "script" not in found.tags
    assert "@import" not in page
    assert "url(" not in page
    assert "nan" not in page.lower().replace("provenance", "")


@pytest.mark.parametrize("name", list(edge_plans()))
def test_every_figure_is_xml_with_a_title_and_finite_coordinates(name: str) -> None:
    page = render(edge_plans()[name])
    figures = [
        ET.fromstring(part.split("</svg>")[0].join(["<svg", "</svg>"])) for part in page.split("<svg")[1:]
    ]
    assert len(figures) >= 3
    for figure in figures:
        assert figure.attrib["role"] == "img"
        assert [child.tag for child in figure][:2] == ["title", "desc"]
        assert all(child.text for child in list(figure)[:2])
        for element in figure.iter():
            for key in {"x", "y", "width", "height"} & set(element.attrib):
                assert math.isfinite(float(element.attrib[key]))


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert render(small_plan()) == render(small_plan())


def test_the_page_shows_headline_solvers_parts_and_provenance() -> None:
    page = render(small_plan())
    for words in (
        "<strong>200.0 µs</strong>",
        "4.8% less than lpt, the best baseline",
        "no placement falls below 150.0 µs there",
        "16.7%",  # 1 - 150 / 180
        "1.200\N{MULTIPLICATION SIGN}",  # 180 / 150
        "1.667\N{MULTIPLICATION SIGN}",  # layer 1: 150 / 90
        "1.545\N{MULTIPLICATION SIGN}",  # layer 2: 170 / 110
        "160.0",  # dram of the plan: 0.8 x 200
        "8 experts, 50.0%",  # every second expert of 16 is split in two
        "17 requests replayed in 32 slots",
        "split by request, 0.5 of it held out",
        "sha256:0123456789abcdef",
        "iterations = 50000",
        "2.4.6",
        "iteration limit",
    ):
        assert words in page


HOSTILE = "<script>alert('x')</script>\"&"


def test_names_and_notes_cannot_become_markup() -> None:
    plan = small_plan()
    layer = plan.layers[0]
    bad = {HOSTILE: layer.baselines["ep"]}
    nasty = plan.model_copy(
        update={
            "solver": HOSTILE,
            "model": plan.model.model_copy(update={"name": HOSTILE}),
            "platform": plan.platform.model_copy(update={"name": HOSTILE, "kind": HOSTILE}),
            "profile": plan.profile.model_copy(update={"source": HOSTILE, "note": HOSTILE}),
            "warnings": (HOSTILE,),
            "versions": {HOSTILE: HOSTILE},
            "options": {HOSTILE: HOSTILE},
            "layers": tuple(
                entry.model_copy(
                    update={"baselines": bad, "stop": HOSTILE, "bound_by": f"{HOSTILE}{entry.layer}"}
                )
                for entry in plan.layers
            ),
            "totals": plan.totals.model_copy(
                update={"baselines": {HOSTILE: plan.totals.baselines["ep"]}, "stop": HOSTILE}
            ),
        }
    )
    page = render(nasty)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "script" not in outline(page).tags


def test_a_plan_of_60_layers_of_256_experts_stays_a_small_page() -> None:
    layers = [
        layer_entry(
            k,
            128,
            256,
            plan_us=(80.0 + k, 90.0 + k),
            baselines_us={"ep": (150.0, 151.0 + k), "lpt": (99.0, 98.0)},
            bound_us=70.0,
        )
        for k in range(60)
    ]
    page = render(plan_file(layers, star(128)))
    assert len(page.encode()) < 2_000_000
    assert page.count("<figcaption>") == 60


@pytest.mark.parametrize("changes", [{"layers": ()}])
def test_a_plan_that_places_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="places no experts"):
        render(small_plan().model_copy(update=changes))


# 3. Pictures of machines


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


# 4. Numbers


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


# 5. The terminal


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
