"""How traces and counts are described to people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .options import show_layers

if TYPE_CHECKING:
    from ..workload.counts import CountLoad
    from ..workload.stream import TraceStream
    from ..workload.trace import RoutingTrace


def summary(trace: RoutingTrace | TraceStream, output: Path) -> str:
    """Where a trace was written, and what it holds."""
    return f"trace: {output}\n{content(trace)}"


def content(trace: RoutingTrace | TraceStream, requests: int | None = None) -> str:
    """What a trace holds, in one line; `requests` are counted where they are not given."""
    if requests is None:
        requests = _requests(trace)
    return (
        f"{trace.tokens} tokens of {requests} requests, layers {show_layers(trace.layers)} of {trace.model}, "
        f"{trace.num_experts} experts, top-{trace.top_k}"
    )


def _requests(trace: RoutingTrace | TraceStream) -> int:
    import numpy as np

    from ..workload.scan import request_lengths
    from ..workload.trace import RoutingTrace

    if isinstance(trace, RoutingTrace):
        return int(np.unique(trace.request).size)
    return int(request_lengths(trace)[0].size)


def count_summary(load: CountLoad, output: Path) -> str:
    """Where counts were written, and what they hold."""
    return (
        f"counts: {output}\n{len(load.windows)} windows, layers {show_layers(load.layers)} of {load.model}, "
        f"{load.num_experts} experts, {load.total[0].sum():.0f} choices in layer {load.layers[0]}"
    )
