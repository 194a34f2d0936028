"""What a plan file says, held against itself, its model, its platform and its traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ...common.errors import BadInput, MoeplanError
from ..problem import SAME_COST, Cost

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from ..plan import BaselineEntry, PlanFile, Scores
    from .problem import Settings

_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """Outcome of one check: `ok` is None where it could not be made; `detail` says what was found."""

    check: str
    ok: bool | None
    detail: str


def verify(plan: PlanFile, model: MoEModel | None, platform: Platform | None) -> list[Finding]:
    """Check a plan without its traffic, against its model and platform as far as they are known."""
    findings = [
        _finding(
            "placement", _placement_faults(plan), "every expert is placed, no site holds more than its memory"
        ),
        _finding("totals", _total_faults(plan), "totals are the sums of the layers"),
        _finding("bound and gap", _gap_faults(plan), "no score is below its bound, gaps follow from both"),
    ]
    if model is None:
        findings.append(
            Finding("model", None, f"{plan.model.name!r} is no preset: name its file with --model")
        )
    else:
        findings.append(_finding("model", _model_faults(plan, model), f"{model.name}, as planned"))
    if platform is None:
        detail = f"{plan.platform.name!r} is no preset: name its file with --platform"
        findings.append(Finding("platform", None, detail))
    else:
        findings.append(
            _finding("platform", _platform_faults(plan, platform), f"{platform.name}, as planned")
        )
    if model is not None and platform is not None:
        faults = _group_faults(plan, model, platform)
        findings.append(_finding("groups", faults, "every expert is on a valid channel group"))
    return findings


def rescore(
    plan: PlanFile, model: MoEModel, platform: Platform, profile_steps: Load, held_out_steps: Load | None
) -> list[Finding]:
    """Score a plan again on replayed traffic, and compare with what it recorded.

    Raises BadInput where a layer's placement is not feasible, or not on the trace.
    """
    from .document import decisions
    from .problem import channel_problem

    findings = [_same_steps("profile steps", plan.profile.fingerprint, profile_steps.fingerprint)]
    if plan.held_out and held_out_steps:
        findings.append(_same_steps("held-out steps", plan.held_out.fingerprint, held_out_steps.fingerprint))
    if not all(finding.ok for finding in findings):
        return findings
    problems = {
        entry.layer: channel_problem(
            model, platform, profile_steps, entry.layer, held_out=held_out_steps, settings=_settings(plan)
        )
        for entry in plan.layers
    }
    placed = decisions(plan, problems)
    profile, held_out = [], []
    for entry in plan.layers:
        problem, decision = problems[entry.layer], placed[entry.layer]
        profile.append((entry.layer, entry.profile, problem.evaluate(decision)))
        if entry.held_out is not None and problem.held_out is not None:
            held_out.append((entry.layer, entry.held_out, problem.held_out.evaluate(decision)))
    findings.append(_finding("profile scores", _score_faults(profile), "every layer scores as recorded"))
    if held_out:
        findings.append(
            _finding("held-out scores", _score_faults(held_out), "every layer scores as recorded")
        )
    return findings


def _finding(check: str, faults: Iterable[str], fine: str) -> Finding:
    found = list(faults)
    if not found:
        return Finding(check, True, fine)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Finding(check, False, "; ".join(found[:_SHOWN]) + more)


def _placement_faults(plan: PlanFile) -> Iterator[str]:
    ids = [entry.layer for entry in plan.layers]
    if ids != sorted(set(ids)):
        yield f"layer ids are not distinct and ascending: {ids}"
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


def _total_faults(plan: PlanFile) -> Iterator[str]:
    totals = plan.totals
    yield from _sum_faults("profile", totals.profile, [entry.profile for entry in plan.layers])
    yield from _sum_faults("held_out", totals.held_out, [entry.held_out for entry in plan.layers])
    yield from _difference("bound_s", totals.bound_s, math.fsum(entry.bound_s for entry in plan.layers))
    for name, total in totals.baselines.items():
        of_layers: list[BaselineEntry | None] = [entry.baselines.get(name) for entry in plan.layers]
        yield from _sum_faults(
            f"{name} profile", total.profile, [entry.profile if entry else None for entry in of_layers]
        )
        yield from _sum_faults(
            f"{name} held_out", total.held_out, [entry.held_out if entry else None for entry in of_layers]
        )


def _sum_faults(name: str, total: Scores | None, layers: list[Scores | None]) -> Iterator[str]:
    known = [scores for scores in layers if scores is not None]
    if total is None:
        if len(known) == len(layers):
            yield f"{name} is missing from the totals"
        return
    if len(known) < len(layers):
        yield f"{name} is in the totals, but not in every layer"
        return
    yield from _difference(f"{name}.total_s", total.total_s, math.fsum(s.total_s for s in known))
    yield from _difference(f"{name}.objective_s", total.objective_s, math.fsum(s.objective_s for s in known))
    yield from _difference(f"{name}.parts", math.fsum(total.parts.values()), total.total_s)


def _gap_faults(plan: PlanFile) -> Iterator[str]:
    for entry in plan.layers:
        yield from _one_gap(f"layer {entry.layer}", entry.profile.objective_s, entry.bound_s, entry.gap)
    yield from _one_gap("totals", plan.totals.profile.objective_s, plan.totals.bound_s, plan.totals.gap)


def _one_gap(where: str, objective_s: float, bound_s: float, gap: float) -> Iterator[str]:
    if bound_s > objective_s * (1.0 + SAME_COST):
        yield f"{where}: the bound {bound_s:.6g} s is above the objective {objective_s:.6g} s"
        return
    expected = max(0.0, 1.0 - bound_s / objective_s) if objective_s > 0.0 else 0.0
    if not math.isclose(gap, expected, rel_tol=1e-6, abs_tol=1e-9):
        yield f"{where}: the gap is {gap:.6g}, objective and bound give {expected:.6g}"


def _model_faults(plan: PlanFile, model: MoEModel) -> list[str]:
    if plan.model.fingerprint == model.fingerprint:
        return (
            []
            if {entry.layer for entry in plan.layers} <= set(model.moe_layers)
            else ["it has layers that the model has not"]
        )
    pairs = {
        name: (getattr(plan.model, name), getattr(model, name))
        for name in ("experts", "top_k", "expert_bytes")
    }
    return _named(pairs, "shapes that a plan does not record")


def _platform_faults(plan: PlanFile, platform: Platform) -> list[str]:
    if plan.platform.fingerprint == platform.fingerprint:
        return []
    topology = platform.topology
    names = ("kind", "rows", "cols", "sites")
    pairs: dict[str, tuple[object, object]] = {
        name: (getattr(plan.platform, name), getattr(topology, name, None)) for name in names
    }
    if topology is not None:
        planned = sorted({link.bandwidth_bytes_per_s for link in plan.platform.links})
        pairs["link bandwidths"] = planned, sorted(set(topology.link_bandwidth_bytes_per_s.tolist()))
    return _named(pairs, "timing, memory or links")


def _named(pairs: dict[str, tuple[Any, Any]], otherwise: str) -> list[str]:
    """Differences by name; where none is recorded, in what the two must differ."""
    different = [
        f"{name}: the plan has {mine}, here {now}" for name, (mine, now) in pairs.items() if mine != now
    ]
    return different or [f"they differ in {otherwise} (other fingerprint)"]


def _group_faults(plan: PlanFile, model: MoEModel, platform: Platform) -> Iterator[str]:
    from .groups import tiles

    if platform.topology is None:
        yield f"{platform.name} has no channel sites"
        return
    groups = tiles(platform.topology, largest=min(platform.topology.sites, model.expert_intermediate_size))
    for entry in plan.layers:
        for expert, place in enumerate(entry.experts):
            if groups.find(place.sites) is None:
                yield f"layer {entry.layer}, expert {expert}: {list(place.sites)} is no channel group"


def _same_steps(check: str, planned: str, replayed: str) -> Finding:
    if planned == replayed:
        return Finding(check, True, "the trace gives the steps that were planned on")
    return Finding(check, False, "the trace gives other steps than those that were planned on")


def _score_faults(layers: list[tuple[int, Scores, Cost]]) -> Iterator[str]:
    for layer, recorded, measured in layers:
        yield from _difference(f"layer {layer} total_s", recorded.total_s, measured.total_s)
        yield from _difference(f"layer {layer} objective_s", recorded.objective_s, measured.objective_s)


def _difference(name: str, recorded: float, expected: float) -> Iterator[str]:
    if not math.isclose(recorded, expected, rel_tol=SAME_COST):
        yield f"{name} is {recorded:.9g}, it should be {expected:.9g}"


def _settings(plan: PlanFile) -> Settings:
    from .problem import Settings

    known = {field.name for field in fields(Settings)}
    if set(plan.settings) != known:
        raise BadInput(
            "the plan's settings are not those of channels",
            where="settings",
            allowed=", ".join(sorted(known)),
        )
    given: dict[str, Any] = dict(plan.settings)
    try:
        return Settings(**given)
    except (MoeplanError, TypeError) as error:
        raise BadInput(f"the plan's settings cannot be used: {error}", where="settings") from error
