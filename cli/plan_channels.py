"""`moeplan plan` on a PIM machine: experts to channel groups."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from .layers import finish_work, missing_layers, run_layers
from .planning import Request, deliver, progress
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..placement.channels.document import ChannelPlan
    from ..placement.channels.planning import LayerTask
    from ..placement.channels.problem import Settings
    from .traffic import Traffic


def plan_channels_of(request: Request, settings: Settings, traffic: Traffic | None = None) -> ChannelPlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.channels.document import ChannelLayer, assemble, planned_entry
    from ..placement.channels.planning import LayerTask

    model, steps = request.needed_model(), traffic or request.traffic()
    layers = steps.layers(request.layers)

    def task(stop: threading.Event | None) -> LayerTask:
        return LayerTask(
            model, request.platform, steps.profile, steps.held_out, request.search, settings, stop
        )

    begun = time.perf_counter()
    inputs = request.inputs("channels", settings, steps.profile, steps.held_out)
    with keep_best_on_signals() as interrupt:
        with progress(len(layers), visible=not request.quiet) as on_layer:
            entries = run_layers(
                request, layers, lambda stop: partial(planned_entry, task(stop)), ChannelLayer, inputs,
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
