"""`moeplan plan` on a near-memory machine: experts to the cores of its dies."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from .planning import Request, deliver, progress
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..placement.cores.document import CorePlan
    from ..placement.cores.problem import Settings
    from .traffic import Traffic


def plan_cores_of(request: Request, settings: Settings, traffic: Traffic | None = None) -> CorePlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.cores.document import plan_file
    from ..placement.cores.planning import plan_cores

    model, steps = request.needed_model(), traffic or request.traffic()
    layers = steps.layers(request.layers)
    begun = time.perf_counter()
    with keep_best_on_signals() as interrupt:
        with progress(len(layers), visible=not request.quiet) as on_layer:
            plans = plan_cores(
                model,
                request.platform,
                steps.profile,
                steps.held_out,
                search=request.search,
                settings=settings,
                layers=layers,
                jobs=min(request.jobs, len(layers)),
                on_layer=on_layer,
                interrupt=interrupt,
            )
        document = plan_file(
            model,
            request.platform,
            steps.profile,
            steps.held_out,
            plans,
            search=request.search,
            settings=settings,
            source=steps.sources,
            split=steps.split,
            elapsed_s=time.perf_counter() - begun,
        )
        deliver(document, request)
    return document


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
