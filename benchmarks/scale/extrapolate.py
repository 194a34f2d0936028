"""What lies beyond what was measured: the fitted laws read far to the right, with what they cannot know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .fit import fit
from .grid import MANY_EXPERTS
from .growth import figure, measured_on
from .jobs import grid
from .point import Point

if TYPE_CHECKING:
    from .point import Axis, Family, Finished

#: Points that a law is read from: the largest, which fixed costs hide least.
_LARGEST: Final = 4


@dataclass(frozen=True)
class Target:
    """A size that nobody measured, and the question that is asked of it."""

    axis: Axis
    family: Family
    what: str
    size: float
    title: str


TARGETS: Final = (
    Target("tokens", "count", "time", 1e9, "counting 10^9 tokens of 2 layers, top-8 of 128"),
    Target("tokens", "count", "memory", 1e9, "counting 10^9 tokens of 2 layers, top-8 of 128"),
    Target("sites", "replicas", "time", 1e4, "a layer of 512 experts on 10^4 ranks, 64 steps"),
    Target("sites", "replicas", "memory", 1e4, "a layer of 512 experts on 10^4 ranks, 64 steps"),
    Target("sites", "channels", "time", 1e4, "a layer of 512 experts on 10^4 channels, 64 steps of 64"),
    Target("sites", "channels", "memory", 1e4, "a layer of 512 experts on 10^4 channels, 64 steps of 64"),
)


@dataclass(frozen=True)
class Beyond:
    """A figure at a target: as the law of the largest points says, with its 95 % interval.

    `check`: the largest measured point over what the law of the smaller ones says of it. `paper`: bytes by
    the shapes of the arrays there (`placement.memory`), None where there are no such shapes.
    """

    target: Target
    exponent: float
    error: float | None
    value: float
    low: float
    high: float
    check: float | None
    paper: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an unbounded end is None."""
        t = self.target
        return {
            "axis": t.axis, "family": t.family, "what": t.what, "size": t.size, "title": t.title,
            "exponent": self.exponent, "error": self.error, "value": self.value, "low": self.low,
            "high": self.high if self.high < float("inf") else None, "check": self.check, "paper": self.paper,
        }  # fmt: skip


def beyond(finished: Sequence[Finished], targets: Sequence[Target] = TARGETS) -> list[Beyond]:
    """Return what the measured points say of the targets; those whose study was not run are left out."""
    found = []
    for target in targets:
        measured = measured_on(finished, target.axis, target.family)
        sizes = [float(size) for size, _ in measured]
        values = [figure(outcome, target.what) for _, outcome in measured]
        law = fit(sizes[-_LARGEST:], values[-_LARGEST:])
        if law is None:
            continue
        value, low, high = law.at(target.size)
        held = fit(sizes[-_LARGEST - 1 : -1], values[-_LARGEST - 1 : -1])
        check = values[-1] / held.at(sizes[-1])[0] if held is not None else None
        paper = _paper(target) if target.what == "memory" else None
        found.append(Beyond(target, law.exponent, law.error, value, low, high, check, paper))
    return found


def _paper(target: Target) -> float | None:
    """Return what a layer takes by the shapes of its arrays, beside the program; None for counting."""
    from ...placement.memory import Ask, estimate

    if target.family not in ("channels", "replicas") or target.axis != "sites":
        return None
    point, sites = Point(target.family, "sites", experts=MANY_EXPERTS), round(target.size)
    rows, cols = grid(sites)
    # Two links, one each way, between neighbours; (r^2 - 1) / 3r hops along r sites in the mean.
    links = 2 * (rows * (cols - 1) + cols * (rows - 1))
    hops = (rows**2 - 1) / (3 * rows) + (cols**2 - 1) / (3 * cols)
    meshed = target.family == "channels"
    ask = Ask(
        "channels" if meshed else "replicas", point.experts, point.top_k, 1, sites, point.batch, point.steps,
        links=links if meshed else 0, route_links=round(hops * sites**2) if meshed else 0, held_out=False,
    )  # fmt: skip
    taken = estimate(ask)
    return taken.total_bytes - taken.base_bytes


def block(found: Sequence[Beyond]) -> list[str]:
    """Return the text for the README, a line each."""
    lines = []
    titles = list(dict.fromkeys(b.target.title for b in found))
    for title in titles:
        lines.append(f"{title}:")
        for b in found:
            if b.target.title == title:
                lines.append(f"  {_line(b)}")
    return lines


def _line(b: Beyond) -> str:
    show = _bytes if b.target.what == "memory" else _time
    error = "" if b.error is None else f" +- {b.error:.2f}"
    unbounded = b.high == float("inf")
    spread = "" if unbounded else f" (95 %: {show(b.low)} .. {show(b.high)})"
    check = (
        "" if b.check is None else f"; the largest measured point is {b.check:.2f} x what the others foretell"
    )
    paper = "" if b.paper is None else f"; by the shapes of its arrays {show(b.paper)}"
    return f"{b.target.what:<6} {show(b.value)}{spread}, exponent {b.exponent:.2f}{error}{check}{paper}"


def _time(seconds: float) -> str:
    for unit, factor, limit in (("s", 1.0, 120.0), ("min", 60.0, 120.0), ("h", 3600.0, 72.0)):
        if seconds < limit * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 86400.0:.3g} d"


def _bytes(size: float) -> str:
    from ...hardware.units import format_bytes

    return format_bytes(size)
