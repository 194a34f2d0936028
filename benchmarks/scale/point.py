"""A point of a scaling study: one size of one question, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Family = Literal["count", "channels", "cores", "replicas", "partition", "ring"]
Axis = Literal["tokens", "experts", "layers", "sites", "steps"]
FAMILIES: Final = get_args(Family)
AXES: Final = get_args(Axis)


@dataclass(frozen=True)
class Point:
    """What is planned, or counted.

    `sites`: channels, cores or ranks; `steps` and `batch`: decode steps and their tokens; `tokens`: of a
    trace that is counted. A search makes `moves` proposed moves a layer.
    """

    family: Family
    axis: Axis
    experts: int = 128
    layers: int = 1
    sites: int = 32
    steps: int = 64
    batch: int = 64
    top_k: int = 8
    tokens: int = 0
    moves: int = 12_800

    @property
    def size(self) -> int:
        """Where the point lies on its axis."""
        return int(getattr(self, self.axis))

    @property
    def name(self) -> str:
        """The point for people."""
        return f"{self.family}, {self.size} {self.axis}"


@dataclass(frozen=True)
class Measured:
    """What a point took, in a process of its own.

    - `cpu_s`: seconds that the processor spent on it, whatever else the machine did; the least of `runs`.
    - `phases_s`: the same by phase; they add up to `cpu_s`.
    - `elapsed_s`: by the clock on the wall, of the run that took the least.
    - `held_bytes`: memory that the process held before, its input included; `peak_bytes`: the most that it
      held.
    """

    cpu_s: float
    elapsed_s: float
    phases_s: dict[str, float] = field(default_factory=dict)
    held_bytes: int = 0
    peak_bytes: int = 0
    runs: int = 1

    @property
    def grown_bytes(self) -> int:
        """What the work itself took at its fullest."""
        return max(0, self.peak_bytes - self.held_bytes)


@dataclass(frozen=True)
class Failed:
    """Why a point has no figure."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """A point with its outcome."""

    point: Point
    outcome: Measured | Failed
