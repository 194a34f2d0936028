"""Exact rings beside SPIMOE's heuristic: median times, and how many random core sets each solves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...hardware.topology import mesh
from ...placement.result import Budget, Stop
from ...placement.ring.problem import RingProblem
from ...placement.solve import solve

if TYPE_CHECKING:
    from ...hardware.topology import Topology
    from ...placement.result import Result
    from ...placement.ring.problem import Objective, RingOrder

_BUDGET = Budget(time_s=20.0)
_HEURISTICS = ("nn_2opt", "multistart_2opt")
_OBJECTIVES: tuple[Objective, ...] = ("hops", "load,hops,total")


class Case(NamedTuple):
    """Random core sets of one size on one mesh."""

    rows: int
    cols: int
    cores: int
    sets: int


CASES = (
    *(Case(4, 8, cores, 30) for cores in (4, 8, 12, 16, 20, 24, 28, 30, 31)),
    Case(8, 8, 32, 10),
    Case(8, 8, 48, 10),
    Case(16, 20, 16, 10),
    Case(16, 20, 32, 10),
    Case(16, 20, 64, 10),
)


def run() -> list[dict[str, object]]:
    """Return a row for every case and objective; times are wall-clock milliseconds, posing included."""
    from ortools.sat.python import cp_model  # noqa: F401  (loading it is no part of a median)

    return [_row(case, objective) for objective in _OBJECTIVES for case in CASES]


def _row(case: Case, objective: Objective) -> dict[str, object]:
    topology = mesh(case.rows, case.cols, link_bandwidth_bytes_per_s=25.6e9, hop_latency_s=3.75e-9)
    sets = list(_core_sets(case))
    _solve(topology, sets[0], objective, "exact")  # compiles and imports
    solved = [_solve(topology, cores, objective, "exact") for cores in sets]
    least = [result.cost.objective_s for _, result in solved]
    row: dict[str, object] = {
        "mesh": f"{case.rows}x{case.cols}",
        "cores": case.cores,
        "objective": objective,
        "sets": len(sets),
        "exact_ms": _median_ms(solved),
        "exact_worst_ms": round(1e3 * max(elapsed_s for elapsed_s, _ in solved), 2),
        "exact_proven": _share([result.stop is Stop.OPTIMAL for _, result in solved]),
        "proven_by_bounds_alone": _share(
            [
                RingProblem(topology, cores, objective=objective).lower_bound().value_s == best
                for cores, best in zip(sets, least, strict=True)
            ]
        ),
    }
    for name in _HEURISTICS:
        _solve(topology, sets[0], objective, name)
        found = [_solve(topology, cores, objective, name) for cores in sets]
        row[f"{name}_ms"] = _median_ms(found)
        row[f"{name}_optimal"] = _share(
            [result.cost.objective_s == best for (_, result), best in zip(found, least, strict=True)]
        )
    return row


def _core_sets(case: Case) -> Iterator[tuple[int, ...]]:
    rng = np.random.default_rng((case.rows, case.cols, case.cores))
    for _ in range(case.sets):
        yield tuple(rng.choice(case.rows * case.cols, case.cores, replace=False).tolist())


def _solve(
    topology: Topology, cores: Sequence[int], objective: Objective, solver: str
) -> tuple[float, Result[RingOrder]]:
    begun = time.perf_counter()
    result = solve(RingProblem(topology, tuple(cores), objective=objective), solver, budget=_BUDGET)
    return time.perf_counter() - begun, result


def _median_ms(solved: Sequence[tuple[float, Result[RingOrder]]]) -> float:
    return round(1e3 * statistics.median(elapsed_s for elapsed_s, _ in solved), 2)


def _share(hits: Sequence[bool]) -> float:
    return round(sum(hits) / len(hits), 3)
