"""`moeplan plan` on a near-memory machine: experts to the cores of its dies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .layers import Family, plan_by_layers

if TYPE_CHECKING:
    from ..placement.cores.document import CorePlan
    from ..placement.cores.problem import Settings
    from .planning import Request


def plan_cores_of(request: Request, settings: Settings) -> CorePlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.cores.document import CoreLayer, assemble, planned_entry
    from ..placement.cores.planning import CoreTask

    family = Family("cores", CoreTask, planned_entry, CoreLayer, assemble)
    return plan_by_layers(family, request, settings, refuse=lambda task: task.layout)


def core_answer(document: CorePlan) -> dict[str, Any]:
    """Return what `--json` says of cores beside what it says of every family: means over layers."""
    layers = document.layers
    return {
        "shards": document.platform.shards,
        "dies": document.platform.dies,
        **{
            name: math.fsum(getattr(entry.use, name) for entry in layers) / len(layers)
            for name in ("ideal_mfu", "occupancy", "actual_mfu", "rounds")
        },
        "rounds_bound": math.fsum(entry.least_rounds for entry in layers) / len(layers),
    }
