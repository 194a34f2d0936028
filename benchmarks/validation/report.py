"""Errors of the timing models, model by model: how large, where the worst is, and whether a bar holds."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...hardware.noc import ROUND_BAND
from .case import Case
from .noc_cases import CONFLICTING, noc_cases
from .pim_cases import SMALL_SHAPES, pim_cases

BAND_SHARE = 0.9
"""Share of the cases that an error band has to cover."""


class Bar(NamedTuple):
    """What is asked of a model: |relative error| in the median and at worst, and an error band."""

    median: float
    worst: float | None = None
    band: tuple[float, float] | None = None
    """(low, high) of (reference - predicted) / predicted, for at least `BAND_SHARE` of the cases."""


_BARS: tuple[tuple[str, Bar | None], ...] = (
    (SMALL_SHAPES, None),
    (r"PIM HBM2_samsung", None),
    (r"PIM worked example", Bar(0.05, 0.05)),
    (r"PIM .*/refresh$", Bar(0.03, 0.10)),
    (r"PIM ", Bar(0.01, 0.06)),
    (rf"NoC .*{CONFLICTING}", Bar(0.02, band=ROUND_BAND)),
    (r"NoC ", Bar(0.0, 0.0)),
    (r"rexpert layer time", None),
    (r"", Bar(0.01, 0.01)),
)
"""The first pattern that a model's name starts with decides. None, reported without a bar: toys whose fixed
costs are all there is, a device whose session is read from a run, and times that ReXpert measured on parts
that it does not describe."""


@dataclass(frozen=True)
class Summary:
    """Errors of one model over its cases; relative, without sign."""

    name: str
    cases: int
    median_abs_error: float
    p95_abs_error: float
    """The smallest error that at least 95 % of the cases do not exceed."""
    worst_abs_error: float
    worst_case: str
    covered: float | None
    """Share of the cases in the error band that the model states; None where it states none."""
    bar: Bar | None

    @property
    def holds(self) -> bool:
        """Whether the bar, if there is one, holds."""
        bar = self.bar
        if bar is None:
            return True
        covered = self.covered is None or self.covered >= BAND_SHARE
        worst = bar.worst is None or self.worst_abs_error <= bar.worst
        return covered and worst and self.median_abs_error <= bar.median


def collect(reference: Path | None) -> list[Case]:
    """Return all cases: simulators where a folder of reference tables is given, published figures always.

    Raises BadInput where a table is missing or bad.
    """
    from .published import published_cases

    measured = [*pim_cases(reference), *noc_cases(reference)] if reference else []
    return measured + published_cases()


def summarize(cases: Iterable[Case]) -> list[Summary]:
    """Return one summary per model, in the order in which they first appear."""
    by_model: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_model[case.model].append(case)
    return [_summary(model, found) for model, found in by_model.items()]


def bar_of(model: str) -> Bar | None:
    """Return what is asked of the model of that name."""
    return next(bar for pattern, bar in _BARS if re.match(pattern, model))


def _summary(model: str, cases: list[Case]) -> Summary:
    errors = np.abs([case.error for case in cases])
    worst, bar = int(errors.argmax()), bar_of(model)
    return Summary(
        name=model,
        cases=len(cases),
        median_abs_error=float(np.median(errors)),
        p95_abs_error=float(np.quantile(errors, 0.95, method="inverted_cdf")),
        worst_abs_error=float(errors[worst]),
        worst_case=cases[worst].name,
        covered=_covered(cases, bar.band) if bar and bar.band else None,
        bar=bar,
    )


def _covered(cases: list[Case], band: tuple[float, float]) -> float:
    off = [case.reference / case.predicted - 1 for case in cases]
    return float(np.mean([band[0] <= value <= band[1] for value in off]))
