"""Plan every MoE layer of a model on the channel sites of a machine."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..planning import ROWS, LayerTask, Planned, Search, each_layer, run_baselines, search_layer
from .problem import ChannelProblem, Decision, Settings, channel_problem

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel

#: Baselines that are also run in the layout of the paper, under their name and `ROWS`.
_AS_PUBLISHED = ("ep", "spimoe")


@dataclass(frozen=True, eq=False)
class LayerPlan(Planned[Decision]):
    """What one layer's solve gave, with the question; `rows` is the same with whole outputs per bank."""

    problem: ChannelProblem
    rows: ChannelProblem | None = None

    def posed(self, baseline: str) -> ChannelProblem:
        """The question that a baseline answered."""
        return self.rows if self.rows is not None and baseline.endswith(ROWS) else self.problem


@dataclass(frozen=True, eq=False)
class ChannelTask(LayerTask):
    """Plans one layer when called with its absolute id."""

    settings: Settings

    def __call__(self, layer: int) -> LayerPlan:
        """Plan the layer; see `plan_channels`."""
        problem = self._pose(layer, self.settings)
        stop = self.interrupt or threading.Event()
        found = search_layer(problem, self.search, stop, f"layer {layer}")
        if self.settings.layout == "rows":
            return LayerPlan(found.result, found.baselines, problem)
        rows = self._pose(layer, as_published(self.settings))
        published = run_baselines(rows, self.search.seed, stop, _AS_PUBLISHED)
        more = {name + ROWS: result for name, result in published.items()}
        return LayerPlan(found.result, {**found.baselines, **more}, problem, rows)

    def _pose(self, layer: int, settings: Settings) -> ChannelProblem:
        return channel_problem(
            self.model, self.platform, self.profile, layer, held_out=self.held_out, settings=settings
        )


def as_published(settings: Settings) -> Settings:
    """Return the same settings with whole outputs per bank."""
    return dataclasses.replace(settings, layout="rows")


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

    Where the layout inside a group is free, the published procedures are also run in their own, whole outputs
    per bank: their results are the baselines whose names end in `ROWS`.

    Layers are independent and run `jobs` at a time in threads, since the kernels release the GIL.
    `on_layer` is called in this thread as layers end. When `interrupt` is set, running searches end with the
    best they have and layers not yet begun get their best baseline. Raises NothingFound where a layer has
    no feasible placement within the budget, and whatever `channel_problem` and `solve` raise.
    """
    task = ChannelTask(
        model, platform, profile, held_out, search or Search(), settings or Settings(), interrupt
    )
    return each_layer(task, profile.layers if layers is None else layers, jobs, on_layer)
