"""The plan of cores as a file, from planned layers, and back from the file to decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
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
from .layout import expert_bytes, with_side
from .planning import CoreTask, LayerPlan
from .problem import CoreProblem, Decision, Settings

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .rounds import Cascade


class Utilisation(Spec):
    """Where the peak goes: ReXpert equation 2, means over steps."""

    ideal_mfu: float = Field(gt=0, description="tokens over room in the issued jobs")
    occupancy: float = Field(gt=0, description="jobs over groups and rounds")
    actual_mfu: float = Field(gt=0, description="mean of the product")
    rounds: float = Field(gt=0, description="passes of a decode step")


class CoreBaseline(BaselineEntry):
    """What a published heuristic gets, with where its peak goes."""

    use: Utilisation | None = Field(description="on held-out steps; on the profile where nothing is held out")


class CoreLayer(LayerEntry):
    """Where the experts of one MoE layer live."""

    places: tuple[int, ...] = Field(
        description="[E] core of every logical expert; unit where nothing is pooled: core * groups + unit"
    )
    core_jobs: tuple[float, ...] = Field(description="[N] mean jobs of every core in a profiled step")
    use: Utilisation = Field(description="on held-out steps; on the profile where nothing is held out")
    least_rounds: float = Field(description="mean rounds of those steps that no placement gets below")
    baselines: Mapping[str, CoreBaseline]


class CoreDie(Machine):
    """The die that every layer is laid on, and how experts are cut."""

    groups: int = Field(ge=1, description="units of a core")
    core_experts: int = Field(ge=1, description="experts of a layer that a core takes")
    unit_experts: int = Field(ge=1, description="experts of a layer that a unit takes")
    shards: int = Field(ge=1, description="dies that share every expert")
    dies: int = Field(ge=1, description="dies of the whole model, or of the pool")
    round_s: float = Field(gt=0, description="one pass over a shard")


class CorePlan(PlanFile):
    """Experts of every MoE layer on the cores of near-memory dies."""

    family: Literal["cores"] = "cores"
    model: ModelEntry
    platform: CoreDie
    layers: tuple[CoreLayer, ...]


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
) -> CorePlan:
    """Assemble the file.

    `source` says where profile and held-out steps come from, `split` how one source was split into both.
    """
    return assemble(
        CoreTask(model, platform, profile, held_out, search, settings),
        [layer_entry(plan) for plan in plans],
        source=source,
        split=split,
        elapsed_s=elapsed_s,
    )


def planned_entry(task: CoreTask, layer: int) -> CoreLayer:
    """Plan a layer and return its entry, which travels and is kept more easily than the plan."""
    return layer_entry(task(layer))


def assemble(
    task: CoreTask,
    layers: Sequence[CoreLayer],
    *,
    source: tuple[str, str],
    split: tuple[Split, float],
    elapsed_s: float,
    remarks: tuple[str, ...] = (),
) -> CorePlan:
    """Put entries of layers, planned by `task`, together; `remarks` are further warnings."""
    totals = Totals(**total_fields(layers))
    fields = plan_fields(
        task, totals, layers, source=source, split=split, elapsed_s=elapsed_s, remarks=remarks
    )
    return CorePlan(platform=_die(task), **fields)


def decisions(plan: CorePlan, problems: Mapping[int, CoreProblem]) -> dict[int, Decision]:
    """Rebuild the decision of every layer of a plan. Raises BadInput where one is not feasible."""
    found = {}
    for entry in plan.layers:
        decision = Decision(np.array(entry.places, dtype=np.int32))
        fault = problems[entry.layer].check(decision)
        if fault is not None:
            raise BadInput(f"the placement of layer {entry.layer} is not feasible: {fault}")
        found[entry.layer] = decision
    return found


def layer_entry(plan: LayerPlan) -> CoreLayer:
    """Return a planned layer as the file holds it."""
    problem = plan.problem
    shown = problem.held_out or problem
    jobs, use, least = figures(problem, plan.decision)
    return CoreLayer(
        **layer_fields(problem.layer, plan),
        places=tuple(plan.decision.place_of.tolist()),
        core_jobs=jobs,
        use=use,
        least_rounds=least,
        baselines={
            name: CoreBaseline(
                **baseline_fields(baseline),
                use=_use(shown.cascade(baseline.decision)) if baseline.decision is not None else None,
            )
            for name, baseline in plan.baselines.items()
        },
    )


def figures(problem: CoreProblem, decision: Decision) -> tuple[tuple[float, ...], Utilisation, float]:
    """Measure what a layer's entry says beside its scores: `core_jobs`, `use` and `least_rounds`."""
    shown = problem.held_out or problem
    return (
        tuple(problem.load(decision).tolist()),
        _use(shown.cascade(decision)),
        float(shown.least[: shown.steps].mean()),
    )


def _use(cascade: Cascade) -> Utilisation:
    return Utilisation(
        ideal_mfu=cascade.ideal_mfu,
        occupancy=cascade.occupancy,
        actual_mfu=cascade.actual_mfu,
        rounds=cascade.rounds,
    )


def _die(task: CoreTask) -> CoreDie:
    layout = task.layout
    shard_bytes = expert_bytes(task.model) / layout.shards
    machine = machine_entry(with_side(task.platform, task.settings.side), layout.core_experts * shard_bytes)
    return CoreDie(
        **machine.model_dump(),
        groups=layout.groups,
        core_experts=layout.core_experts,
        unit_experts=layout.unit_experts,
        shards=layout.shards,
        dies=layout.dies,
        round_s=layout.round_s,
    )
