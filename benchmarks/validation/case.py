"""One comparison of a model with an independent figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`predicted` by the model named `model` against `reference` from `source`, in the same unit."""

    model: str
    name: str
    predicted: float
    reference: float
    source: str

    @property
    def error(self) -> float:
        """Signed relative error."""
        return (self.predicted - self.reference) / self.reference
