"""What `moeplan timeline` prints and draws of an executed layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import show, table

if TYPE_CHECKING:
    from ..placement.partition.layer import PartitionLayer
    from ..placement.partition.problem import Times
    from ..placement.problem import Bound
    from ..schedule.layer import Estimate, LayerWork
    from ..schedule.optimal import Optimum
    from ..schedule.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Row:
    """One mode: its list schedule, and the search for the best order where that was asked for."""

    mode: str
    timeline: Timeline
    bound: Bound
    optimum: Optimum | None


@dataclass(frozen=True, eq=False)
class Executed:
    """A layer, what max(T_comm, T_gpu, T_pim) expects of it and of its tasks, and its timelines by mode.

    `step`: the decode step of the trace, None where tokens were counted.
    """

    layer: PartitionLayer
    step: int | None
    work: LayerWork
    expected: Times
    of_tasks: Estimate
    rows: tuple[Row, ...]


def write_pictures(found: Executed, svg: Path | None, chrome: Path | None) -> None:
    """Write the pictures that were asked for."""
    from ..common.files import write_text
    from ..schedule.chrome_trace import write_chrome_trace
    from ..schedule.gantt import gantt_svg

    drawn = _drawn(found.rows)
    if svg is not None:
        write_text(svg, gantt_svg(drawn, title=_title(found), expected_s=found.expected.total_s))
    if chrome is not None:
        write_chrome_trace(drawn, chrome)


def _title(found: Executed) -> str:
    """What was executed, in a line."""
    layer = found.layer
    step = "" if found.step is None else f", step {found.step}"
    return f"{layer.model.name} on {layer.platform.name}, layer {layer.layer}{step}"


def answer(found: Executed) -> dict[str, Any]:
    """What `--json` prints of the split, of what is expected, and of every timeline."""
    work, expected = found.work, found.expected
    return {
        "gpu_experts": work.gpu.ids.tolist(),
        "pim_experts": work.pim.ids.tolist(),
        "expected": _parts(expected.comm_s, expected.gpu_s, expected.pim_s),
        "expected_of_tasks": _parts(*found.of_tasks),
        "timelines": [_timeline(row, expected.total_s) for row in found.rows],
    }


def _drawn(rows: tuple[Row, ...]) -> dict[str, Timeline]:
    """Return the timelines by name; best orders only where they gain something."""
    drawn = {}
    for row in rows:
        drawn[row.mode] = row.timeline
        if row.optimum and row.optimum.timeline.makespan_s < row.timeline.makespan_s:
            drawn[f"{row.mode}, best order"] = row.optimum.timeline
    return drawn


def _parts(t_comm_s: float, t_gpu_s: float, t_pim_s: float) -> dict[str, float]:
    total_s = max(t_comm_s, t_gpu_s, t_pim_s)
    return {"t_comm_s": t_comm_s, "t_gpu_s": t_gpu_s, "t_pim_s": t_pim_s, "total_s": total_s}


def _timeline(row: Row, expected_s: float) -> dict[str, Any]:
    line, best = row.timeline, row.optimum
    return {
        "mode": row.mode,
        **_length(line, row.bound, expected_s),
        "busy_share": line.busy_share,
        "critical_path": [
            {
                "task": line.graph.names[task],
                "kind": line.graph.kinds[task],
                "start_s": float(line.start_s[task]),
                "end_s": float(line.end_s[task]),
            }
            for task in line.critical_path
        ],
        "optimal": best
        and {**_length(best.timeline, best.bound, expected_s), "list_gap": best.list_gap, "stop": best.stop},
    }


def _length(line: Timeline, bound: Bound, expected_s: float) -> dict[str, Any]:
    from ..schedule.optimal import gap_to

    return {
        "makespan_s": line.makespan_s,
        "over_expected": line.makespan_s / expected_s - 1.0 if expected_s else None,
        "bound_s": bound.value_s,
        "bound_by": bound.by,
        "gap": gap_to(bound, line),
    }


def show_executed(found: Executed) -> None:
    """Print the timelines for people: a table, and bars by resource."""
    from ..hardware.units import format_s
    from ..schedule.gantt import gantt_text

    drawn, work, expected = _drawn(found.rows), found.work, found.expected
    bounds = {row.mode: row.bound for row in found.rows}
    lines = []
    for name, line in drawn.items():
        length = _length(line, bounds[name.partition(",")[0]], expected.total_s)
        over = length["over_expected"]
        over_text = "-" if over is None else f"{over:+.1%}"
        times = format_s(line.makespan_s), over_text, format_s(length["bound_s"]), f"{length['gap']:.2%}"
        lines.append((name, *times, _critical(line)))
    show(
        _title(found),
        f"{work.gpu.ids.size} experts on the GPU, {work.pim.ids.size} on PIM",
        f"max(...) = {_maximum(expected.comm_s, expected.gpu_s, expected.pim_s)}",
        f"the same of the tasks below: {_maximum(*found.of_tasks)}",
        table(("executed", "time", "over max(...)", "bound", "gap", "critical path"), lines),
        gantt_text(drawn),
    )


def _maximum(t_comm_s: float, t_gpu_s: float, t_pim_s: float) -> str:
    from ..hardware.units import format_s

    parts = f"T_comm {format_s(t_comm_s)}, T_gpu {format_s(t_gpu_s)}, T_pim {format_s(t_pim_s)}"
    return f"{format_s(max(t_comm_s, t_gpu_s, t_pim_s))} ({parts})"


def _critical(line: Timeline) -> str:
    """Say what the critical path is made of, the most first."""
    spent: dict[str, float] = {}
    for task in line.critical_path:
        kind = line.graph.kinds[task]
        spent[kind] = spent.get(kind, 0.0) + float(line.graph.duration_s[task])
    most = sorted(spent.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {seconds / line.makespan_s:.0%}" for kind, seconds in most if seconds)
