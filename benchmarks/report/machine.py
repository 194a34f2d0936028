"""The machine with the load of every site on it: one large picture, and one small one for every layer."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from .scales import Bins, TimeFormat
from .svg import Box, figure, lines, rectangles, tag, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...placement.plan import Machine

_WIDTH = 500.0
_FILL = 0.72
"""Share of the pitch of a grid that a site's square takes."""
_MOST_ON_A_CIRCLE = 160
_MOST_CHORDS = 600


@dataclass(frozen=True)
class Layout:
    """Where sites and switches stand in a picture; links are drawn unless they would hide it."""

    at: Mapping[int, tuple[float, float]]
    cell: float
    round: bool
    size: tuple[float, float]
    with_links: bool


def layout(machine: Machine) -> Layout:
    """Place a grid as it is, other machines on a circle, and very large ones in plain rows."""
    if is_grid(machine):
        return _rows(machine, machine.cols, with_links=True)
    if machine.sites <= _MOST_ON_A_CIRCLE:
        return _circle(machine)
    return _rows(machine, columns(machine), with_links=False)


def is_grid(machine: Machine) -> bool:
    """Tell whether site ids run along rows and columns."""
    return machine.rows > 0 and machine.rows * machine.cols == machine.sites


def columns(machine: Machine) -> int:
    """Return the columns of the grid, or of plain rows that stand in for one."""
    return machine.cols if is_grid(machine) else math.ceil(math.sqrt(2 * machine.sites))


def map_figure(
    ident: str,
    title: str,
    machine: Machine,
    loads: Sequence[float],
    *,
    held: Mapping[int, int] | None,
    bins: Bins,
    time: TimeFormat,
) -> Markup:
    """Draw links, switches, and every site coloured by `loads` [N]; `held` counts expert shards per site."""
    places = layout(machine)
    mean_s = math.fsum(loads) / len(loads)
    hottest = max(range(len(loads)), key=lambda site: loads[site])
    description = (
        f"{machine.kind.replace('_', ' ')} of {machine.sites} sites. The busiest is site {hottest} with "
        f"{time.text(loads[hottest])}; the mean is {time.text(mean_s)}."
    )
    cells = [
        _site(places, site, load, (held or {}).get(site), bins=bins, time=time)
        for site, load in enumerate(loads)
    ]
    switches = [_switch(places.at[node]) for node in sorted(places.at) if node >= machine.sites]
    return figure(ident, title, description, places.size, *_links(machine, places), *switches, *cells)


def small_figure(
    ident: str, title: str, machine: Machine, pictures: Sequence[Sequence[float]], bins: Bins
) -> Markup:
    """Draw the same sites side by side, one picture for each of `pictures` [N], without links or numbers."""
    cols = columns(machine)
    rows = math.ceil(machine.sites / cols)
    cell, space = 64.0 / cols, 10.0
    painted: dict[int, list[Box]] = defaultdict(list)
    for index, loads in enumerate(pictures):
        left = index * (64.0 + space)
        for site, load in enumerate(loads):
            box = (left + site % cols * cell, site // cols * cell, cell, cell)
            painted[bins.colour(load)].append(box)
    width = len(pictures) * (64.0 + space) - space
    shapes = [rectangles(boxes, f"q{colour}") for colour, boxes in sorted(painted.items())]
    return figure(ident, title, "Colour is the load of a site.", (width, rows * cell), *shapes)


def links_note(machine: Machine) -> str:
    """Say what the links carry, or that they are not drawn."""
    if not layout(machine).with_links:
        return f"The {len(_wires(machine)):,} links are not drawn."
    rates = sorted({link.bandwidth_bytes_per_s for link in machine.links})
    if not rates:
        return ""
    if len(rates) == 1:
        return f"Every link carries {_rate(rates[0])}."
    return f"Links carry {_rate(rates[0])} (thin) to {_rate(rates[-1])} (thick)."


def shards(machine: Machine, placements: Sequence[Sequence[int]]) -> dict[int, int]:
    """Count how many of `placements` (sites of one expert of one layer) include each site."""
    count = Counter(site for sites in placements for site in sites)
    return {site: count[site] for site in range(machine.sites)}


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.4g}\N{NO-BREAK SPACE}GB/s"


def _rows(machine: Machine, cols: int, *, with_links: bool) -> Layout:
    pitch = min(62.0, _WIDTH / cols)
    margin = pitch * 0.25
    at = {
        site: (margin + (site % cols + 0.5) * pitch, margin + (site // cols + 0.5) * pitch)
        for site in range(machine.sites)
    }
    size = (2 * margin + cols * pitch, 2 * margin + math.ceil(machine.sites / cols) * pitch)
    return Layout(at, _FILL * pitch, False, size, with_links)


def _circle(machine: Machine) -> Layout:
    """Sites on a circle from the top, clockwise; a switch, or the hub of a star, amid those it links."""
    neighbours = _neighbours(machine)
    hub = _hub(machine, neighbours)
    outer = [site for site in range(machine.sites) if site != hub]
    cell = min(40.0, 0.8 * math.tau * 0.44 * _WIDTH / len(outer))
    middle = 0.5 * _WIDTH
    radius = middle - 0.5 * cell - 4.0
    at = {}
    for index, site in enumerate(outer):
        angle = math.tau * index / len(outer)
        at[site] = (middle + radius * math.sin(angle), middle - radius * math.cos(angle))
    if hub is not None:
        at[hub] = (middle, middle)
    for switch in sorted(node for node in neighbours if node >= machine.sites):
        spots = [at[node] for node in sorted(neighbours[switch]) if node < machine.sites]
        x = math.fsum(x - middle for x, _ in spots) / max(1, len(spots))
        y = math.fsum(y - middle for _, y in spots) / max(1, len(spots))
        at[switch] = (middle + 0.7 * x, middle + 0.7 * y)
    return Layout(at, cell, True, (_WIDTH, _WIDTH), len(_wires(machine)) <= _MOST_CHORDS)


def _hub(machine: Machine, neighbours: defaultdict[int, set[int]]) -> int | None:
    """Return the site in the middle of a star; None where the middle is a switch."""
    if machine.kind != "star" or machine.sites < 3:
        return None
    return next((s for s in range(machine.sites) if len(neighbours[s]) == machine.sites - 1), None)


def _neighbours(machine: Machine) -> defaultdict[int, set[int]]:
    found: defaultdict[int, set[int]] = defaultdict(set)
    for link in machine.links:
        found[link.source].add(link.target)
        found[link.target].add(link.source)
    return found


def _wires(machine: Machine) -> dict[tuple[int, int], float]:
    """Return bytes per second by the two ends of a wire, lower id first."""
    return {
        (min(link.source, link.target), max(link.source, link.target)): link.bandwidth_bytes_per_s
        for link in machine.links
    }


def _links(machine: Machine, places: Layout) -> list[Markup]:
    """Draw every wire once, the thicker the more it carries."""
    if not places.with_links or not machine.links:
        return []
    strokes: dict[float, list[Box]] = defaultdict(list)
    for (a, b), rate in sorted(_wires(machine).items()):
        if a in places.at and b in places.at:
            strokes[rate] += _wire(places, a, b)
    fastest = max(strokes, default=0.0) or 1.0
    thickest = min(2.25, 0.08 * places.cell)
    return [
        lines(ends, "link", thickest * (0.3 + 0.7 * math.sqrt(rate / fastest)))
        for rate, ends in sorted(strokes.items())
    ]


def _wire(places: Layout, a: int, b: int) -> list[Box]:
    """Return a line, or for a wire that wraps round a grid two stubs that leave it."""
    (ax, ay), (bx, by) = places.at[a], places.at[b]
    if places.round or abs(ax - bx) + abs(ay - by) < 1.5 * places.cell / _FILL:
        return [(ax, ay, bx, by)]
    reach = 0.7 * places.cell / _FILL
    length = math.hypot(bx - ax, by - ay)
    dx, dy = reach * (bx - ax) / length, reach * (by - ay) / length
    return [(ax, ay, ax - dx, ay - dy), (bx, by, bx + dx, by + dy)]


def _switch(at: tuple[float, float]) -> Markup:
    x, y = at
    return tag("rect", tag("title", "switch"), x=x - 7, y=y - 7, width=14, height=14, rx=2, class_="switch")


def _site(
    places: Layout, site: int, load: float, held: int | None, *, bins: Bins, time: TimeFormat
) -> Markup:
    x, y = places.at[site]
    side = places.cell
    holds = "" if held is None else f", {held:,} expert {'shard' if held == 1 else 'shards'}"
    shape = tag(
        "rect",
        x=x - side / 2,
        y=y - side / 2,
        width=side,
        height=side,
        rx=side / 2 if places.round else side * 0.1,
    )
    label = text(x, y + 4, time.number(load), "value", "middle") if side >= 33 else Markup("")
    hint = tag("title", f"site {site}: {time.text(load)}{holds}")
    return tag("g", hint, shape, label, class_=f"q{bins.colour(load)}")
