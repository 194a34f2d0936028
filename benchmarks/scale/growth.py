"""What the points of a study say: an exponent for every axis, family and figure, and what grows too fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .fit import Fit, fit
from .point import AXES, FAMILIES, Axis, Failed, Family, Finished, Measured

#: The work is the axis itself: so many tokens, experts, layers, sites or steps. An exponent is called larger
#: than the work's when it is so by two standard errors and this much, or when the last step shows it.
_MARGIN, _LAST_MARGIN = 0.05, 0.35
#: Figures below these say more about clocks and pages than about growth.
_LEAST_S, _LEAST_BYTES = 1e-3, 2**20

#: Why a cost grows faster than its axis, where it does and it is the work's nature.
_ROUTES = "routes of all pairs of sites of a mesh: N^2 pairs of about 2/3 N^0.5 hops"
_CORES = (
    "where channels come to be as many as experts, a move changes who is a first core, and the ring and the "
    "way home of every step are looked at again; both are as long as there are channels"
)
REASONS: Final[dict[tuple[Axis, Family, str], str]] = {
    ("experts", "channels", "memory"): "counts of experts by drawn step, and the published cliques' token by "
    "expert matrix: the tokens of a step stay the same, the table widens",
    ("sites", "channels", "time"): _CORES,
    ("sites", "channels", "baselines"): _CORES,
    ("sites", "channels", "search"): _CORES,
    ("sites", "channels", "pose"): _ROUTES,
    ("sites", "channels", "memory"): "a search's state, steps x batch x channels, passes what drawing steps "
    f"takes; {_ROUTES}",
    (
        "sites",
        "replicas",
        "memory",
    ): "steps x ranks, hidden by other arrays up to hundreds of ranks",
    ("sites", "ring", "time"): _ROUTES,
    ("sites", "ring", "pose"): _ROUTES,
    ("sites", "ring", "memory"): _ROUTES,
    ("sites", "ring", "baselines"): "2-opt looks at all pairs of cores",
    ("sites", "ring", "search"): "as many more moves as cores, each along longer routes, out of the caches",
}


@dataclass(frozen=True)
class Growth:
    """How a figure grows along an axis: `what` is `time`, a phase of it, or `memory` (of the work itself)."""

    axis: Axis
    family: Family
    what: str
    fit: Fit
    largest: int
    value: float

    @property
    def faster(self) -> bool:
        """Whether it grows faster than the work; two points do not say."""
        if self.fit.error is None:
            return False
        sure = self.fit.exponent - 2.0 * self.fit.error > 1.0 + _MARGIN
        return sure or self.fit.last > 1.0 + _LAST_MARGIN

    @property
    def reason(self) -> str:
        """Why, where that is known; empty otherwise."""
        return REASONS.get((self.axis, self.family, self.what), "") if self.faster else ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        law = asdict(self.fit)
        return {
            "axis": self.axis, "family": self.family, "what": self.what,
            "exponent": law["exponent"], "error": law["error"], "last": law["last"],
            "points": law["points"], "largest": self.largest, "value": self.value,
            "faster_than_work": self.faster, "reason": self.reason,
        }  # fmt: skip


def growths(finished: Sequence[Finished]) -> list[Growth]:
    """Return every exponent that two points or more give."""
    found = []
    for axis in AXES:
        for family in FAMILIES:
            measured = measured_on(finished, axis, family)
            for what in figures(measured):
                grown = growth(axis, family, what, measured)
                if grown is not None:
                    found.append(grown)
    return found


def growth(axis: Axis, family: Family, what: str, measured: Sequence[tuple[int, Measured]]) -> Growth | None:
    """Fit one figure of points (size, outcome); None where it is too small to say anything."""
    least = _LEAST_BYTES if what == "memory" else _LEAST_S
    usable = [(size, figure(outcome, what)) for size, outcome in measured]
    usable = [(size, value) for size, value in usable if value >= least]
    law = fit([size for size, _ in usable], [value for _, value in usable])
    return None if law is None else Growth(axis, family, what, law, *usable[-1])


def measured_on(finished: Sequence[Finished], axis: Axis, family: Family) -> list[tuple[int, Measured]]:
    """Return size and outcome of the points of an axis that have one, by size."""
    return sorted(
        (
            (f.point.size, f.outcome)
            for f in finished
            if (f.point.axis, f.point.family) == (axis, family) and isinstance(f.outcome, Measured)
        ),
        key=lambda pair: pair[0],
    )


def figures(measured: Sequence[tuple[int, Measured]]) -> list[str]:
    """Return the names of what was measured: the whole time, its phases, the memory."""
    phases = list(dict.fromkeys(name for _, outcome in measured for name in outcome.phases_s))
    return ["time", *(phases if len(phases) > 1 else ()), "memory"] if measured else []


def figure(outcome: Measured, what: str) -> float:
    """Return one figure of a point, in seconds or bytes."""
    if what == "memory":
        return float(outcome.grown_bytes)
    return outcome.cpu_s if what == "time" else outcome.phases_s.get(what, 0.0)


def point_dict(finished: Finished) -> dict[str, Any]:
    """Return a point and its outcome as plain values for JSON."""
    outcome = finished.outcome
    row = {**asdict(finished.point), "size": finished.point.size, **asdict(outcome)}
    if isinstance(outcome, Failed):
        return row
    return {**row, "grown_bytes": outcome.grown_bytes}
