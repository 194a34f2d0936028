"""A published figure beside ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure of a publication.

    `source`: sieve, spimoe, rexpert or eplb; `item`: table or figure, and what it says; `published` and
    `ours` in the same unit, which `item` names where it is not a ratio; None where there is no number: then
    `note` says why. A range is given by its two ends, `published` to `published_to`.
    """

    source: str
    item: str
    published: float | None
    ours: float | None
    note: str = ""
    published_to: float | None = None

    @property
    def difference(self) -> float | None:
        """(ours - published) / published, to the nearer end of a range and 0 within it."""
        if self.ours is None or self.published is None or self.published == 0.0:
            return None
        ends = (self.published, self.published if self.published_to is None else self.published_to)
        low, high = min(ends), max(ends)
        nearest = min(max(self.ours, low), high)
        return (self.ours - nearest) / nearest

    def cells(self) -> tuple[str, str, str]:
        """Return published, ours and difference as text."""
        published = _plain(self.published)
        if self.published_to is not None:
            published += f" .. {_plain(self.published_to)}"
        difference = "-" if self.difference is None else f"{self.difference:+.1%}"
        return published, _plain(self.ours), difference

    def as_dict(self) -> dict[str, object]:
        """Return what a JSON answer holds of it."""
        published: object = self.published
        if self.published_to is not None:
            published = [self.published, self.published_to]
        return {
            "source": self.source,
            "item": self.item,
            "published": published,
            "ours": self.ours,
            "difference": self.difference,
            "note": self.note,
        }


def _plain(value: float | None) -> str:
    """Four digits, without an exponent."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"
