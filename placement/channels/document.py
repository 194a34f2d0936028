"""From planned layers to the plan file, and back from the file to decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from ...common.errors import BadInput
from ..plan import (
    BaselineEntry,
    ExpertPlace,
    LayerEntry,
    Link,
    Machine,
    ModelEntry,
    PlanFile,
    Point,
    Scores,
    Split,
    Totals,
    TrafficEntry,
)
from ..problem import Cost
from ..result import Progress, Stop
from .planning import LayerPlan, Search
from .problem import ChannelProblem, Decision, Settings, layer_capacity_bytes

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel

_LIBRARIES = ("moeplan", "numpy", "scipy", "numba", "ortools", "pulp")
_POINTS = 48


def plan_file(
    model: MoEModel,
    platform: Platform,
    profile: Load,
    held_out: Load | None,
    plans: list[LayerPlan],
    *,
    search: Search,
    settings: Settings,
    source: tuple[str, str] = ("", ""),
    split: tuple[Split, float] = ("whole", 0.0),
    elapsed_s: float,
) -> PlanFile:
    """Assemble the file.

    `source` says where profile and held-out steps come from, `split` how one source was split into both.
    """
    layers = tuple(_layer(plan) for plan in plans)
    totals = _totals(layers)
    return PlanFile(
        family="channels",
        solver=search.solver,
        seed=search.seed,
        budget={
            "time_s": search.budget.time_s,
            "iterations": search.budget.iterations,
            "gap": search.budget.gap,
        },
        settings=vars(settings),
        options=dict(search.options or {}),
        model=ModelEntry(
            name=model.name,
            fingerprint=model.fingerprint,
            experts=model.experts,
            top_k=model.top_k,
            expert_bytes=model.expert_bytes,
        ),
        platform=_machine(platform, layer_capacity_bytes(model, platform)),
        profile=_traffic(profile, source[0], split),
        held_out=_traffic(held_out, source[1], split) if held_out else None,
        totals=totals,
        layers=layers,
        warnings=tuple(_warnings(totals, layers, profile, held_out)),
        versions={name: metadata.version(name) for name in _LIBRARIES},
        elapsed_s=elapsed_s,
    )


def decisions(plan: PlanFile, problems: Mapping[int, ChannelProblem]) -> dict[int, Decision]:
    """Rebuild the decision of every layer of a plan. Raises BadInput where one is not feasible."""
    found = {}
    for entry in plan.layers:
        problem = problems[entry.layer]
        decision = problem.decision_from_sites([place.sites for place in entry.experts])
        fault = problem.check(decision)
        if fault is not None:
            raise BadInput(f"the placement of layer {entry.layer} is not feasible: {fault}")
        found[entry.layer] = decision
    return found


def _layer(plan: LayerPlan) -> LayerEntry:
    problem, result = plan.problem, plan.result
    held_out = problem.held_out
    return LayerEntry(
        layer=problem.layer,
        stop=result.stop.value,
        iterations=result.iterations,
        profile=_scores(result.cost),
        held_out=_scores(result.held_out) if result.held_out else None,
        bound_s=result.bound.value_s,
        bound_by=result.bound.by,
        gap=result.gap,
        experts=tuple(
            ExpertPlace(tp=len(sites), sites=sites)
            for sites in (problem.sites_of(plan.decision, e) for e in range(problem.experts))
        ),
        site_load_s=tuple(problem.site_load_s(plan.decision).tolist()),
        held_out_site_load_s=_held_out_load(held_out, plan.decision),
        baselines={
            name: BaselineEntry(
                profile=_scores(baseline.cost) if baseline.decision else None,
                held_out=_scores(baseline.held_out) if baseline.held_out else None,
                held_out_site_load_s=_held_out_load(held_out, baseline.decision),
            )
            for name, baseline in plan.baselines.items()
        },
        anytime=tuple(_point(p) for p in _thin(result.anytime)),
    )


def _held_out_load(held_out: ChannelProblem | None, decision: Decision | None) -> tuple[float, ...]:
    return tuple(held_out.site_load_s(decision).tolist()) if held_out and decision else ()


def _scores(cost: Cost) -> Scores:
    return Scores(total_s=cost.total_s, objective_s=cost.objective_s, parts=dict(cost.parts))


def _point(progress: Progress) -> Point:
    return Point(iterations=progress.iterations, elapsed_s=progress.elapsed_s, best_s=progress.best_s)


def _thin(curve: tuple[Progress, ...]) -> tuple[Progress, ...]:
    """Keep first and last point and evenly many between: a curve for the eye."""
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


def _totals(layers: tuple[LayerEntry, ...]) -> Totals:
    profile = _sum(entry.profile for entry in layers)
    assert profile is not None
    bound_s = math.fsum(entry.bound_s for entry in layers)
    gap = max(0.0, 1.0 - bound_s / profile.objective_s) if profile.objective_s > 0.0 else 0.0
    return Totals(
        profile=profile,
        held_out=_sum(entry.held_out for entry in layers),
        bound_s=bound_s,
        gap=gap,
        stop=_worst_stop(entry.stop for entry in layers),
        baselines={
            name: BaselineEntry(
                profile=_sum(entry.baselines[name].profile for entry in layers),
                held_out=_sum(entry.baselines[name].held_out for entry in layers),
                held_out_site_load_s=_add_loads(
                    entry.baselines[name].held_out_site_load_s for entry in layers
                ),
            )
            for name in layers[0].baselines
        },
    )


def _add_loads(loads: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) for column in zip(*loads, strict=False))


def _worst_stop(stops: Iterable[str]) -> str:
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


def _warnings(
    totals: Totals, layers: tuple[LayerEntry, ...], profile: Load, held_out: Load | None
) -> Iterable[str]:
    if totals.stop == Stop.INTERRUPTED.value:
        yield "interrupted: some layers hold the best placement found until then"
    unsearched = sum(entry.iterations == 0 and entry.stop == Stop.TIME_LIMIT.value for entry in layers)
    if unsearched:
        yield f"in {unsearched} layers the budget ended before the search began: give it more time"
    for name, load in (("profile", profile), ("held-out steps", held_out)):
        if load is not None and load.repeated:
            yield f"{name}: {load.note}"
    if totals.held_out is None:
        yield "nothing was held out: the scores say nothing about traffic that the planner did not see"
        return
    for name, baseline in totals.baselines.items():
        if baseline.held_out is not None and baseline.held_out.total_s < totals.held_out.total_s:
            worse = totals.held_out.total_s / baseline.held_out.total_s - 1.0
            yield f"on held-out steps the plan is {worse:.2%} slower than the baseline {name}"


def _machine(platform: Platform, capacity_bytes: float) -> Machine:
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


def _traffic(load: Load, source: str, split: tuple[Split, float]) -> TrafficEntry:
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
