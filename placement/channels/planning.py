"""Plan every MoE layer of a model: the published heuristics first, then the solver from the best of them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...common.errors import NothingFound
from ..result import Budget, Result, Stop
from ..solve import solve
from .problem import ChannelProblem, Decision, Settings, channel_problem

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What one layer's solve gave, and what every baseline gets on the same steps."""

    problem: ChannelProblem
    result: Result[Decision]
    baselines: Mapping[str, Result[Decision]]

    @property
    def decision(self) -> Decision:
        """The placement; a LayerPlan always has one."""
        assert self.result.decision is not None
        return self.result.decision


@dataclass(frozen=True)
class Search:
    """How every layer is searched."""

    solver: str = "auto"
    budget: Budget = Budget()  # noqa: RUF009 - frozen, hence no shared state
    seed: int = 0
    options: Mapping[str, object] | None = None


def plan_channels(
    model: MoEModel,
    platform: Platform,
    profile: Load,
    held_out: Load | None = None,
    *,
    search: Search | None = None,
    settings: Settings | None = None,
    layers: tuple[int, ...] | None = None,
    jobs: int = 1,
    on_layer: Callable[[LayerPlan], None] | None = None,
    interrupt: threading.Event | None = None,
) -> list[LayerPlan]:
    """Place the experts of every layer of `profile` (or of `layers`, absolute ids); results in their order.

    Layers are independent and run `jobs` at a time in threads, since the kernels release the GIL.
    `on_layer` is called in this thread as layers end. When `interrupt` is set, running searches end with the
    best they have and layers not yet begun get their best baseline. Raises NothingFound where a layer has
    no feasible placement within the budget, and whatever `channel_problem` and `solve` raise.
    """
    search, settings = search or Search(), settings or Settings()
    stop = interrupt or threading.Event()
    wanted = profile.layers if layers is None else layers

    def plan(layer: int) -> LayerPlan:
        problem = channel_problem(model, platform, profile, layer, held_out=held_out, settings=settings)
        return plan_layer(problem, search, stop)

    plans = []
    for done in _in_order(plan, wanted, jobs):
        plans.append(done)
        if on_layer is not None:
            on_layer(done)
    return plans


def plan_layer(problem: ChannelProblem, search: Search, interrupt: threading.Event) -> LayerPlan:
    """Run the baselines, then the solver from the best of them."""
    quick = Budget(time_s=60.0)
    baselines = {name: solve(problem, name, budget=quick, seed=search.seed) for name in problem.baselines}
    found = [result for result in baselines.values() if result.decision is not None]
    best = min(found, key=lambda result: result.cost.objective_s, default=None)
    result = solve(
        problem,
        search.solver,
        budget=search.budget,
        seed=search.seed,
        start=best.decision if best else None,
        options=search.options,
        interrupt=interrupt,
    )
    if result.decision is None and best is not None and interrupt.is_set():
        result = dataclasses.replace(best, stop=Stop.INTERRUPTED)
    if result.decision is None:
        raise NothingFound(
            f"no feasible placement of layer {problem.layer} was found ({result.stop})",
            where=problem.infeasible() or f"solver {search.solver}",
            fix="raise the budget, or take another solver",
        )
    return LayerPlan(problem, result, baselines)


def _in_order(plan: Callable[[int], LayerPlan], layers: tuple[int, ...], jobs: int) -> Iterator[LayerPlan]:
    if jobs == 1:
        yield from map(plan, layers)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=jobs, backend="threading", return_as="generator")(
        delayed(plan)(layer) for layer in layers
    )
