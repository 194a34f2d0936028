"""Timelines as pictures: SVG for pages, letters for the terminal. The same timelines give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ..hardware.units import format_s

if TYPE_CHECKING:
    from rich.text import Text

    from .timeline import Timeline

LANES: Final = 8
"""Resources drawn of one timeline: where there are more, the busiest."""
COLOURS: Final = 8
_WIDTH, _LEFT, _RIGHT, _LANE, _BAR, _HEAD = 960.0, 120.0, 20.0, 24.0, 18.0, 34.0
_HOVER: Final = 1.5
"""Narrower bars are joined into one shape and say nothing when pointed at."""
_TERMINAL_COLOURS: Final = ("blue", "yellow", "magenta", "green", "red", "cyan", "white", "bright_black")
_STYLE: Final = """\
svg{--ink:#1c2326;--soft:#566167;--rule:#dedad0;--lane:#f3f0e8;
--k0:#a9a294;--k1:#d9922e;--k2:#94506f;--k3:#0d5a70;--k4:#7ba05b;--k5:#5b6fae;--k6:#c9573e;--k7:#4d4d4d;
font:12px system-ui,"Segoe UI",Roboto,Arial,sans-serif}
@media (prefers-color-scheme:dark){svg{--ink:#e6e4dc;--soft:#9aa5aa;--rule:#30373b;--lane:#1b2124;
--k0:#7f7b70;--k1:#e3a550;--k2:#c07f9f;--k3:#3f9fb2;--k4:#94ba74;--k5:#8c9bd8;--k6:#de7b63;--k7:#b5b5b5}}
text{fill:var(--soft)}.strong{fill:var(--ink);font-weight:600}.lane{fill:var(--lane)}.grid{stroke:var(--rule)}
.critical{fill:var(--ink)}.expected{stroke:var(--ink);stroke-dasharray:4 3}
"""


class _Scale(NamedTuple):
    """Seconds to pixels."""

    longest_s: float

    def x(self, seconds: float) -> float:
        return _LEFT + seconds / (self.longest_s or 1.0) * (_WIDTH - _LEFT - _RIGHT)


def gantt_svg(timelines: Mapping[str, Timeline], *, title: str, expected_s: float | None = None) -> str:
    """Draw timelines below each other on one time axis, a lane per resource.

    Bars are coloured by kind of task; a dark edge below marks the critical path. `expected_s` is drawn as a
    line through all of them. The file stands alone and follows the reader's light or dark scheme.
    """
    scale = _Scale(max(timeline.makespan_s for timeline in timelines.values()))
    colour = _colours(timelines)
    parts, y = [_legend(colour)], 46.0
    for name, timeline in timelines.items():
        drawn, height = _panel(name, timeline, scale, colour, y)
        parts.append(drawn)
        y += height
    parts.append(_axis(scale, y))
    if expected_s is not None:
        parts.append(_expected(expected_s, scale.x(expected_s), y))
    said = "; ".join(f"{name}: {format_s(timeline.makespan_s)}" for name, timeline in timelines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_n(_WIDTH)} {_n(y + 24)}" '
        f'style="max-width:{_n(_WIDTH)}px"><title>{escape(title)}</title><desc>{escape(said)}</desc>'
        f'<style>{_STYLE}</style><text class="strong" x="0" y="14">{escape(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def gantt_text(timelines: Mapping[str, Timeline], *, width: int = 100) -> Text:
    """Draw timelines with a letter per kind of task, `width` columns for the longest.

    A column shows the kind that has most of it; a point says that the resource is idle for most of it.
    """
    from rich.text import Text

    longest_s = max(timeline.makespan_s for timeline in timelines.values()) or 1.0
    letters = _letters(_kinds(timelines.values()))
    style = dict(zip(letters, _TERMINAL_COLOURS * (1 + len(letters) // COLOURS), strict=False))
    drawn = Text()
    for name, timeline in timelines.items():
        drawn.append(f"{name}: {format_s(timeline.makespan_s)}\n", "bold")
        for resource in lanes(timeline):
            drawn.append(f"{timeline.graph.resources[resource]:>14} ")
            for kind in _columns(timeline, resource, list(letters), longest_s / width, width):
                drawn.append(letters[kind] if kind else "·", style[kind] if kind else "dim")
            drawn.append("\n")
    for kind, letter in letters.items():
        drawn.append(letter, style[kind])
        drawn.append(f" {kind}  ")
    return drawn


def lanes(timeline: Timeline) -> list[int]:
    """Return the resources to draw, in their order: all, or the `LANES` busiest."""
    busiest = np.argsort(-timeline.graph.busy_s, kind="stable")[:LANES]
    return sorted(busiest.tolist())


def _panel(
    name: str, timeline: Timeline, scale: _Scale, colour: Mapping[str, int], y: float
) -> tuple[str, float]:
    """Return one timeline's head and lanes below `y`, and their height."""
    shown = lanes(timeline)
    hidden = len(timeline.graph.resources) - len(shown)
    more = f" (the busiest {len(shown)} of {len(timeline.graph.resources)} resources)" if hidden else ""
    head = f"{name}: {format_s(timeline.makespan_s)}{more}"
    parts = [f'<text class="strong" x="0" y="{_n(y + 22)}">{escape(head)}</text>']
    critical = set(timeline.critical_path)
    for row, resource in enumerate(shown):
        top = y + _HEAD + row * _LANE
        label = escape(timeline.graph.resources[resource])
        parts.append(f'<text x="{_n(_LEFT - 10)}" y="{_n(top + 13)}" text-anchor="end">{label}</text>')
        parts.append(_rect(_LEFT, top, _WIDTH - _LEFT - _RIGHT, _BAR, 'class="lane"'))
        parts += _bars(timeline, resource, scale, colour, top, critical)
    return "".join(parts), _HEAD + len(shown) * _LANE


def _bars(
    timeline: Timeline,
    resource: int,
    scale: _Scale,
    colour: Mapping[str, int],
    top: float,
    critical: set[int],
) -> list[str]:
    graph = timeline.graph
    narrow: dict[str, list[str]] = {}
    wide, edge = [], []
    for task in _tasks_on(timeline, resource):
        x = scale.x(float(timeline.start_s[task]))
        width = scale.x(float(timeline.end_s[task])) - x
        if task in critical:
            edge.append(_outline(x, top + _BAR, width, 2.5))
        if width < _HOVER:
            narrow.setdefault(graph.kinds[task], []).append(_outline(x, top, width, _BAR))
            continue
        hint = f"{graph.names[task]}: {format_s(float(graph.duration_s[task]))}"
        fill = f'fill="var(--k{colour[graph.kinds[task]]})"'
        wide.append(_rect(x, top, max(width - 0.4, 0.4), _BAR, fill, f"<title>{escape(hint)}</title>"))
    joined = [f'<path fill="var(--k{colour[kind]})" d="{"".join(d)}"/>' for kind, d in narrow.items()]
    marked = [f'<path class="critical" d="{"".join(edge)}"/>'] if edge else []
    return joined + wide + marked


def _legend(colour: Mapping[str, int]) -> str:
    parts, x = [], _LEFT
    for kind, index in colour.items():
        parts.append(_rect(x, 24, 12, 12, f'fill="var(--k{index})"'))
        parts.append(f'<text x="{_n(x + 17)}" y="34">{escape(kind)}</text>')
        x += 38 + 7.5 * len(kind)
    return "".join(parts)


def _expected(expected_s: float, x: float, bottom: float) -> str:
    label = f'<text x="{_n(_WIDTH)}" y="34" text-anchor="end">expected {format_s(expected_s)} (dashed)</text>'
    return f'{label}<path class="expected" d="M{_n(x)} 46V{_n(bottom)}"/>'


def _axis(scale: _Scale, y: float) -> str:
    """Draw ticks at round times."""
    step_s = _round_step_s(scale.longest_s / 6)
    parts = []
    for index in range(int(scale.longest_s / step_s + 1e-9) + 1 if step_s else 1):
        x = _n(scale.x(index * step_s))
        parts.append(f'<path class="grid" d="M{x} {_n(y)}v5"/>')
        parts.append(f'<text x="{x}" y="{_n(y + 18)}" text-anchor="middle">{format_s(index * step_s)}</text>')
    return "".join(parts)


def _round_step_s(least_s: float) -> float:
    """Return 1, 2 or 5 times a power of ten, not below `least_s`."""
    if least_s <= 0.0:
        return 0.0
    power = 10.0 ** np.floor(np.log10(least_s))
    return float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_s * (1.0 - 1e-9)))


def _columns(
    timeline: Timeline, resource: int, kinds: Sequence[str], column_s: float, width: int
) -> list[str | None]:
    """Return the kind with the largest share of every column of time; None where most of it is idle."""
    edges = np.arange(width + 1) * column_s
    names: list[str | None] = [*kinds, None]
    share_s = np.zeros((len(names), width))
    for task in _tasks_on(timeline, resource):
        start, end = timeline.start_s[task], timeline.end_s[task]
        overlap = np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1])
        share_s[names.index(timeline.graph.kinds[task])] += np.maximum(overlap, 0.0)
    idle = share_s.sum(axis=0) < 0.5 * column_s
    return [
        names[-1 if is_idle else most] for most, is_idle in zip(share_s.argmax(axis=0), idle, strict=True)
    ]


def _tasks_on(timeline: Timeline, resource: int) -> list[int]:
    """Tasks that hold a resource for any time, in order."""
    graph = timeline.graph
    return [task for task in timeline.order if resource in graph.holds[task] and graph.duration_s[task] > 0.0]


def _kinds(timelines: Iterable[Timeline]) -> list[str]:
    """Return the kinds that take any time, in order of appearance."""
    kinds = (
        kind
        for timeline in timelines
        for kind, seconds in zip(timeline.graph.kinds, timeline.graph.duration_s, strict=True)
        if seconds > 0.0
    )
    return list(dict.fromkeys(kinds))


def _colours(timelines: Mapping[str, Timeline]) -> dict[str, int]:
    return {kind: index % COLOURS for index, kind in enumerate(_kinds(timelines.values()))}


def _letters(kinds: Sequence[str]) -> dict[str, str]:
    """Give every kind a letter of its own name that no other has, or a digit."""
    letters: dict[str, str] = {}
    for index, kind in enumerate(kinds):
        free = (letter for letter in kind.lower() if letter not in letters.values())
        letters[kind] = next(free, str(index % 10))
    return letters


def _rect(x: float, y: float, width: float, height: float, attributes: str, content: str = "") -> str:
    shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
    return f"<rect {shape} {attributes}>{content}</rect>" if content else f"<rect {shape} {attributes}/>"


def _outline(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(max(width, 0.1))}v{_n(height)}h-{_n(max(width, 0.1))}z"


def _n(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
