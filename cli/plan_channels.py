"""`moeplan plan` on a PIM machine: experts to channel groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .planning import Request, deliver, progress
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..placement.channels.document import ChannelPlan
    from ..placement.channels.problem import Settings
    from .traffic import Traffic


def plan_channels_of(request: Request, settings: Settings, traffic: Traffic | None = None) -> ChannelPlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.channels.document import plan_file
    from ..placement.channels.planning import plan_channels

    model, steps = request.needed_model(), traffic or request.traffic()
    layers = steps.layers(request.layers)
    begun = time.perf_counter()
    with keep_best_on_signals() as interrupt:
        with progress(len(layers), visible=not request.quiet) as on_layer:
            plans = plan_channels(
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
