"""Balance against the number of slots: which redundancy divides, and what it buys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import MoeplanError
from .planning import plan_replicas

if TYPE_CHECKING:
    from ..planning import Search
    from .problem import ReplicaProblem


@dataclass(frozen=True)
class Redundancy:
    """What one number of slots gives, means over layers; `fault` says why it cannot be used."""

    slots: int
    redundant: int
    slots_per_rank: int
    fault: str
    balancedness: float | None = None
    worst_balancedness: float | None = None
    held_out_balancedness: float | None = None
    max_over_bound: float | None = None
    step_s: float | None = None
    """Largest rank load or time of a step, summed over layers; on held-out steps where there are some."""


def sweep_redundancy(
    pose: Callable[[int], list[ReplicaProblem]],
    slots: Iterable[int],
    experts: int,
    ranks: int,
    search: Search,
) -> Iterator[Redundancy]:
    """Plan with every number of slots; `pose` gives the problems of all layers, or raises what is wrong."""
    for number in slots:
        shape = (number, number - experts, number // ranks)
        try:
            plans = plan_replicas(pose(number), search=search).layers
        except MoeplanError as error:
            yield Redundancy(*shape, fault=error.what)
            continue
        balance = [plan.problem.balancedness(plan.decision) for plan in plans]
        unseen = [
            plan.problem.held_out.balancedness(plan.decision)
            for plan in plans
            if plan.problem.held_out is not None
        ]
        results = [plan.result for plan in plans]
        over = [r.cost.objective_s / r.bound.value_s for r in results]
        yield Redundancy(
            *shape,
            fault="",
            balancedness=float(np.mean(balance)),
            worst_balancedness=float(min(balance)),
            held_out_balancedness=float(np.mean(unseen)) if unseen else None,
            max_over_bound=float(np.mean(over)),
            step_s=float(sum((r.held_out or r.cost).total_s for r in results)),
        )


def usable_slots(experts: int, ranks: int, most: int) -> list[int]:
    """Numbers of slots up to `most` that hold every expert and divide by the ranks."""
    first = -(-experts // ranks) * ranks
    return list(range(first, most + 1, ranks))
