"""From numbers to what is read off a page: units, digits, ticks, and steps of colour."""

from __future__ import annotations

import math
from dataclasses import dataclass

COLOURS = 9
"""Steps of the sequential colour scale: classes q0 (least) to q8 (most) of the style sheet."""

_UNITS = (("ns", 1e-9, 0.0), ("µs", 1e-6, 1e-6), ("ms", 1e-3, 1e-1), ("s", 1.0, 10.0))
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_ROUND_BINS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class TimeFormat:
    """One unit and one number of decimals for times (or tokens) that are compared with each other."""

    unit: str
    unit_s: float
    decimals: int

    def number(self, seconds: float) -> str:
        """Return the value without its unit, for a column whose head names it."""
        return f"{seconds / self.unit_s:,.{self.decimals}f}"

    def text(self, seconds: float) -> str:
        """Return the value with its unit."""
        return f"{self.number(seconds)} {self.unit}"


def time_format(largest_s: float, digits: int = 4) -> TimeFormat:
    """Choose the unit, and the decimals that show `digits` digits of the largest of some times."""
    if largest_s <= 0.0:
        return TimeFormat("µs", 1e-6, 1)
    unit, unit_s = next((name, size) for name, size, least in reversed(_UNITS) if largest_s >= least)
    whole = math.floor(math.log10(largest_s / unit_s)) + 1
    return TimeFormat(unit, unit_s, min(6, max(0, digits - whole)))


def token_format(largest: float, digits: int = 4) -> TimeFormat:
    """The same for plans without a model, whose times are tokens of the fullest rank."""
    whole = math.floor(math.log10(largest)) + 1 if largest > 0.0 else 1
    return TimeFormat("tokens", 1.0, min(6, max(0, digits - whole)))


def percent(share: float) -> str:
    """Return a share in percent: one decimal, two where one would show nothing."""
    if share == 0.0 or abs(share) >= 0.001:
        return f"{share:.1%}"
    return f"{share:.2%}" if abs(share) >= 0.0001 else "under 0.01%"


def plain(value: float) -> str:
    """Return a round value for a tick or an edge, without an exponent."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def ticks(highest: float, count: int = 5) -> tuple[float, ...]:
    """Return round, evenly spaced values from 0 to at least `highest`, about `count` steps."""
    if highest <= 0.0:
        return (0.0, 1.0)
    step = _round_step(highest / count, _ROUND)
    return tuple(i * step for i in range(math.ceil(highest / step - 1e-9) + 1))


@dataclass(frozen=True)
class Bins:
    """Intervals of equal, round width; every one has a colour of the sequential scale."""

    edges: tuple[float, ...]

    @property
    def colours(self) -> tuple[int, ...]:
        """Colour step of every bin, spread over the whole scale."""
        last = max(1, len(self.edges) - 2)
        return tuple(round(i * (COLOURS - 1) / last) for i in range(len(self.edges) - 1))

    def colour(self, value: float) -> int:
        """Return the colour step of a value; values outside take the nearest bin's."""
        width = self.edges[1] - self.edges[0]
        index = math.floor((value - self.edges[0]) / width + 1e-9)
        return self.colours[min(max(index, 0), len(self.edges) - 2)]


def bins(lowest: float, highest: float) -> Bins:
    """Cover [lowest, highest] with at most `COLOURS` bins, from 0 unless that would waste half."""
    if highest <= 0.0:
        return Bins((0.0, 1.0))
    low = lowest if lowest > 0.5 * highest else 0.0
    step = _round_step((highest - low) / COLOURS or highest / COLOURS, _ROUND_BINS)
    while True:
        first = math.floor(low / step + 1e-9)
        last = max(first + 1, math.ceil(highest / step - 1e-9))
        if last - first <= COLOURS:
            return Bins(tuple(i * step for i in range(first, last + 1)))
        step = _round_step(step * 1.01, _ROUND_BINS)


def _round_step(least: float, multiples: tuple[float, ...]) -> float:
    """Return the smallest of `multiples` times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(multiple * power for multiple in multiples if multiple * power >= least * (1.0 - 1e-9))
