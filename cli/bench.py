"""`moeplan bench`: how planning itself behaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import NothingFound, UsageError
from . import parameters
from .console import note, show, show_json, table
from .options import check_outputs
from .verbs import Verb
from .watching import count

if TYPE_CHECKING:
    from ..benchmarks.scale.extrapolate import Beyond
    from ..benchmarks.scale.growth import Growth
    from ..benchmarks.scale.point import Axis, Finished, Point
    from ..benchmarks.scale.stated import Kept

_WHAT, _OUTPUT = "What to measure", "What to write"
What = Literal["tokens", "experts", "layers", "sites", "steps", "all", "stated"]

_What = Annotated[
    What,
    typer.Option(help="Axis to go along (all: every one), or the stated sizes.", rich_help_panel=_WHAT),
]
_Quick = Annotated[bool, typer.Option("--quick", help="The smaller sizes only.", rich_help_panel=_WHAT)]
_Extrapolate = Annotated[
    bool, typer.Option("--extrapolate", help="Also what lies far beyond the sizes.", rich_help_panel=_WHAT)
]
_Svg = Annotated[Path | None, parameters.picture(_OUTPUT)]
_Output = Annotated[Path | None, parameters.output("Folder of measured points; resumes it.", _OUTPUT)]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def app() -> typer.Typer:
    """The verbs of `moeplan bench`."""
    verbs = typer.Typer(no_args_is_help=True)
    verbs.callback()(lambda: None)  # one verb would otherwise be the command itself
    verbs.command(cls=Verb)(scale)
    return verbs


def scale(
    what: _What = "all",
    quick: _Quick = False,
    extrapolate: _Extrapolate = False,
    svg: _Svg = None,
    output: _Output = None,
    json: _Json = False,
) -> None:
    """Measure how time and memory grow with tokens, experts, layers, sites and steps.

    Every point runs in a process of its own. Times are of the processor, so that other work on the machine
    disturbs them little; memory is what the work takes beside its input. Exponents are fitted by least
    squares on logarithms, with their standard error; `last` is the exponent of the last step alone.
    """
    check_outputs({"--svg": svg}, {})
    if what == "stated":
        refused = {"--quick": quick, "--extrapolate": extrapolate, "--svg": svg, "--output": output}
        for name, given in refused.items():
            if given:
                raise UsageError(f"{name} says nothing about stated sizes", where=name, fix="leave it out")
        _stated(json)
        return
    from ..benchmarks.scale.extrapolate import beyond
    from ..benchmarks.scale.grid import points
    from ..benchmarks.scale.growth import growths
    from ..benchmarks.scale.picture import draw
    from ..benchmarks.scale.point import AXES, Measured
    from ..benchmarks.scale.store import Store

    axes: tuple[Axis, ...] = AXES if what == "all" else (what,)
    finished = _measure(points(axes, quick=quick), Store(output) if output is not None else None)
    if not any(isinstance(f.outcome, Measured) for f in finished):
        raise NothingFound("no point could be measured", where=_failures(finished)[0])
    far = beyond(finished) if extrapolate else []
    if svg is not None:
        draw(finished, svg)
    if json:
        show_json(_answer(finished, growths(finished), far, svg))
        return
    _show(finished, growths(finished))
    if extrapolate:
        _show_beyond(far)
    if svg is not None:
        show(f"picture: {svg}")


def _measure(points: list[Point], store: Any) -> list[Finished]:
    from ..benchmarks.scale.runner import run

    with count("measuring", len(points)) as on_point:
        return run(points, lambda finished: on_point(finished.point.name), store=store)


def _answer(
    finished: list[Finished], grown: list[Growth], far: list[Beyond], svg: Path | None
) -> dict[str, Any]:
    from ..benchmarks.scale.growth import point_dict

    return {
        "points": [point_dict(f) for f in finished],
        "growth": [growth.as_dict() for growth in grown],
        "beyond": [b.as_dict() for b in far],
        "svg": svg and str(svg),
    }


def _show(finished: list[Finished], grown: list[Growth]) -> None:
    from ..benchmarks.scale.growth import figure
    from ..benchmarks.scale.point import Measured
    from ..hardware.units import format_bytes, format_s

    measured = ((f.point, f.outcome) for f in finished if isinstance(f.outcome, Measured))
    rows = (
        (
            point.axis, point.family, f"{point.size:,}", format_s(outcome.cpu_s),
            ", ".join(f"{name} {format_s(s)}" for name, s in outcome.phases_s.items()),
            format_bytes(figure(outcome, "memory")), format_bytes(outcome.peak_bytes),
        )
        for point, outcome in measured
    )  # fmt: skip
    show(table(("axis", "family", "size", "time", "phases", "memory", "peak of process"), rows, left=2))
    cells = (
        (
            g.axis, g.family, g.what, f"{g.fit.exponent:.2f}",
            "-" if g.fit.error is None else f"{g.fit.error:.2f}", f"{g.fit.last:.2f}",
            "faster than the work" if g.faster else "", g.reason,
        )
        for g in grown
    )  # fmt: skip
    columns = ("axis", "family", "what", "exponent", "+-", "last", "verdict", "why")
    show(table(columns, cells, left=3, title="growth"))
    for line in _failures(finished):
        note(line)


def _show_beyond(far: list[Beyond]) -> None:
    from ..benchmarks.scale.extrapolate import block

    if not far:
        note("nothing to extrapolate: that takes the axes tokens and sites")
    for line in block(far):
        show(line)


def _failures(finished: list[Finished]) -> list[str]:
    from ..benchmarks.scale.point import Failed

    return [f"{f.point.name}: {f.outcome.reason}" for f in finished if isinstance(f.outcome, Failed)]


def _stated(json: bool) -> None:
    from ..benchmarks.scale.stated import STATED, measure

    with count("measuring", len(STATED)) as on_point:
        kept = measure(lambda k: on_point(k.stated.name))
    if json:
        show_json({"stated": [k.as_dict() for k in kept]})
        return
    show(table(("family", "size", "stated min", "taken", "processor", "memory", "2 workers", "load"),
               (_stated_row(k) for k in kept), left=2))  # fmt: skip
    if any(k.waiting > 0.5 for k in kept):
        note("the machine had other work: times by the wall clock, and what two workers gain, say little")


def _stated_row(k: Kept) -> tuple[str, ...]:
    from ..hardware.units import format_bytes

    verdict = "kept" if k.whole.elapsed_s <= 60.0 * k.stated.minutes else "missed"
    return (
        k.stated.name, k.stated.title, f"{k.stated.minutes:g}",
        f"{k.whole.elapsed_s / 60:.2f} min, {verdict}",
        f"{k.whole.cpu_s / 60:.2f} min", format_bytes(k.whole.peak_bytes), f"{k.speedup:.2f} x",
        f"{k.waiting:.1f}",
    )  # fmt: skip
