"""What a plan of channels says, held against itself, its model, its platform and its traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..planning import ROWS, run_baselines
from ..problem import SAME_COST
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
from .problem import Settings, layer_capacity_bytes

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from ..result import Result
    from .document import ChannelPlan
    from .problem import Decision


def verify(plan: ChannelPlan, model: MoEModel | None, platform: Platform | None) -> list[Finding]:
    """Check a plan without its traffic, against its model and platform as far as they are known."""
    findings = [
        finding(
            "placement", _placement_faults(plan), "every expert is placed, no site holds more than its memory"
        ),
        *verify_scores(plan),
        verify_model(plan, model),
        verify_platform(plan, platform, _platform_faults(plan, platform) if platform else ()),
    ]
    if model is not None and platform is not None:
        faults = _group_faults(plan, model, platform)
        findings.append(finding("groups", faults, "every expert is on a valid channel group"))
        room = plan.platform.site_capacity_bytes, layer_capacity_bytes(model, platform)
        findings.append(
            finding(
                "room",
                named_differences({"site_capacity_bytes": room}, "", alike=True),
                "a layer may use an equal share of a site",
            )
        )
    return findings


def rescore(
    plan: ChannelPlan, model: MoEModel, platform: Platform, profile_steps: Load, held_out_steps: Load | None
) -> list[Finding]:
    """Score a plan again on replayed traffic, and compare with what it recorded.

    Raises BadInput where a layer's placement is not feasible, or not on the trace.
    """
    from .document import decisions
    from .planning import as_published
    from .problem import channel_problem

    findings = same_steps(plan, profile_steps, held_out_steps)
    if not all(each.ok for each in findings):
        return findings
    settings = settings_of(plan, Settings)
    problems = {
        entry.layer: channel_problem(
            model, platform, profile_steps, entry.layer, held_out=held_out_steps, settings=settings
        )
        for entry in plan.layers
    }
    placed = decisions(plan, problems)
    faults: list[str] = []
    for entry in plan.layers:
        problem, decision = problems[entry.layer], placed[entry.layer]
        loads = {"site_load_s": (entry.site_load_s, problem.site_load_s(decision).tolist())}
        if problem.held_out is not None:
            loads["held_out_site_load_s"] = (
                entry.held_out_site_load_s,
                problem.held_out.site_load_s(decision).tolist(),
            )
        faults += figure_faults(entry.layer, loads)
    scores, *unseen = verify_costs(plan, problems, placed)

    def published(layer: int, names: Sequence[str]) -> dict[str, Result[Decision]]:
        own = [name for name in names if name.endswith(ROWS)]
        found = run_baselines(problems[layer], plan.seed, names=[name for name in names if name not in own])
        if own:
            posed = as_published(settings)
            rows = channel_problem(
                model, platform, profile_steps, layer, held_out=held_out_steps, settings=posed
            )
            plain = run_baselines(rows, plan.seed, names=[name.removesuffix(ROWS) for name in own])
            found |= {name + ROWS: result for name, result in plain.items()}
        return found

    return [
        *findings,
        scores,
        finding("site loads", faults, "every site is as loaded as recorded"),
        *unseen,
        verify_bounds(plan, problems),
        verify_baselines(plan, published),
    ]


def _placement_faults(plan: ChannelPlan) -> Iterator[str]:
    yield from layer_id_faults(plan)
    for entry in plan.layers:
        if len(entry.experts) != plan.model.experts:
            yield f"layer {entry.layer} places {len(entry.experts)} of {plan.model.experts} experts"
        used = [0.0] * plan.platform.sites
        for expert, place in enumerate(entry.experts):
            known = all(0 <= site < plan.platform.sites for site in place.sites)
            if not known or len(set(place.sites)) != place.tp or len(place.sites) != place.tp:
                yield f"layer {entry.layer}, expert {expert}: {list(place.sites)} are not {place.tp} sites"
                continue
            for site in place.sites:
                used[site] += plan.model.expert_bytes / place.tp
        fullest = max(range(len(used)), key=used.__getitem__)
        if used[fullest] > plan.platform.site_capacity_bytes * (1.0 + SAME_COST):
            yield (
                f"layer {entry.layer}: site {fullest} holds {used[fullest]:.0f} bytes, "
                f"{plan.platform.site_capacity_bytes:.0f} are free for a layer"
            )


def _platform_faults(plan: ChannelPlan, platform: Platform) -> list[str]:
    topology = platform.topology
    names = ("kind", "rows", "cols", "sites")
    pairs: dict[str, tuple[object, object]] = {
        name: (getattr(plan.platform, name), getattr(topology, name, None)) for name in names
    }
    if topology is not None:
        planned = sorted({link.bandwidth_bytes_per_s for link in plan.platform.links})
        pairs["link bandwidths"] = planned, sorted(set(topology.link_bandwidth_bytes_per_s.tolist()))
    alike = plan.platform.fingerprint == platform.fingerprint
    return named_differences(pairs, "timing, memory or links", alike=alike)


def _group_faults(plan: ChannelPlan, model: MoEModel, platform: Platform) -> Iterator[str]:
    from .groups import tiles

    if platform.topology is None:
        yield f"{platform.name} has no channel sites"
        return
    groups = tiles(platform.topology, largest=min(platform.topology.sites, model.expert_intermediate_size))
    for entry in plan.layers:
        for expert, place in enumerate(entry.experts):
            if groups.find(place.sites) is None:
                yield f"layer {entry.layer}, expert {expert}: {list(place.sites)} is no channel group"
