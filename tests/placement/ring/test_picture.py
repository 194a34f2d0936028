"""Pictures by hand, and SVG that is well-formed and whole."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from moeplan.hardware.topology import without
from moeplan.placement.ring.picture import as_svg, as_text
from moeplan.placement.ring.problem import RingOrder

from .instances import grid, wrapped


def test_text_of_a_square():
    assert as_text(grid(2, 2), RingOrder((0, 1, 3, 2))) == (
        "0 → 1\n"
        "↑   ↓\n"
        "3 ← 2"
    )  # fmt: skip


def test_text_of_longer_hops():
    # 0 and 2 in the first row, 5 below 2; 5 -> 0 takes three hops, 0 -> 2 two.
    assert as_text(grid(2, 3), RingOrder((0, 2, 5))) == (
        "0   ·   1\n"
        "        ↓\n"
        "·   ·   2\n"
        "\n"
        "longer hops: 0 → 2 (2), 5 → 0 (3)"
    )  # fmt: skip


def test_text_of_two_cores_a_failure_and_a_torus():
    assert as_text(without(grid(1, 3), sites=[2]), RingOrder((0, 1))) == "0 ↔ 1   x"
    assert as_text(wrapped(1, 4), RingOrder((0, 1, 2, 3))) == "0 → 1 → 2 → 3\n\nlonger hops: 3 → 0 (1)"


@pytest.mark.parametrize(
    "topology", [grid(3, 4), wrapped(3, 4), without(grid(3, 4), sites=[5], links=[(2, 3)])]
)
def test_svg(topology):
    ring = RingOrder((0, 3, 9, 10, 4))
    root = ET.fromstring(as_svg(topology, [ring, ring.reversed()]))
    space = "{http://www.w3.org/2000/svg}"
    drawn = [element.get("class") for element in root.iter() if element.get("class")]
    assert drawn.count("ring r0") == drawn.count("ring r1") == 5
    assert drawn.count("core") == 5
    assert drawn.count("failed") == len(topology.failed)
    assert drawn.count("idle") == 12 - 5 - len(topology.failed)
    assert [text.text for text in root.iter(f"{space}text")] == ["0", "3", "4", "9", "10"]
    assert "5 cores" in root.find(f"{space}title").text


def test_svg_hops_keep_to_their_routes():
    # One hop to the right, (28, 28) to (84, 28), 4 below the wire, from rim to rim: 15, and 16 at the head.
    svg = as_svg(grid(1, 2), [RingOrder((0, 1))])
    assert 'd="M43 32L68 32"' in svg
    # A bend: from 0 two to the right, then down to 5; both legs stay on the right-hand side.
    assert 'd="M43 32L84 32L136 32L136 68"' in as_svg(grid(2, 3), [RingOrder((0, 5))])
