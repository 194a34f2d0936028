"""From measured results to the entries of a plan file: what the documents of all families share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .plan import BaselineEntry, LayerEntry, Link, Machine, ModelEntry, Point, Scores, Split, TrafficEntry
from .planning import LayerTask, Planned, Search
from .problem import Cost
from .result import Progress, Result, Stop

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from .plan import Totals

_LIBRARIES = ("moeplan", "numpy", "scipy", "numba", "ortools", "pulp")
_POINTS = 48


def search_fields(search: Search) -> dict[str, Any]:
    """Return how was searched and with which libraries, as fields of `PlanFile`."""
    budget = search.budget
    return {
        "solver": search.solver,
        "seed": search.seed,
        "budget": {"time_s": budget.time_s, "iterations": budget.iterations, "gap": budget.gap},
        "options": dict(search.options or {}),
        "versions": {name: metadata.version(name) for name in _LIBRARIES},
    }


def plan_fields(
    task: LayerTask,
    totals: Totals,
    layers: Sequence[LayerEntry],
    *,
    source: tuple[str, str],
    split: tuple[Split, float],
    elapsed_s: float,
    remarks: tuple[str, ...],
) -> dict[str, Any]:
    """Return the fields of `PlanFile` but the machine, of a plan whose layers `task` planned.

    `source` says where profile and held-out steps come from, `split` how one source was split into both;
    `remarks` are further warnings.
    """
    profile, held_out = task.profile, task.held_out
    notes = ((name, load) for name, load in (("profile", profile), ("held-out steps", held_out)) if load)
    return {
        **search_fields(task.search),
        "settings": vars(task.settings),
        "model": model_entry(task.model),
        "profile": traffic_entry(profile, source[0], split),
        "held_out": traffic_entry(held_out, source[1], split) if held_out else None,
        "totals": totals,
        "layers": tuple(layers),
        "warnings": (
            *remarks,
            *(f"{name}: {load.note}" for name, load in notes if load.repeated),
            *warnings_of(totals, layers, held_out is not None),
        ),
        "elapsed_s": elapsed_s,
    }


def layer_fields(layer: int, plan: Planned[Any]) -> dict[str, Any]:
    """Return how the search of a layer went, as fields of `LayerEntry` (without its baselines)."""
    result = plan.result
    return {
        "layer": layer,
        "stop": result.stop.value,
        "iterations": result.iterations,
        "profile": scores_of(result.cost),
        "held_out": scores_of(result.held_out) if result.held_out else None,
        "bound_s": result.bound.value_s,
        "bound_by": result.bound.by,
        "gap": result.gap,
        "anytime": tuple(_point(p) for p in thinned(result.anytime)),
    }


def baseline_fields(baseline: Result[Any]) -> dict[str, Scores | None]:
    """Return what a heuristic got, as fields of `BaselineEntry`."""
    return {
        "profile": scores_of(baseline.cost) if baseline.decision is not None else None,
        "held_out": scores_of(baseline.held_out) if baseline.held_out else None,
    }


def total_fields(layers: Sequence[LayerEntry]) -> dict[str, Any]:
    """Return sums over layers, as fields of `Totals`."""
    profile = _sum(entry.profile for entry in layers)
    assert profile is not None
    bound_s = math.fsum(entry.bound_s for entry in layers)
    return {
        "profile": profile,
        "held_out": _sum(entry.held_out for entry in layers),
        "bound_s": bound_s,
        "gap": max(0.0, 1.0 - bound_s / profile.objective_s) if profile.objective_s > 0.0 else 0.0,
        "stop": worst_stop(entry.stop for entry in layers),
        "baselines": {
            name: BaselineEntry(
                profile=_sum(entry.baselines[name].profile for entry in layers),
                held_out=_sum(entry.baselines[name].held_out for entry in layers),
            )
            for name in layers[0].baselines
        },
    }


def scores_of(cost: Cost) -> Scores:
    """Return a cost as a plan records it."""
    return Scores(total_s=cost.total_s, objective_s=cost.objective_s, parts=dict(cost.parts))


def model_entry(model: MoEModel) -> ModelEntry:
    """Return a model as a plan records it."""
    return ModelEntry(
        name=model.name,
        fingerprint=model.fingerprint,
        experts=model.experts,
        top_k=model.top_k,
        expert_bytes=model.expert_bytes,
    )


def machine_entry(platform: Platform, capacity_bytes: float) -> Machine:
    """Return a machine and its links; `capacity_bytes` is what one layer may use of a site."""
    topology = platform.topology
    assert topology is not None
    return Machine(
        name=platform.name,
        fingerprint=platform.fingerprint,
        kind=topology.kind,
        rows=topology.rows,
        cols=topology.cols,
        sites=topology.sites,
        links=tuple(
            Link(source=int(a), target=int(b), bandwidth_bytes_per_s=float(bandwidth))
            for (a, b), bandwidth in zip(topology.link_ends, topology.link_bandwidth_bytes_per_s, strict=True)
        ),
        site_capacity_bytes=capacity_bytes,
    )


def traffic_entry(load: Load, source: str, split: tuple[Split, float]) -> TrafficEntry:
    """Return the decode steps that a score was measured on; `split` says how one source was split."""
    steps, batch = load.experts.shape[:2]
    return TrafficEntry(
        fingerprint=load.fingerprint,
        source=source,
        split=split[0],
        share=split[1],
        batch=batch,
        steps=steps,
        requests=load.requests,
        repeated=load.repeated,
        note=load.note,
    )


def warnings_of(totals: Totals, layers: Sequence[LayerEntry], unseen: bool) -> Iterator[str]:
    """Say what a reader of the scores must know; `unseen` tells whether anything was held out."""
    if totals.stop == Stop.INTERRUPTED.value:
        yield "interrupted: some layers hold the best placement found until then"
    waiting = [e.layer for e in layers if e.iterations == 0 and e.stop == Stop.TIME_LIMIT.value]
    if waiting:
        yield f"the budget ended before the search began, raise it with --budget: layers {waiting}"
    if not unseen or totals.held_out is None:
        yield "nothing was held out: the scores say nothing about traffic that the planner did not see"
        return
    for name, baseline in totals.baselines.items():
        if baseline.held_out is not None and baseline.held_out.total_s < totals.held_out.total_s:
            worse = totals.held_out.total_s / baseline.held_out.total_s - 1.0
            yield f"on held-out steps the plan is {worse:.2%} slower than the baseline {name}"


def _point(progress: Progress) -> Point:
    return Point(iterations=progress.iterations, elapsed_s=progress.elapsed_s, best_s=progress.best_s)


def thinned(curve: tuple[Progress, ...]) -> tuple[Progress, ...]:
    """Keep first and last point of an anytime curve and evenly many between, for the eye."""
    if len(curve) <= _POINTS:
        return curve
    step = (len(curve) - 1) / (_POINTS - 1)
    return tuple(curve[round(i * step)] for i in range(_POINTS))


def _sum(scores: Iterable[Scores | None]) -> Scores | None:
    """Add up layers; None where one of them has none."""
    every = list(scores)
    known = [s for s in every if s is not None]
    if not known or len(known) < len(every):
        return None
    return Scores(
        total_s=math.fsum(s.total_s for s in known),
        objective_s=math.fsum(s.objective_s for s in known),
        parts={name: math.fsum(s.parts[name] for s in known) for name in known[0].parts},
    )


def worst_stop(stops: Iterable[str]) -> str:
    """What to say of the whole: interrupted if one layer was, optimal only if all are."""
    order = (
        Stop.INTERRUPTED,
        Stop.TIME_LIMIT,
        Stop.ITERATION_LIMIT,
        Stop.GAP_REACHED,
        Stop.CONVERGED,
        Stop.OPTIMAL,
    )
    seen = set(stops)
    return next(stop.value for stop in order if stop.value in seen)
