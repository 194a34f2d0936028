"""SVG by hand: elements, paths of many rectangles, and figures that say what they show.

Everything that goes in is escaped; colours and fonts are classes of the page's style sheet, so that a
figure follows the reader's light or dark scheme.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from .scales import Bins, TimeFormat, plain

Box = tuple[float, float, float, float]
"""x, y, width, height."""


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def tag(name: str, *children: str, **attributes: str | float) -> Markup:
    """Return an element. `class_` stands for class, and underscores in names for hyphens."""
    opening = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), value if isinstance(value, str) else number(value)
        )
        for key, value in attributes.items()
    )
    content = Markup("").join(children)
    name = escape(name)
    if not content:
        return Markup("<{}{}/>").format(name, opening)
    return Markup("<{}{}>{}</{}>").format(name, opening, content, name)


def text(x: float, y: float, content: str, class_: str = "", anchor: str = "start") -> Markup:
    """Return a line of text on the baseline `y`."""
    return tag("text", content, x=x, y=y, class_=class_ or "label", text_anchor=anchor)


def rectangles(boxes: Iterable[Box], class_: str) -> Markup:
    """Return many rectangles of one colour as one path."""
    outline = "".join(
        f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in boxes
    )
    return tag("path", d=outline, class_=class_) if outline else Markup("")


def lines(ends: Iterable[Box], class_: str, width: float = 1.0) -> Markup:
    """Return many straight lines (x1, y1, x2, y2) as one path."""
    outline = "".join(f"M{number(a)} {number(b)}L{number(c)} {number(d)}" for a, b, c, d in ends)
    return tag("path", d=outline, class_=class_, stroke_width=width) if outline else Markup("")


def figure(ident: str, title: str, description: str, size: tuple[float, float], *children: str) -> Markup:
    """Return an `<svg>` that scales down with the page and is read out as title and description."""
    width, height = size
    return tag(
        "svg",
        tag("title", title, id=f"{ident}-title"),
        tag("desc", description, id=f"{ident}-desc"),
        *children,
        role="img",
        aria_labelledby=f"{ident}-title {ident}-desc",
        viewBox=f"0 0 {number(width)} {number(height)}",
        style=f"max-width:{number(width)}px",
    )


def colour_key(ident: str, bins: Bins, time: TimeFormat) -> Markup:
    """Return the legend of the sequential scale, with the value of every edge."""
    step, left = 46.0, 24.0
    swatches = [
        tag("rect", x=left + i * step, y=2, width=step, height=12, class_=f"q{colour}")
        for i, colour in enumerate(bins.colours)
    ]
    edges = [
        text(left + i * step, 28, plain(edge / time.unit_s), "tick", "middle")
        for i, edge in enumerate(bins.edges)
    ]
    width = left + step * len(bins.colours)
    unit = text(width + 24, 28, time.unit, "tick")
    description = (
        f"From {time.text(bins.edges[0])} to {time.text(bins.edges[-1])} in {len(bins.colours)} steps."
    )
    return figure(ident, "Colour scale", description, (width + 50, 34), *swatches, *edges, unit)
