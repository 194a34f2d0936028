"""Timelines as Chrome trace events: JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process per timeline, one thread per resource; a task that holds several resources appears on each.
Times are in microseconds, as the format asks, rounded to whole nanoseconds, the viewers' resolution.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import write_text

if TYPE_CHECKING:
    from .timeline import Timeline


def trace_events(timelines: Mapping[str, Timeline]) -> dict[str, Any]:
    """Return the trace as JSON-able data: names of processes and threads (ph M), then tasks (ph X).

    Tasks that take less than half a nanosecond are left out.
    """
    events: list[dict[str, Any]] = []
    for pid, (name, timeline) in enumerate(timelines.items(), start=1):
        events.append(_name("process_name", name, pid))
        for tid, resource in enumerate(timeline.graph.resources, start=1):
            events.append(_name("thread_name", resource, pid, tid))
            events.append(
                {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
            )
        events += _tasks(timeline, pid)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def write_chrome_trace(timelines: Mapping[str, Timeline], path: str | Path) -> None:
    """Write `trace_events` to a file, atomically. Raises BadInput where it cannot be written."""
    write_text(path, json.dumps(trace_events(timelines), separators=(",", ":"), allow_nan=False) + "\n")


def _tasks(timeline: Timeline, pid: int) -> Iterator[dict[str, Any]]:
    graph, critical = timeline.graph, set(timeline.critical_path)
    for task in timeline.order:
        start_ns, end_ns = round(timeline.start_s[task] * 1e9), round(timeline.end_s[task] * 1e9)
        if end_ns == start_ns:
            continue
        for resource in graph.holds[task]:
            yield {
                "ph": "X",
                "name": graph.names[task],
                "cat": graph.kinds[task],
                "ts": start_ns / 1000,
                "dur": (end_ns - start_ns) / 1000,
                "pid": pid,
                "tid": resource + 1,
                "args": {"critical": task in critical},
            }


def _name(what: str, name: str, pid: int, tid: int | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "M", "name": what, "pid": pid, "args": {"name": name}}
    return event if tid is None else event | {"tid": tid}
