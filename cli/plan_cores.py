"""`moeplan plan` on a near-memory machine: experts to the cores of its dies."""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .layers import finish_work, missing_layers, run_layers
from .planning import Request, deliver, progress
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..placement.cores.document import CorePlan
    from ..placement.cores.problem import Settings
    from .traffic import Traffic


def plan_cores_of(request: Request, settings: Settings, traffic: Traffic | None = None) -> CorePlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.cores.document import CoreLayer, assemble, planned_entry
    from ..placement.cores.planning import LayerTask

    model, steps = request.needed_model(), traffic or request.traffic()
    layers = steps.layers(request.layers)

    def task(stop: threading.Event | None) -> LayerTask:
        return LayerTask(
            model, request.platform, steps.profile, steps.held_out, request.search, settings, stop
        )

    _ = task(None).layout  # refuses what cannot be before the work begins
    begun = time.perf_counter()
    inputs = request.inputs("cores", settings, steps.profile, steps.held_out)
    with keep_best_on_signals() as interrupt:
        with progress(len(layers), visible=not request.quiet) as on_layer:
            entries = run_layers(
                request, layers, lambda stop: partial(planned_entry, task(stop)), CoreLayer, inputs,
                interrupt, on_layer,
            )  # fmt: skip
        document = assemble(
            task(None),
            entries,
            source=steps.sources,
            split=steps.split,
            elapsed_s=time.perf_counter() - begun,
            remarks=missing_layers(layers, entries),
        )
        deliver(document, request)
    finish_work(request, layers, entries)
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
