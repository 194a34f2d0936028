"""A cell of a comparison: one solver on one instance with one seed, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Literal

from ...common.files import fingerprint

_ROOMS = ("common", "hardware", "workload", "placement")
_SOURCES = (".py", ".yaml")

#: How a cell can end. Only `ok` has scores; every other one has a reason.
Status = Literal["ok", "skipped", "infeasible", "nothing_found", "failed", "timeout", "memory"]


@dataclass(frozen=True)
class Cell:
    """What is run; `budget_s` and `budget_iterations` are the solver's limits (None: no such limit)."""

    instance: str
    solver: str
    seed: int
    budget_s: float | None
    budget_iterations: int | None

    @cached_property
    def key(self) -> str:
        """Name of the cell's file: the same question put to the same code has the same key."""
        return fingerprint(code(), *asdict(self).values()).removeprefix("sha256:")


@cache
def code() -> str:
    """Return a hash over the sources that an answer depends on: no old answer passes for a new one."""
    root = Path(__file__).parents[2]
    files = sorted(path for room in _ROOMS for path in (root / room).rglob("*") if path.suffix in _SOURCES)
    return fingerprint(metadata.version("moeplan"), *(path.read_text(encoding="utf-8") for path in files))


@dataclass(frozen=True)
class Outcome:
    """What became of a cell. Costs are in the family's own measure, as `solve()` gave them.

    `bound`, `bound_by`: merged by `solve()`; `anytime`: (iterations, seconds, best objective);
    `peak_bytes`: largest resident memory of the cell's process; `problem`: fingerprint of the question.
    """

    status: Status
    reason: str = ""
    objective_s: float | None = None
    total_s: float | None = None
    held_out_s: float | None = None
    bound_s: float | None = None
    bound_by: str = ""
    stop: str = ""
    iterations: int = 0
    elapsed_s: float = 0.0
    peak_bytes: int = 0
    problem: str = ""
    anytime: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True)
class Finished:
    """A cell with its outcome, as the store keeps it."""

    cell: Cell
    outcome: Outcome
    version: str
