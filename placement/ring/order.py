"""Rings for those who only want a good one: from the cache where it is known, solved and kept where not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..result import Budget, Result
from ..solve import ignore, solve
from .bounds import hops_floor
from .cache import Request, RingCache
from .construct import snake
from .problem import RingOrder, RingProblem

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from ...hardware.topology import Topology
    from ..result import Progress

#: What `ring_order` may spend, some seconds: enough to prove 64 cores on 16 x 20.
_BUDGET = Budget(time_s=None, iterations=5_000_000)


def best_ring(
    problem: RingProblem,
    solver: str = "auto",
    *,
    budget: Budget | None = None,
    seed: int = 0,
    cache: RingCache | None = None,
    on_progress: Callable[[Progress], None] = ignore,
    interrupt: threading.Event | None = None,
) -> Result[RingOrder]:
    """Return `solve(problem, solver, ...)`, from `cache` where it holds the answer, and keep it there."""
    budget = budget or Budget()
    request = Request(problem, solver, budget, seed)
    known = cache.read(request) if cache is not None else None
    if known is not None:
        return known
    result = solve(problem, solver, budget=budget, seed=seed, on_progress=on_progress, interrupt=interrupt)
    if cache is not None:
        cache.write(request, result)
    return result


def ring_order(
    topology: Topology, cores: Iterable[int], *, cache: RingCache | None = None
) -> tuple[int, ...]:
    """Return an order for the collectives of `cores`, from the lowest core on; the same at every call.

    One core is its own ring. Rectangles take their closed tour at once, where it has load 1 and the least
    hops that a ring can have. Everything else is solved exactly for the default objective, and kept in
    `cache` (the user's own where None is given). Raises UsageError as `RingProblem` does.
    """
    members = tuple(cores)
    if len(members) == 1:
        topology.route(members[0], members[0])  # refuses what is no working site
        return members
    problem = RingProblem(topology, members)
    tour = RingOrder(snake(topology, problem.cores))
    if problem.measure(tour)[:2] == (1, hops_floor(problem.hops)[0]):
        return tour.order
    ring = best_ring(problem, budget=_BUDGET, cache=cache or RingCache()).decision
    assert ring is not None
    return ring.order
