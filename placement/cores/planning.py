"""Plan every MoE layer of a model on the cores of near-memory dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planning import Planned, Search, in_order, search_layer
from .layout import platform_layout, with_side
from .problem import CoreProblem, Decision, Settings, core_problem

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel


@dataclass(frozen=True, eq=False)
class LayerPlan(Planned[Decision]):
    """What one layer's solve gave, with the question."""

    problem: CoreProblem


def plan_cores(
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
    best they have and layers not yet begun get their best baseline. Raises BadInput, UsageError and
    ProvenInfeasible where model, platform, settings and load do not belong together.
    """
    search, settings = search or Search(), settings or Settings()
    stop = interrupt or threading.Event()
    wanted = profile.layers if layers is None else layers
    layout = platform_layout(model, with_side(platform, settings.side), settings.mode, settings.width)

    def plan(layer: int) -> LayerPlan:
        problem = core_problem(model, layout, profile, layer, held_out=held_out, settings=settings)
        found = search_layer(problem, search, stop, f"layer {layer}")
        return LayerPlan(found.result, found.baselines, problem)

    plans = []
    for done in in_order(plan, wanted, jobs):
        plans.append(done)
        if on_layer is not None:
            on_layer(done)
    return plans
