"""Plan every MoE layer of a model on the cores of near-memory dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planning import LayerTask, Planned, Search, each_layer, search_layer
from .layout import Layout, platform_layout, with_side
from .problem import CoreProblem, Decision, Settings, core_problem

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel


@dataclass(frozen=True, eq=False)
class LayerPlan(Planned[Decision]):
    """What one layer's solve gave, with the question."""

    problem: CoreProblem


@dataclass(frozen=True, eq=False)
class CoreTask(LayerTask):
    """Plans one layer when called with its absolute id."""

    settings: Settings

    @property
    def layout(self) -> Layout:
        """How a layer lies on the dies. Raises UsageError, BadInput or ProvenInfeasible where it cannot."""
        machine = with_side(self.platform, self.settings.side)
        return platform_layout(self.model, machine, self.settings.mode, self.settings.width)

    def __call__(self, layer: int) -> LayerPlan:
        """Plan the layer; see `plan_cores`."""
        problem = core_problem(
            self.model, self.layout, self.profile, layer, held_out=self.held_out, settings=self.settings
        )
        stop = self.interrupt or threading.Event()
        found = search_layer(problem, self.search, stop, f"layer {layer}")
        return LayerPlan(found.result, found.baselines, problem)


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
    task = CoreTask(model, platform, profile, held_out, search or Search(), settings or Settings(), interrupt)
    return each_layer(task, profile.layers if layers is None else layers, jobs, on_layer)
