"""The figure of the README: what the best ring gains over the row-major one, by message size and duplex mode.

Rounds are timed in router cycles (`hardware.noc.ring_round_cycles`, equal to BookSim2 wherever transfers
do not meet) on SPIMOE's network: 4 x 8 cores, 32-byte flits, XY routes. All-gather and all-reduce are rounds
of the same transfers, so the ratio holds for both. Nothing is fitted to the published figure, which names
neither message size nor duplex mode.
"""

from __future__ import annotations

from pathlib import Path

from ..common.files import atomic_path
from ..hardware.noc import booksim2_router, ring_round_cycles
from ..hardware.topology import mesh
from ..placement.result import Budget
from ..placement.ring.problem import RingProblem
from ..placement.solve import solve

ROWS, COLS = 4, 8
FLIT_BYTES = 32
FLITS = tuple(2**i for i in range(12))
"""Transfers of one flit to 64 KiB."""
PUBLISHED = 3.12
"""SPIMOE, figure 15 (c): speed-up of all-gather and all-reduce."""

_CURVES = {
    "full": ("full duplex", "#0969da", "-"),
    "half": ("half duplex (by the model alone)", "#bc4c00", "--"),
}


def speed_ups(duplex: str) -> list[float]:
    """Return cycles of a row-major round over cycles of a round of the best ring, for each of FLITS."""
    topology = mesh(ROWS, COLS, link_bandwidth_bytes_per_s=25.6e9, hop_latency_s=3.75e-9, duplex=duplex)
    best = solve(
        RingProblem(topology, tuple(range(ROWS * COLS))), "exact", budget=Budget(time_s=60.0)
    ).decision
    assert best is not None
    router = booksim2_router(3, flit_bytes=FLIT_BYTES, clock_hz=800e6)
    row_major = range(ROWS * COLS)
    return [
        ring_round_cycles(router, topology, list(row_major), flits)
        / ring_round_cycles(router, topology, best.order, flits)
        for flits in FLITS
    ]


def draw(path: str | Path) -> None:
    """Write the figure as SVG; the same bytes every time. Raises BadInput where `path` cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    sizes = [FLIT_BYTES * flits for flits in FLITS]
    with mpl.rc_context({"svg.hashsalt": "moeplan", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for duplex, (label, colour, dashes) in _CURVES.items():
            axes.plot(sizes, speed_ups(duplex), dashes, color=colour, marker="o", markersize=4, label=label)
        axes.axhline(PUBLISHED, color="#57606a", linewidth=1)
        axes.annotate(
            f"SPIMOE: {PUBLISHED}x, message size and duplex mode not given",
            (sizes[-1], PUBLISHED),
            (0, 4),
            textcoords="offset points",
            ha="right",
            color="#57606a",
            fontsize=9,
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes[::2], [_size(size) for size in sizes[::2]])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("bytes that a core sends on in one round")
        axes.set_ylabel("speed-up of a round")
        axes.set_title(
            f"Best ring through all cores of a {ROWS} x {COLS} mesh, against row-major", fontsize=11
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower left")
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})


def _size(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"
