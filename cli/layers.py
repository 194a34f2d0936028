"""Layers of a plan as tasks: side by side on any backend, kept as they end, and gone on with after a stop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..common.checkpoint import WorkFolder, open_work
from ..common.errors import MoeplanError, NothingFound
from ..common.execution import Failure, run_tasks
from .console import note, warn
from .planning import UNPLANNED, deliver, progress
from .signals import keep_best_on_signals

if TYPE_CHECKING:
    from ..placement.plan import LayerEntry, PlanFile
    from .planning import Request
    from .traffic import Traffic

EntryT = TypeVar("EntryT", bound="LayerEntry")
PlanT = TypeVar("PlanT", bound="PlanFile")
TaskT = TypeVar("TaskT")

#: A layer's task: plans it and returns its entry of the plan file.
Task = Callable[[int], EntryT]


@dataclass(frozen=True)
class Family(Generic[TaskT, EntryT, PlanT]):
    """How a family plans layer by layer: its task, the entry that a planned layer becomes, and its plan."""

    name: str
    task: Callable[..., TaskT]
    planned_entry: Callable[[TaskT, int], EntryT]
    entry: type[EntryT]
    assemble: Callable[..., PlanT]


def plan_by_layers(
    family: Family[TaskT, EntryT, PlanT],
    request: Request,
    settings: object,
    traffic: Traffic | None = None,
    refuse: Callable[[TaskT], object] = lambda task: None,
) -> PlanT:
    """Plan, write plan and report; the first Ctrl-C writes the best found until then.

    `refuse` raises what makes planning impossible before the work begins.
    """
    model, steps = request.needed_model(), traffic or request.traffic()
    layers = steps.layers(request.layers)

    def task(stop: threading.Event | None) -> TaskT:
        return family.task(
            model, request.platform, steps.profile, steps.held_out, request.search, settings, stop
        )

    refuse(task(None))
    begun = time.perf_counter()
    inputs = request.inputs(family.name, settings, steps.profile, steps.held_out)
    with keep_best_on_signals() as interrupt:
        with progress(len(layers), visible=not request.quiet) as on_layer:
            entries = run_layers(
                request, layers, lambda stop: partial(family.planned_entry, task(stop)), family.entry,
                inputs, interrupt, on_layer,
            )  # fmt: skip
        document = family.assemble(
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


def run_layers(
    request: Request,
    layers: tuple[int, ...],
    make: Callable[[threading.Event | None], Task[EntryT]],
    kind: type[EntryT],
    inputs: Mapping[str, str],
    interrupt: threading.Event,
    on_layer: Callable[[EntryT], None],
) -> list[EntryT]:
    """Plan every layer that the request's work folder does not hold yet; entries in the order of `layers`.

    `make` gives the task; off this process it gets no event to listen to. `inputs` names all that the entries
    depend on. A layer that fails does not stop the others: they are planned and kept, then its error is
    raised. After an interruption off this process the layers that had not ended are missing. Raises a layer's
    own error, NothingFound where its worker was lost or no layer was planned, and BadInput where the work
    folder cannot be used.
    """
    where = request.execution
    with ExitStack() as stack:
        work = None
        if request.work is not None:
            work = stack.enter_context(open_work(request.work, inputs, fresh=request.fresh))
        known = _read(work, layers, kind)
        if known and work is not None:
            note(f"{len(known)} of {len(layers)} layers are in {work.folder} already")
        for entry in known.values():
            on_layer(entry)
        failures: dict[int, Failure] = {}
        task = make(interrupt if where.in_process else None)
        for done in run_tasks(task, [layer for layer in layers if layer not in known], where, interrupt):
            if isinstance(done.result, Failure):
                failures[done.key] = done.result
                continue
            known[done.key] = done.result
            if work is not None and done.result.stop != "interrupted":
                work.keep(_name(done.key), done.result.model_dump_json())
            on_layer(done.result)
        _raise(failures, len(known), work)
        if not known:
            raise NothingFound("interrupted before any layer was planned", fix="let it run longer")
    return [known[layer] for layer in layers if layer in known]


def finish_work(request: Request, layers: tuple[int, ...], entries: list[EntryT]) -> None:
    """Delete the work folder when every layer has been planned to its end and the plan is written."""
    if request.work is None or not request.work.is_dir():
        return
    if len(entries) == len(layers) and not any(entry.stop == "interrupted" for entry in entries):
        WorkFolder(request.work).discard()
    else:
        note(f"the same command goes on from {request.work}")


def missing_layers(layers: tuple[int, ...], entries: list[EntryT]) -> tuple[str, ...]:
    """Return a warning where an interruption left layers out of the plan."""
    left = sorted(set(layers) - {entry.layer for entry in entries})
    return (f"{UNPLANNED}{left} are not planned",) if left else ()


def _name(layer: int) -> str:
    return f"layer-{layer}"


def _read(work: WorkFolder | None, layers: tuple[int, ...], kind: type[EntryT]) -> dict[int, EntryT]:
    from ..common.spec import parse

    found: dict[int, EntryT] = {}
    for layer in layers if work is not None else ():
        assert work is not None
        text = work.read(_name(layer))
        if text is None:
            continue
        try:
            data: Any = json.loads(text)
            found[layer] = parse(kind, data, f"finished layer {layer} in {str(work.folder)!r}")
        except (ValueError, MoeplanError):
            warn(f"the finished layer {layer} in {work.folder} is damaged and is planned again")
    return found


def _raise(failures: Mapping[int, Failure], planned: int, work: WorkFolder | None) -> None:
    if not failures:
        return
    (first, failure), *more = failures.items()
    for layer, other in more:
        warn(f"layer {layer} failed: {other.reason.splitlines()[0]}")
    if planned and work is not None:
        note(f"{planned} layers are kept in {work.folder}")
    known = failure.error or failure.exception
    if known is not None:
        raise known
    kind = MoeplanError if failure.bug else NothingFound
    raise kind(
        f"layer {first} failed: {failure.reason}",
        where=f"{len(failures)} layers failed, {planned} are planned",
        fix="give the task more memory or time; the same command goes on where it stopped",
    )


def work_folder(output: Path) -> Path:
    """Return the folder in which a plan under way keeps its finished layers: beside the plan."""
    return output.with_name(output.name + ".work")
