"""`moeplan compare`: solvers beside each other on frozen instances."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common.errors import UsageError, did_you_mean
from . import parameters
from .console import note, show, show_json, table, warn
from .options import check_outputs, parse_budget
from .planning import cores
from .signals import EXIT_INTERRUPTED, keep_best_on_signals
from .watching import count

if TYPE_CHECKING:
    from ..benchmarks.compare.cell import Cell, Finished
    from ..benchmarks.compare.instances import Instance
    from ..benchmarks.compare.runner import Limits
    from ..benchmarks.compare.statistics import Row, Standing
    from ..benchmarks.compare.store import Store

_WHAT, _HOW, _OUTPUT = "What to compare", "How to run", "What to write"

_Suite = Annotated[
    Literal["quick", "full"], typer.Option(help="Set of frozen instances.", rich_help_panel=_WHAT)
]
_Families = Annotated[
    list[str] | None, typer.Option(help="Only these families; repeatable.", rich_help_panel=_WHAT)
]
_Instances = Annotated[
    list[str] | None, typer.Option(help="Only these instances; repeatable.", rich_help_panel=_WHAT)
]
_Solvers = Annotated[
    list[str] | None, typer.Option(help="Only these solvers; repeatable.", rich_help_panel=_WHAT)
]
_Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Seeds of every search.", rich_help_panel=_WHAT)]

_Budget = Annotated[str, typer.Option(help="Of every cell: 2s, 20000it, or both.", rich_help_panel=_HOW)]
_Memory = Annotated[
    str, typer.Option(help="Address space of a cell's process; 0 for no limit.", rich_help_panel=_HOW)
]
_Jobs = Annotated[int | None, parameters.jobs("Cells", _HOW)]

_Output = Annotated[Path, parameters.output("Folder of finished cells; resumes it.", _OUTPUT)]
_Report = Annotated[Path | None, parameters.page(_OUTPUT)]
_BestKnown = Annotated[
    Path | None,
    typer.Option(help="Best-known file to improve (read and written).", rich_help_panel=_OUTPUT),
]
_Json = Annotated[bool, parameters.json(_OUTPUT)]


def compare(
    suite: _Suite = "quick",
    family: _Families = None,
    instance: _Instances = None,
    solver: _Solvers = None,
    seeds: _Seeds = 2,
    budget: _Budget = "1s",
    memory: _Memory = "8 GiB",
    jobs: _Jobs = None,
    output: _Output = Path("moeplan-compare"),
    report: _Report = None,
    best_known: _BestKnown = None,
    json: _Json = False,
) -> None:
    """Run every solver on every instance with every seed, each cell in its own process.

    Finished cells are kept: the same command again runs only what is missing or failed. Solvers are ranked on
    held-out traffic where an instance has any; gaps are against the strongest bound that any of them proved.
    """
    from ..benchmarks.compare.best_known import improved, read_best_known, write_best_known
    from ..benchmarks.compare.page import render
    from ..benchmarks.compare.runner import Limits, grid
    from ..benchmarks.compare.store import Store
    from ..common.files import write_text
    from ..hardware.units import BYTES, parse

    check_outputs({"--best-known": best_known, "--report": report}, {})
    wanted = _instances(suite, family or [], instance or [])
    cells = grid(wanted, _solvers(solver or [], wanted), range(seeds), parse_budget(budget))
    limits = Limits(0 if memory == "0" else int(parse(memory, BYTES)), jobs or cores())
    known = read_best_known() if best_known is None else read_best_known(best_known)
    finished, stopped = _run(cells, Store(output), limits)
    if best_known is not None:
        known = improved(known, finished)
        write_best_known(known, best_known)
    if report is not None:
        write_text(report, render(finished, known, suite))
    _answer(finished, known, output, json, len(cells))
    if stopped:
        raise typer.Exit(EXIT_INTERRUPTED)


def _instances(suite: str, families: list[str], names: list[str]) -> list[Instance]:
    from ..benchmarks.compare.instances import find
    from ..benchmarks.compare.instances import suite as of_suite
    from ..placement.registry import families as known

    for name in families:
        if name not in known():
            raise UsageError(f"there is no family {name!r}", fix=did_you_mean(name, known()))
    chosen = [find(name) for name in names] or list(of_suite(suite))
    found = [instance for instance in chosen if not families or instance.family in families]
    if not found:
        raise UsageError("no instance is left to compare on", fix="name other families or instances")
    return found


def _solvers(names: list[str], instances: list[Instance]) -> list[str]:
    from ..placement.registry import solvers_of

    known = {name for instance in instances for name in solvers_of(instance.family)}
    for name in names:
        if name not in known:
            raise UsageError(f"no solver {name!r} for these instances", fix=did_you_mean(name, known))
    return names


def _run(cells: list[Cell], store: Store, limits: Limits) -> tuple[list[Finished], bool]:
    from ..benchmarks.compare.runner import run

    waiting = len(store.missing(cells))
    if store.damaged:
        one = len(store.damaged) == 1
        warn(f"{len(store.damaged)} damaged {'cell runs' if one else 'cells run'} again")
    if waiting < len(cells):
        note(f"{len(cells) - waiting} of {len(cells)} cells are in {store.folder} already")
    with (
        keep_best_on_signals() as interrupt,
        count("comparing", waiting) as on_cell,
    ):
        finished = run(
            cells, store, limits, interrupt=interrupt,
            on_cell=lambda ended: on_cell(f"{ended.cell.instance}, {ended.cell.solver}"),
        )  # fmt: skip
        return finished, interrupt.is_set()


def _answer(finished: list[Finished], known: dict[str, Any], output: Path, json: bool, asked: int) -> None:
    from ..benchmarks.compare.statistics import PROFILE_AT, behind, profiles, rows, standings

    ranked, standing = rows(finished, known), standings(finished)
    others = [cell for cell in finished if cell.outcome.status != "ok"]
    if json:
        show_json(
            {
                "cells": asked,
                "finished": len(finished),
                "standings": [asdict(row) for row in standing],
                "rows": [asdict(row) for row in ranked],
                "profiles": {"at": PROFILE_AT, "share": profiles(finished)},
                "behind": behind(ranked),
                "without_score": [
                    {**asdict(cell.cell), "status": cell.outcome.status, "reason": cell.outcome.reason}
                    for cell in others
                ],
                "folder": str(output),
            }
        )
        return
    show(_standings(standing), _rows(ranked))
    if others:
        columns = ("instance", "solver", "seed", "status", "reason")
        cells = (
            (c.cell.instance, c.cell.solver, c.cell.seed, c.outcome.status, c.outcome.reason) for c in others
        )
        show(table(columns, cells, left=5, title="cells without a score"))
    show(*behind(ranked), f"cells: {output} ({len(finished)} of {asked})")


def _standings(standing: list[Standing]) -> Any:
    columns = ("family", "solver", "instances", "score / best", "95 % interval")
    cells = (
        (s.family, s.solver, s.instances, f"{s.ratio:.4f}", f"{s.low:.4f} .. {s.high:.4f}") for s in standing
    )
    return table(columns, cells, left=2, title="standing by family (held-out score where there is one)")


def _rows(ranked: list[Row]) -> Any:
    from ..benchmarks.compare.statistics import shown

    columns = ("instance", "solver", "total", "held-out", "over best", "gap", "over first", "s")
    cells = (
        (
            row.instance,
            row.solver,
            shown(row.instance, row.total_s),
            "-" if row.held_out_s is None else shown(row.instance, row.held_out_s),
            f"{row.over_best:.2%}",
            f"{row.gap:.2%}",
            f"{row.over_first:.2%}",
            f"{row.elapsed_s:.3f}",
        )
        for row in ranked
    )
    return table(columns, cells, left=2, title="every instance, best score first")
