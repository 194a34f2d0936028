"""What a plan of cores says, held against itself, its model, its platform and its traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...common.errors import MoeplanError
from ..planning import run_baselines
from ..verify import (
    Finding,
    figure_faults,
    finding,
    layer_id_faults,
    named_differences,
    same_steps,
    settings_of,
    verify_baselines,
    verify_bounds,
    verify_costs,
    verify_model,
    verify_platform,
    verify_scores,
)
from .problem import Settings

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .document import CorePlan
    from .layout import Layout


def verify(plan: CorePlan, model: MoEModel | None, platform: Platform | None) -> list[Finding]:
    """Check a plan without its traffic, against its model and platform as far as they are known."""
    findings = [
        finding("placement", _placement_faults(plan), "every expert is placed, no core or unit is overfull"),
        *verify_scores(plan),
        verify_model(plan, model),
        verify_platform(plan, platform, _platform_faults(plan, platform) if platform else ()),
    ]
    if model is not None and platform is not None:
        faults = _layout_faults(plan, model, platform)
        findings.append(finding("die", faults, "cores, room and shards are those of model and platform"))
    return findings


def rescore(
    plan: CorePlan, model: MoEModel, platform: Platform, profile_steps: Load, held_out_steps: Load | None
) -> list[Finding]:
    """Score a plan again on replayed traffic, and compare with what it recorded.

    Raises BadInput where a layer's placement is not feasible, or not on the trace.
    """
    from .document import decisions, figures
    from .problem import core_problem

    findings = same_steps(plan, profile_steps, held_out_steps)
    if not all(each.ok for each in findings):
        return findings
    settings = settings_of(plan, Settings)
    layout = _layout(settings, model, platform)
    problems = {
        entry.layer: core_problem(
            model, layout, profile_steps, entry.layer, held_out=held_out_steps, settings=settings
        )
        for entry in plan.layers
    }
    placed = decisions(plan, problems)
    faults: list[str] = []
    for entry in plan.layers:
        problem, decision = problems[entry.layer], placed[entry.layer]
        if (plan.held_out is None) == (problem.held_out is None):
            jobs, use, least = figures(problem, decision)
            pairs = {
                "core_jobs": (entry.core_jobs, jobs),
                "use": (tuple(entry.use.model_dump().values()), tuple(use.model_dump().values())),
                "least_rounds": ((entry.least_rounds,), (least,)),
            }
            faults += figure_faults(entry.layer, pairs)
    scores, *unseen = verify_costs(plan, problems, placed)
    return [
        *findings,
        scores,
        finding("rounds", faults, "rounds and use of every layer are those recorded"),
        *unseen,
        verify_bounds(plan, problems),
        verify_baselines(plan, lambda layer, names: run_baselines(problems[layer], plan.seed, names=names)),
    ]


def _placement_faults(plan: CorePlan) -> Iterator[str]:
    yield from layer_id_faults(plan)
    die, pooled = plan.platform, settings_of(plan, Settings).mode == "broadcast"
    what = "core" if pooled else "unit"
    places = die.sites if pooled else die.sites * die.groups
    room = die.core_experts if pooled else die.unit_experts
    for entry in plan.layers:
        if len(entry.places) != plan.model.experts:
            yield f"layer {entry.layer} places {len(entry.places)} of {plan.model.experts} experts"
        for expert, place in enumerate(entry.places):
            if not 0 <= place < places:
                yield f"layer {entry.layer}, expert {expert}: there is no {what} {place}"
        for place, held in sorted(Counter(entry.places).items()):
            if held > room:
                yield f"layer {entry.layer}: {what} {place} holds {held} experts, it has room for {room}"


def _platform_faults(plan: CorePlan, platform: Platform) -> list[str]:
    alike = plan.platform.fingerprint == platform.fingerprint
    return named_differences({}, "units, cores, dies or links", alike=alike)


def _layout_faults(plan: CorePlan, model: MoEModel, platform: Platform) -> list[str]:
    try:
        layout = _layout(settings_of(plan, Settings), model, platform)
    except MoeplanError as error:
        return [error.what]
    names = ("groups", "core_experts", "unit_experts", "shards", "dies", "round_s")
    pairs = {"sites": (plan.platform.sites, layout.cores)}
    pairs |= {name: (getattr(plan.platform, name), getattr(layout, name)) for name in names}
    different = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return named_differences(different, "nothing") if different else []


def _layout(settings: Settings, model: MoEModel, platform: Platform) -> Layout:
    from .layout import platform_layout, with_side

    return platform_layout(model, with_side(platform, settings.side), settings.mode, settings.width)
