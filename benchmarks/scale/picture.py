"""The study as a picture: time and memory along every axis, on logarithmic scales."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...common.files import atomic_path
from .growth import figure, growth, measured_on
from .point import AXES, FAMILIES, Axis, Finished

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {
    "count": "#57606a",
    "channels": "#0969da",
    "cores": "#1a7f37",
    "replicas": "#bf3989",
    "partition": "#bc4c00",
    "ring": "#8250df",
}
_LABELS: Final = {
    "tokens": "tokens of a trace",
    "experts": "experts of a layer",
    "layers": "layers",
    "sites": "channels, cores or ranks",
    "steps": "decode steps",
}


def draw(finished: Sequence[Finished], path: Path) -> None:
    """Write a panel of time and one of memory for every axis that has points; the same bytes always."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    axes = [axis for axis in AXES if any(f.point.axis == axis for f in finished)]
    with mpl.rc_context({"svg.hashsalt": "moeplan", "svg.fonttype": "none", "font.family": "sans-serif"}):
        picture = Figure(figsize=(3.6 * max(1, len(axes)), 6.4), layout="constrained")
        panels = picture.subplots(2, max(1, len(axes)), squeeze=False)
        for column, axis in enumerate(axes):
            _panel(panels[0][column], finished, axis, "time", 1.0)
            _panel(panels[1][column], finished, axis, "memory", 2.0**20)
            panels[1][column].set_xlabel(_LABELS[axis])
        panels[0][0].set_ylabel("processor seconds")
        panels[1][0].set_ylabel("MiB beside the input")
        with atomic_path(path) as temporary:
            picture.savefig(temporary, format="svg", metadata={"Date": None})


def _panel(panel: Axes, finished: Sequence[Finished], axis: Axis, what: str, unit: float) -> None:
    drawn = False
    for family in FAMILIES:
        measured = measured_on(finished, axis, family)
        if not measured:
            continue
        law = growth(axis, family, what, measured)
        panel.plot(
            [size for size, _ in measured],
            [max(figure(outcome, what), 1e-6) / unit for _, outcome in measured],
            color=_COLOURS[family], marker="o", markersize=3.5, linewidth=1.2,
            label=f"{family}: {law.fit.exponent:.2f}" if law is not None else family,
        )  # fmt: skip
        drawn = True
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.grid(color="#d0d7de", linewidth=0.5)
    if drawn:
        panel.legend(frameon=False, fontsize=7, title="family: exponent", title_fontsize=7)
