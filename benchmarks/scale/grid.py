"""The points of every study: one axis runs, the others stay where a common model has them."""

from __future__ import annotations

from typing import Final

from .point import AXES, FAMILIES, Axis, Family, Point

#: Values of every axis; `quick` takes the first few.
VALUES: Final[dict[Axis, tuple[int, ...]]] = {
    "tokens": (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "experts": (64, 128, 256, 512, 1024),
    "layers": (4, 8, 16, 32, 64),
    "sites": (8, 16, 32, 64, 128, 256, 512),
    "steps": (32, 64, 128, 256, 512, 1024),
}
_QUICK = 3
#: Which families an axis means something to; sites are channels, cores of a die or of a ring, or ranks.
STUDIED: Final[dict[Axis, tuple[Family, ...]]] = {
    "tokens": ("count",),
    "experts": ("channels", "cores", "replicas", "partition"),
    "layers": ("channels", "cores", "replicas", "partition"),
    "sites": ("channels", "cores", "replicas", "ring"),
    "steps": ("channels", "cores", "replicas", "partition"),
}
_MOVES_PER_EXPERT: Final = 100
#: Where 512 cores, or ranks, have to have something to hold.
MANY_EXPERTS: Final = 512
#: Moves of a ring, whose cores are the axis: as many for every core.
_MOVES_PER_CORE: Final = 1_000
_COUNTED_LAYERS: Final = 2


def points(axes: tuple[Axis, ...] = AXES, *, quick: bool = False) -> list[Point]:
    """Return the points of these axes, family after family, each axis upwards."""
    return [
        _point(axis, family, value)
        for axis in axes
        for family in FAMILIES
        if family in STUDIED[axis]
        for value in (VALUES[axis][:_QUICK] if quick else VALUES[axis])
    ]


def _point(axis: Axis, family: Family, value: int) -> Point:
    if axis == "tokens":
        return Point(family, axis, layers=_COUNTED_LAYERS, tokens=value)
    if axis == "experts":
        return Point(family, axis, experts=value, moves=_MOVES_PER_EXPERT * value)
    if axis == "layers":
        return Point(family, axis, layers=value)
    if axis == "steps":
        return Point(family, axis, steps=value)
    if family == "ring":
        return Point(family, axis, sites=value, moves=_MOVES_PER_CORE * value)
    return Point(family, axis, sites=value, experts=MANY_EXPERTS, moves=_MOVES_PER_EXPERT * MANY_EXPERTS)
