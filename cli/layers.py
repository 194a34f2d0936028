"""Layers of a plan as tasks: side by side on any backend, kept as they end, and gone on with after a stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.checkpoint import WorkFolder, open_work
from ..common.errors import MoeplanError, NothingFound
from ..common.execution import Failure, run_tasks
from .console import note, warn
from .planning import UNPLANNED

if TYPE_CHECKING:
    from ..placement.plan import LayerEntry
    from .planning import Request

EntryT = TypeVar("EntryT", bound="LayerEntry")

#: A layer's task: plans it and returns its entry of the plan file.
Task = Callable[[int], EntryT]


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
