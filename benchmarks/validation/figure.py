"""The figure `predicted against reference`: a panel per kind of model, as SVG, the same bytes each time."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .case import Case

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES = {
    "aim_simulator": "GDDR6-AiM",
    "NeuPIMs-NewtonSim": "Newton",
    "attacc_bank": "AttAcc",
    "SAIT-PIMSimulator": "HBM-PIM",
    "booksim2": "BookSim2",
    "noxim": "Noxim",
}
"""Names of simulators in the legend, by the part of a case's source before "@"."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which colour-blind readers can tell apart."""


class Panel(NamedTuple):
    """Cases of one kind, with the unit in which they are drawn."""

    title: str
    unit: str
    scale: float
    cases: list[Case]


def render(cases: Sequence[Case]) -> str:
    """Return the figure as the text of an SVG file: above the times, below how far they are off."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [panel for panel in _panels(cases) if panel.cases]
    with rc_context({"svg.hashsalt": "moeplan", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(panels), 5.4), layout="constrained")
        grid = figure.subplots(2, len(panels), sharex="col", height_ratios=(3, 1), squeeze=False)
        for column, panel in enumerate(panels):
            _draw(grid[0, column], grid[1, column], panel)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _panels(cases: Sequence[Case]) -> tuple[Panel, ...]:
    kinds: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        kinds[case.model.partition(" ")[0]].append(case)
    published = [case for kind, found in kinds.items() if kind not in {"PIM", "NoC"} for case in found]
    return (
        Panel("PIM: GEMV", "us", 1e6, kinds["PIM"]),
        Panel("NoC: packets and ring rounds", "cycles", 1.0, kinds["NoC"]),
        Panel("Published figures", "unit of the source", 1.0, published),
    )


def _draw(times: Axes, errors: Axes, panel: Panel) -> None:
    for colour, (label, cases) in zip(COLOURS, _series(panel.cases).items(), strict=False):
        median = np.median([abs(case.error) for case in cases])
        marks = sorted({(case.reference * panel.scale, case.predicted * panel.scale) for case in cases})
        reference, predicted = np.array(marks).T
        for axes, values in ((times, predicted), (errors, 100 * (predicted / reference - 1))):
            axes.scatter(reference, values, s=14, alpha=0.6, linewidths=0, color=colour)
        times.scatter([], [], s=14, color=colour, label=f"{label}: {len(cases)}, median {median:.1%}")
    both = [value * panel.scale for case in panel.cases for value in (case.reference, case.predicted)]
    ends = min(both) / 1.5, max(both) * 1.5
    times.plot(ends, ends, color="#808080", linewidth=0.8, zorder=0)
    errors.axhline(0.0, color="#808080", linewidth=0.8, zorder=0)
    times.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=panel.title)
    times.set_ylabel(f"predicted ({panel.unit})")
    times.legend(frameon=False, loc="upper left")
    errors.set(xlabel=f"reference ({panel.unit})", ylabel="error (%)")


def _series(cases: Sequence[Case]) -> Mapping[str, list[Case]]:
    """Cases by simulator; published figures are one series."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        found[SERIES.get(case.source.partition("@")[0], "published")].append(case)
    return found
