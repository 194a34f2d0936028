"""The plan report as a page for the browser: well formed, complete, safe and small."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from moeplan.benchmarks.report.page import render
from moeplan.common.errors import BadInput
from moeplan.placement.channels.document import ChannelLayer, ChannelPlan

from .report_plans import grid, layer_entry, machine, plan_file, small_plan, star


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
