"""Rings drawn on their grid: in characters for a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...hardware.topology import Topology
    from .problem import RingOrder

_ARROWS = {(0, 1): "→", (0, -1): "←", (1, 0): "↓", (-1, 0): "↑"}
_TWO_WAY = {"→": "↔", "←": "↔", "↓": "↕", "↑": "↕"}

_PITCH, _RADIUS, _ASIDE = 56, 15, 4  # SVG units: grid, core, distance of a ring from the middle of its wire
_STYLE = """\
text { font: 11px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #1f2328 }
.wire { stroke: #d0d7de } .core { fill: #ffffff; stroke: #1f2328 } .idle { fill: #d0d7de }
.failed { stroke: #cf222e; stroke-width: 2 } .ring { fill: none; stroke-width: 2 }
.r0 { stroke: #0969da } .r1 { stroke: #bc4c00 } .h0 { fill: #0969da } .h1 { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .core { fill: #0d1117; stroke: #e6edf3 }
  .wire { stroke: #373e47 } .idle { fill: #373e47 }
}"""


def as_text(topology: Topology, ring: RingOrder) -> str:
    """Return the grid with the place of every core in the ring and arrows for hops to a neighbour.

    Places count from 0. Cores outside of the ring are dots, failed ones crosses. Other hops are
    listed below by core id, with their length. `topology` must have a grid.
    """
    place = {core: str(i) for i, core in enumerate(ring.order)}
    width = len(str(len(place) - 1))
    arrows: dict[tuple[float, float], str] = {}
    long = []
    for core, following in _hops(ring.order):
        (row, col), (next_row, next_col) = divmod(core, topology.cols), divmod(following, topology.cols)
        arrow = _ARROWS.get((next_row - row, next_col - col))
        if arrow is None:
            long.append(f"{core} → {following} ({topology.hops[core, following]})")
            continue
        middle = (row + next_row) / 2, (col + next_col) / 2
        arrows[middle] = _TWO_WAY[arrow] if middle in arrows else arrow
    lines = []
    for row in range(topology.rows):
        cells = []
        for col in range(topology.cols):
            core = row * topology.cols + col
            outside = "x" if core in topology.failed else "·"
            cells += [place.get(core, outside).rjust(width), arrows.get((row, col + 0.5), " ")]
        lines.append(" ".join(cells).rstrip())
        below = [arrows.get((row + 0.5, col), " ").rjust(width) for col in range(topology.cols)]
        lines.append("   ".join(below).rstrip())
    text = "\n".join(lines).rstrip()
    return f"{text}\n\nlonger hops: {', '.join(long)}" if long else text


def as_svg(topology: Topology, rings: Sequence[RingOrder]) -> str:
    """Return an SVG of one ring, or of a pair in two colours, along the links that its transfers take.

    `topology` must have a grid. Hops keep to the right of their wire, so that both directions can be seen.
    """
    width, height = topology.cols * _PITCH, topology.rows * _PITCH
    members = {core for ring in rings for core in ring.order}
    shapes = [_wire(topology, *ends) for ends in topology.link_ends.tolist() if ends[0] < ends[1]]
    for colour, ring in enumerate(rings):
        shapes += [_hop(topology, *hop, colour) for hop in _hops(ring.order)]
    shapes += [_core(topology, core, core in members) for core in range(topology.sites)]
    heads = "".join(
        f'<marker id="h{i}" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="4" markerHeight="4" '
        f'orient="auto"><path class="h{i}" d="M0 0L6 3L0 6z"/></marker>'
        for i in range(len(rings))
    )
    body = "\n".join(shapes)
    names = " and ".join(" ".join(map(str, ring.order)) for ring in rings)
    title = f"Ring of {len(members)} cores on a {topology.rows} x {topology.cols} {topology.kind}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{title}</title>\n<desc>{names}</desc>\n"
        f"<style>{_STYLE}</style>\n<defs>{heads}</defs>\n{body}\n</svg>\n"
    )


def _hops(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    yield from zip(order, (*order[1:], order[0]), strict=True)


def _at(topology: Topology, core: int) -> tuple[float, float]:
    row, col = divmod(core, topology.cols)
    return (col + 0.5) * _PITCH, (row + 0.5) * _PITCH


def _wire(topology: Topology, a: int, b: int) -> str:
    return "".join(
        f'<path class="wire" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>' for x1, y1, x2, y2 in _pieces(topology, a, b)
    )


def _pieces(topology: Topology, a: int, b: int) -> list[tuple[float, float, float, float]]:
    """Return the line from a to b; two stubs at the borders where the wire goes around a torus."""
    (x1, y1), (x2, y2) = _at(topology, a), _at(topology, b)
    if abs(x1 - x2) + abs(y1 - y2) <= _PITCH:
        return [(x1, y1, x2, y2)]
    dx, dy = _sign(x1 - x2), _sign(y1 - y2)  # away from each other, over the border
    half = _PITCH / 2
    return [
        (x1, y1, x1 + dx * half, y1 + dy * half),
        (x2 - dx * half, y2 - dy * half, x2, y2),
    ]


def _hop(topology: Topology, source: int, destination: int, colour: int) -> str:
    """Draw one transfer along its route, from the rim of one core to the rim of the next."""
    nodes = [source]
    for link in topology.route(source, destination):
        nodes.append(int(topology.link_ends[link].sum()) - nodes[-1])
    pieces = [piece for a, b in pairwise(nodes) for piece in _pieces(topology, a, b)]
    steps = [(_sign(x2 - x1), _sign(y2 - y1)) for x1, y1, x2, y2 in pieces]
    path = ""
    for i, (x1, y1, x2, y2) in enumerate(pieces):
        dx, dy = steps[i]
        if i == 0 or (x1, y1) != pieces[i - 1][2:]:
            ahead = _RADIUS if i == 0 else 0
            path += f"M{x1 + ahead * dx - _ASIDE * dy:g} {y1 + ahead * dy + _ASIDE * dx:g}"
        # Beside the wire, short of the last core, and where a bend follows at the crossing of both sides.
        short = _RADIUS + 1 if i == len(pieces) - 1 else 0
        turn = steps[i + 1] if short == 0 and steps[i + 1] != (dx, dy) else (0, 0)
        path += (
            f"L{x2 - short * dx - _ASIDE * (dy + turn[1]):g} {y2 - short * dy + _ASIDE * (dx + turn[0]):g}"
        )
    return f'<path class="ring r{colour}" d="{path}" marker-end="url(#h{colour})"/>'


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _core(topology: Topology, core: int, member: bool) -> str:
    x, y = _at(topology, core)
    if core in topology.failed:
        return f'<path class="failed" d="M{x - 5:g} {y - 5:g}l10 10m0 -10l-10 10"/>'
    if not member:
        return f'<circle class="idle" cx="{x:g}" cy="{y:g}" r="4"/>'
    circle = f'<circle class="core" cx="{x:g}" cy="{y:g}" r="{_RADIUS}"/>'
    return f'{circle}<text x="{x:g}" y="{y:g}">{core}</text>'
