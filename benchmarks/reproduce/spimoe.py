"""SPIMOE: every mechanism beside its published factor, as the ablation runs it."""

from __future__ import annotations

from collections.abc import Iterator

from ..ablation import rows
from .rows import Row

#: What the text gives a number for and cannot be made again.
_CANNOT = (
    (
        "accuracy under adaptive routing and sparse attention",
        "needs the models' weights and their evaluation sets",
    ),
    ("area and power of the SRAM-PIM cores", "a synthesis result"),
    ("kernel times of the A100 baseline", "measured by the authors; rooflines stand in for them"),
)


def collect() -> Iterator[Row]:
    """Yield the rows, in the order of the ablation."""
    for row in rows():
        yield Row("spimoe", f"{row.claim}: {row.setting}", row.published, row.ours, row.explained)
    for item, why in _CANNOT:
        yield Row("spimoe", item, None, None, why)
