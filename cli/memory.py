"""`--memory`: a plan's memory, estimated and held against a limit before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..common.errors import UsageError
from ..common.files import require_file
from .console import note

if TYPE_CHECKING:
    from ..placement.memory import Ask, Estimate, Family
    from .planning import Request

#: Solvers that hold a model or a tree beside the arrays of the question, whose size their engine decides.
_MODELLED = ("ilp", "cpsat", "exact")


def refuse_beyond(
    memory: str | None,
    request: Request,
    named: str,
    *,
    load: Path | None = None,
    sites: int | None = None,
    by_source: bool = False,
    drift: bool = False,
) -> Estimate | None:
    """Return the estimate of a plan; None where there is no limit ("0" or None).

    `named`: the machine's family; `load`: counts in place of a trace; `sites`: ranks, where options change
    the platform's. Reads headers only. Raises BadInput where the plan would take more than `memory`, such as
    "8 GiB", UsageError on a text that is no size.
    """
    from ..hardware.units import BYTES, parse
    from ..placement.memory import check_memory

    if memory is None or memory.strip() == "0":
        return None
    family = cast("Family", named)  # as `family_of` says it
    limit = parse(memory, BYTES)
    if limit < 1.0:
        raise UsageError("a memory limit is at least one byte", where="--memory", fix="0 is no limit")
    if load is not None:
        ask = _counted(request, family, load, sites, drift=drift)
    else:
        ask = _traced(request, family, sites, by_source=by_source, drift=drift)
    if request.search.solver in _MODELLED:
        note(f"the estimate leaves out the model that {request.search.solver} builds")
    return check_memory(limit, ask)


def _traced(request: Request, family: Family, sites: int | None, *, by_source: bool, drift: bool) -> Ask:
    from ..placement.memory import Ask
    from ..workload.stream import open_trace
    from .options import parse_layers

    model, how = request.needed_model(), request.replay
    if request.trace is None:
        raise UsageError("a plan needs a routing trace", where="--trace", fix="name one")
    stream = open_trace(request.trace)
    planned = stream.layers
    if request.layers is not None:
        planned = parse_layers(request.layers, stream.layers, "the trace")
    read = planned if stream.is_large else stream.layers
    return Ask(
        family,
        experts=model.experts,
        top_k=stream.top_k,
        layers=len(planned),
        batch=how.batch,
        steps=how.steps,
        jobs=request.jobs,
        trace_tokens=stream.tokens,
        trace_layers=len(read),
        held_out=how.held_out != 0.0,
        by_source=by_source,
        drift=drift,
        **_machine(request, family, sites),
    )


def _counted(request: Request, family: Family, load: Path, sites: int | None, *, drift: bool) -> Ask:
    """A file of counts `[L, E]` or `[S, L, E]`; whatever else it may hold, planning itself complains of."""
    from ..placement.memory import Ask

    steps, layers, experts = _shape(load)
    return Ask(
        family, experts=experts, top_k=1, layers=layers, batch=1, steps=steps, jobs=request.jobs,
        held_out=request.replay.held_out != 0.0, drift=drift, **_machine(request, family, sites),
    )  # fmt: skip


def _shape(load: Path) -> tuple[int, int, int]:
    import numpy as np

    try:
        require_file(load)
        shape = np.load(load, mmap_mode="r", allow_pickle=False).shape
    except Exception:  # whatever the file is, planning reads and refuses it
        return 1, 1, 1
    return (1,) * (3 - len(shape)) + shape if 2 <= len(shape) <= 3 and 0 not in shape else (1, 1, 1)


def _machine(request: Request, family: Family, sites: int | None) -> dict[str, Any]:
    topology = request.platform.topology
    if topology is None or family == "replicas":
        return {"sites": sites or (topology.sites if topology is not None else 1)}
    return {"sites": topology.sites, "links": topology.links, "route_links": len(topology.route_links)}
