"""Charts: parts of the step time, sorted site loads, the gap over the search, tensor-parallel factors."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING

from markupsafe import Markup

from .scales import TimeFormat, percent, plain, ticks
from .svg import figure, lines, rectangles, tag, text
from .verdict import gap_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...placement.plan import LayerEntry, Scores

WIDTH = 900.0
PART_COLOURS = 8
_FEW_LAYERS = 6
_NARROW = 5.0


def part_label(name: str) -> str:
    """Return the words of a part's name: "dram_s" is "dram"."""
    return name.removesuffix("_s").replace("_", " ")


def parts_chart(bars: Mapping[str, Scores | None], time: TimeFormat) -> Markup:
    """Draw one stacked bar per solver; where scores are None it says "does not fit"."""
    names = part_names(bars)
    label, value, row, top = 150.0, 110.0, 34.0, 40.0
    longest = max((s.total_s for s in bars.values() if s), default=0.0) or 1.0
    per_second = (WIDTH - label - value) / longest
    shapes = [_parts_key(names, label)]
    for index, (solver, scores) in enumerate(bars.items()):
        y = top + index * row
        shapes.append(text(label - 12, y + 16, _short(solver), "label", "end"))
        if scores is None:
            shapes.append(text(label, y + 16, "does not fit", "tick"))
            continue
        x = label
        for part, name in enumerate(names):
            width = scores.parts.get(name, 0.0) * per_second
            hint = tag("title", f"{solver}, {part_label(name)}: {time.text(scores.parts.get(name, 0.0))}")
            shapes.append(
                tag("rect", hint, x=x, y=y, width=width, height=22, class_=f"p{part % PART_COLOURS} seam")
            )
            x += width
        shapes.append(text(x + 10, y + 16, time.text(scores.total_s), "strong"))
    said = "; ".join(f"{who} {time.text(s.total_s) if s else 'does not fit'}" for who, s in bars.items())
    return figure("parts", "Parts of the step time", said, (WIDTH, top + row * len(bars)), *shapes)


def part_names(bars: Mapping[str, Scores | None]) -> tuple[str, ...]:
    """Return the names of all parts, in the order in which they first appear."""
    return tuple(dict.fromkeys(name for scores in bars.values() if scores for name in scores.parts))


def loads_chart(series: Mapping[str, Sequence[float]], time: TimeFormat) -> Markup:
    """Draw sorted site loads: the last series dark (a line where sites are many) before a pale one."""
    left, top, height, width = 64.0, 26.0, 230.0, WIDTH - 64.0
    marks = ticks(max(max(loads) for loads in series.values()) / time.unit_s)
    scale = height / (marks[-1] * time.unit_s)
    shapes = _grid(marks, left, top, height)
    count = max(len(loads) for loads in series.values())
    pitch = width / count
    for index, (name, loads) in enumerate(series.items()):
        own = index == len(series) - 1
        if own and pitch < _NARROW:
            tops = [(left + rank * pitch, top + height - load * scale) for rank, load in enumerate(loads)]
            shapes.append(_steps(name, [*tops, (WIDTH, tops[-1][1])], "thick"))
            continue
        bar = pitch * (0.42 if own and len(series) > 1 else 1.0 if pitch < _NARROW else 0.8)
        boxes = [
            (left + (rank + 0.5) * pitch - bar / 2, top + height - load * scale, bar, load * scale)
            for rank, load in enumerate(loads)
        ]
        shapes.append(rectangles(boxes, "own" if own else "other"))
    shapes.append(lines([(left, top + height, WIDTH, top + height)], "axis"))
    shapes.append(text(left, top + height + 20, "busiest site", "tick"))
    shapes.append(text(WIDTH, top + height + 20, f"least busy of {count}", "tick", "end"))
    shapes.append(text(left - 10, 12, time.unit, "tick", "end"))
    shapes.append(_series_key(list(series)))
    said = "; ".join(
        f"{name}: busiest {time.text(loads[0])}, least busy {time.text(loads[-1])}"
        for name, loads in series.items()
    )
    return figure("loads", "Site loads, sorted", said, (WIDTH, top + height + 28), *shapes)


def gap_chart(layers: Sequence[LayerEntry]) -> Markup | None:
    """Draw gap against iterations, a line per layer and a thick one for the sum; None where nothing ran."""
    points = [point.iterations for layer in layers for point in layer.anytime]
    most = max((*points, *(layer.iterations for layer in layers)))
    if most < 1 or not points:
        return None
    curves = {f"layer {layer.layer}": _curve(layer, most) for layer in layers if layer.anytime}
    total = total_curve(layers, most)
    left, top, height, width = 64.0, 20.0, 250.0, WIDTH - 64.0 - 150.0
    marks = ticks(max(gap for curve in [*curves.values(), total] for _, gap in curve))
    decades = math.log10(1 + most)

    def at(point: tuple[int, float]) -> tuple[float, float]:
        return left + width * math.log10(1 + point[0]) / decades, top + height * (1 - point[1] / marks[-1])

    shapes = _grid(marks, left, top, height, width, as_percent=True)
    for exponent in range(math.floor(decades) + 1):
        x, _ = at((10**exponent, 0.0))
        shapes.append(text(x, top + height + 20, f"{10**exponent:,}", "tick", "middle"))
    shapes.append(text(left, top + height + 20, "0", "tick", "middle"))
    shapes.append(text(left + width + 16, top + height + 20, "iterations", "tick"))
    if len(layers) > 1:
        shapes += [_steps(name, [at(point) for point in curve], "thin") for name, curve in curves.items()]
    shapes.append(_steps("sum of layers", [at(point) for point in total], "thick"))
    shapes += _end_labels(curves, total, at)
    first, last = percent(total[0][1]), percent(total[-1][1])
    said = f"The gap falls from {first} to {last} over {most:,} iterations a layer."
    return figure("gap", "Gap over the search", said, (WIDTH, top + height + 28), *shapes)


def factors_chart(counts: Mapping[int, int]) -> Markup:
    """Draw how many experts (of all layers) have each tensor-parallel factor."""
    total, label, row = sum(counts.values()), 110.0, 30.0
    longest = max(counts.values())
    shapes = []
    for index, (factor, count) in enumerate(sorted(counts.items())):
        y = index * row + 4
        width = (WIDTH - label - 220) * count / longest
        sites = "1 site" if factor == 1 else f"{factor} sites"
        shapes.append(text(label - 12, y + 15, sites, "label", "end"))
        shapes.append(tag("rect", x=label, y=y, width=max(width, 1.0), height=20, class_="own"))
        words = f"{count:,} {'expert' if count == 1 else 'experts'}, {percent(count / total)}"
        shapes.append(text(label + max(width, 1.0) + 10, y + 15, words, "label"))
    said = "; ".join(f"{factor} sites: {count} experts" for factor, count in sorted(counts.items()))
    return figure("factors", "Tensor-parallel factors", said, (WIDTH, row * len(counts) + 4), *shapes)


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"


def _parts_key(names: Sequence[str], left: float) -> Markup:
    marks = []
    x = left
    for part, name in enumerate(names):
        marks.append(tag("rect", x=x, y=4, width=12, height=12, class_=f"p{part % PART_COLOURS}"))
        marks.append(text(x + 18, 15, part_label(name)))
        x += 46 + 7.2 * len(part_label(name))
    return Markup("").join(marks)


def _series_key(names: Sequence[str]) -> Markup:
    marks = []
    x = WIDTH
    for index in reversed(range(len(names))):
        x -= 30 + 7.4 * len(_short(names[index]))
        own = index == len(names) - 1
        marks.append(tag("rect", x=x, y=4, width=12, height=12, class_="own" if own else "other"))
        marks.append(text(x + 18, 15, _short(names[index])))
    return Markup("").join(marks)


def _grid(
    marks: Sequence[float],
    left: float,
    top: float,
    height: float,
    width: float | None = None,
    *,
    as_percent: bool = False,
) -> list[Markup]:
    """Draw horizontal lines with their values; the last mark is the top."""
    right = WIDTH if width is None else left + width
    at = [top + height * (1 - mark / marks[-1]) for mark in marks]
    said = [f"{plain(100 * mark)}%" if as_percent else plain(mark) for mark in marks]
    labels = [text(left - 10, y + 4, word, "tick", "end") for y, word in zip(at, said, strict=True)]
    return [lines([(left, y, right, y) for y in at], "rule"), *labels]


def _curve(layer: LayerEntry, most: int) -> list[tuple[int, float]]:
    """Return (iterations, gap) of a layer; a search that ended early keeps its last value."""
    points = [(p.iterations, gap_to(p.best_s, layer.bound_s)) for p in layer.anytime]
    return [*points, (most, points[-1][1])]


def total_curve(layers: Sequence[LayerEntry], most: int) -> list[tuple[int, float]]:
    """Return the gap of the sum over layers from the moment when every layer has an answer."""
    known = [layer for layer in layers if layer.anytime]
    bound_s = math.fsum(layer.bound_s for layer in known)
    first = max(layer.anytime[0].iterations for layer in known)
    seen = {point.iterations for layer in known for point in layer.anytime}
    moments = sorted({moment for moment in seen if moment >= first} | {most})
    at = {layer.layer: [p.iterations for p in layer.anytime] for layer in known}

    def gap(moment: int) -> float:
        best_s = (layer.anytime[bisect_right(at[layer.layer], moment) - 1].best_s for layer in known)
        return gap_to(math.fsum(best_s), bound_s)

    return [(moment, gap(moment)) for moment in moments]


def _steps(name: str, points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """Draw a step line: a value holds until the next is found."""
    x, y = points[0]
    outline = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
    return tag("path", tag("title", name), d=outline, class_=class_)


def _end_labels(
    curves: Mapping[str, Sequence[tuple[int, float]]],
    total: Sequence[tuple[int, float]],
    at: Callable[[tuple[int, float]], tuple[float, float]],
) -> list[Markup]:
    """Name the sum and every layer at its line's end; of many layers only the best and the worst."""
    ends = sorted((curve[-1][1], name) for name, curve in curves.items())
    if len(ends) == 1:
        named = [(total[-1][1], ends[0][1], "strong")]
    else:
        shown = ends if len(ends) <= _FEW_LAYERS else [ends[0], ends[-1]]
        named = [*((gap, name, "tick") for gap, name in shown), (total[-1][1], "all layers", "strong")]
    labels = []
    lowest = math.inf
    for gap, name, class_ in sorted(named):
        x, y = at((total[-1][0], gap))
        lowest = min(y + 4, lowest - 15)
        labels.append(text(x + 10, lowest, f"{name} {percent(gap)}", class_))
    return labels
