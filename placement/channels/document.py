"""The plan of channels as a file, from planned layers, and back from the file to decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ...common.errors import BadInput
from ...common.spec import Spec
from ..plan import BaselineEntry, LayerEntry, Machine, ModelEntry, PlanFile, Split, Totals
from ..planning import Search
from ..summary import (
    baseline_fields,
    layer_fields,
    machine_entry,
    plan_fields,
    total_fields,
)
from .planning import ChannelTask, LayerPlan
from .problem import ChannelProblem, Decision, Settings, layer_capacity_bytes

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel


class ExpertPlace(Spec):
    """Where one logical expert lives."""

    tp: int = Field(ge=1, description="tensor-parallel factor: number of sites")
    sites: tuple[int, ...] = Field(description="site ids, first core first")


class ChannelBaseline(BaselineEntry):
    """What a published heuristic gets, with the load of every site."""

    held_out_site_load_s: tuple[float, ...] = Field(description="[N] mean PIM seconds of every site")


class ChannelLayer(LayerEntry):
    """Where the experts of one MoE layer live."""

    experts: tuple[ExpertPlace, ...] = Field(description="[E] by logical expert id")
    site_load_s: tuple[float, ...] = Field(description="[N] mean PIM seconds of every site on the profile")
    held_out_site_load_s: tuple[float, ...] = Field(description="[N] the same on held-out steps")
    baselines: Mapping[str, ChannelBaseline]


class ChannelTotals(Totals):
    """Sums over the planned layers."""

    baselines: Mapping[str, ChannelBaseline]


class ChannelPlan(PlanFile):
    """Experts of every MoE layer on the channel sites of a machine."""

    family: Literal["channels"] = "channels"
    model: ModelEntry
    platform: Machine
    totals: ChannelTotals
    layers: tuple[ChannelLayer, ...]


def plan_file(
    model: MoEModel,
    platform: Platform,
    profile: Load,
    held_out: Load | None,
    plans: list[LayerPlan],
    *,
    search: Search,
    settings: Settings,
    source: tuple[str, str] = ("", ""),
    split: tuple[Split, float] = ("whole", 0.0),
    elapsed_s: float,
) -> ChannelPlan:
    """Assemble the file.

    `source` says where profile and held-out steps come from, `split` how one source was split into both.
    """
    return assemble(
        ChannelTask(model, platform, profile, held_out, search, settings),
        [layer_entry(plan) for plan in plans],
        source=source,
        split=split,
        elapsed_s=elapsed_s,
    )


def planned_entry(task: ChannelTask, layer: int) -> ChannelLayer:
    """Plan a layer and return its entry, which travels and is kept more easily than the plan."""
    return layer_entry(task(layer))


def assemble(
    task: ChannelTask,
    layers: Sequence[ChannelLayer],
    *,
    source: tuple[str, str],
    split: tuple[Split, float],
    elapsed_s: float,
    remarks: tuple[str, ...] = (),
) -> ChannelPlan:
    """Put entries of layers, planned by `task`, together; `remarks` are further warnings."""
    totals = _totals(layers)
    fields = plan_fields(
        task, totals, layers, source=source, split=split, elapsed_s=elapsed_s, remarks=remarks
    )
    capacity_bytes = layer_capacity_bytes(task.model, task.platform)
    return ChannelPlan(platform=machine_entry(task.platform, capacity_bytes), **fields)


def decisions(plan: ChannelPlan, problems: Mapping[int, ChannelProblem]) -> dict[int, Decision]:
    """Rebuild the decision of every layer of a plan. Raises BadInput where one is not feasible."""
    found = {}
    for entry in plan.layers:
        problem = problems[entry.layer]
        decision = problem.decision_from_sites([place.sites for place in entry.experts])
        fault = problem.check(decision)
        if fault is not None:
            raise BadInput(f"the placement of layer {entry.layer} is not feasible: {fault}")
        found[entry.layer] = decision
    return found


def layer_entry(plan: LayerPlan) -> ChannelLayer:
    """Return a planned layer as the file holds it."""
    problem = plan.problem
    held_out = problem.held_out
    return ChannelLayer(
        **layer_fields(problem.layer, plan),
        experts=tuple(
            ExpertPlace(tp=len(sites), sites=sites)
            for sites in (problem.sites_of(plan.decision, e) for e in range(problem.experts))
        ),
        site_load_s=tuple(problem.site_load_s(plan.decision).tolist()),
        held_out_site_load_s=_held_out_load(held_out, plan.decision),
        baselines={
            name: ChannelBaseline(
                **baseline_fields(baseline),
                held_out_site_load_s=_held_out_load(plan.posed(name).held_out, baseline.decision),
            )
            for name, baseline in plan.baselines.items()
        },
    )


def _held_out_load(held_out: ChannelProblem | None, decision: Decision | None) -> tuple[float, ...]:
    return tuple(held_out.site_load_s(decision).tolist()) if held_out and decision else ()


def _totals(layers: Sequence[ChannelLayer]) -> ChannelTotals:
    fields = total_fields(layers)
    baselines = {
        name: ChannelBaseline(
            profile=total.profile,
            held_out=total.held_out,
            held_out_site_load_s=_add_loads(entry.baselines[name].held_out_site_load_s for entry in layers),
        )
        for name, total in fields["baselines"].items()
    }
    return ChannelTotals(**{**fields, "baselines": baselines})


def _add_loads(loads: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) for column in zip(*loads, strict=False))
