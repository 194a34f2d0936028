"""`moeplan plan` on a PIM machine: experts to channel groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layers import Family, plan_by_layers

if TYPE_CHECKING:
    from ..placement.channels.document import ChannelPlan
    from ..placement.channels.problem import Settings
    from .planning import Request
    from .traffic import Traffic


def plan_channels_of(request: Request, settings: Settings, traffic: Traffic | None = None) -> ChannelPlan:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then."""
    from ..placement.channels.document import ChannelLayer, assemble, planned_entry
    from ..placement.channels.planning import ChannelTask

    family = Family("channels", ChannelTask, planned_entry, ChannelLayer, assemble)
    return plan_by_layers(family, request, settings, traffic)
