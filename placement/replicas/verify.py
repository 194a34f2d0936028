"""What a plan of replicas says, held against itself, its model, its platform and its traffic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import MoeplanError
from ..verify import Finding, finding, named_differences, score_faults, verify_model, verify_scores

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .document import ReplicaPlan
    from .problem import ReplicaProblem


def verify(plan: ReplicaPlan, model: MoEModel | None, platform: Platform | None) -> list[Finding]:
    """Check a plan without its traffic, against its model and platform as far as they are known."""
    findings = [
        finding("placement", _placement_faults(plan), "every expert has a slot, and all rules are kept"),
        *verify_scores(plan),
        verify_model(plan, model),
        _platform(plan, platform),
    ]
    if plan.profile.steps == 1 and plan.unit == "tokens" and findings[0].ok:
        findings.append(finding("recorded counts", _count_faults(plan), "counts and slots give the scores"))
    return findings


def rescore(
    plan: ReplicaPlan, model: MoEModel, platform: Platform, profile_steps: Load, held_out_steps: Load | None
) -> list[Finding]:
    """Score a plan again on replayed traffic, and compare with what it recorded."""
    from .document import decisions
    from .traffic import problems_of_traffic

    same = plan.profile.fingerprint == profile_steps.fingerprint
    detail = "the trace gives the steps that were planned on"
    other = "the trace gives other steps than those that were planned on"
    findings = [Finding("profile steps", same, detail if same else other)]
    if not same:
        return findings
    problems = problems_of_traffic(plan, model, platform, profile_steps, held_out_steps)
    placed = decisions(plan)
    profile, held_out = [], []
    for entry, problem in zip(plan.layers, problems, strict=True):
        decision = placed[entry.layer]
        profile.append((entry.layer, entry.profile, problem.evaluate(decision)))
        if entry.held_out is not None and problem.held_out is not None:
            held_out.append((entry.layer, entry.held_out, problem.held_out.evaluate(decision)))
    findings.append(finding("profile scores", score_faults(profile), "every layer scores as recorded"))
    if held_out:
        findings.append(finding("held-out scores", score_faults(held_out), "every layer scores as recorded"))
    return findings


def _placement_faults(plan: ReplicaPlan) -> Iterator[str]:
    shape = (len(plan.layer_ids), len(plan.slots_per_rank), plan.ranks % plan.nodes)
    if shape != (len(plan.layers), plan.ranks, 0) or plan.logical_experts % plan.groups:
        yield "layers, ranks, nodes and groups do not fit each other"
        return
    if list(plan.layer_ids) != [entry.layer for entry in plan.layers]:
        yield "layer_ids are not those of the layers"
    if len(plan.physical_to_logical) != len(plan.layers) or len(plan.logical_count) != len(plan.layers):
        yield "physical_to_logical or logical_count has not a row for every layer"
        return
    widths = {len(row) for row in plan.logical_count}
    if widths != {plan.logical_experts}:
        yield f"logical_count has {sorted(widths)} columns for {plan.logical_experts} experts"
        return
    for row, entry in enumerate(plan.layers):
        try:
            problem = _posed(plan, row)
        except MoeplanError as error:
            yield f"layer {entry.layer}: {error.what}"
            continue
        from .problem import Decision

        fault = problem.check(Decision(np.array(plan.physical_to_logical[row], dtype=np.int32)))
        if fault is not None:
            yield f"layer {entry.layer}: {fault}"


def _count_faults(plan: ReplicaPlan) -> Iterator[str]:
    from .problem import Decision

    for row, entry in enumerate(plan.layers):
        problem = _posed(plan, row)
        decision = Decision(np.array(plan.physical_to_logical[row], dtype=np.int32))
        yield from score_faults([(entry.layer, entry.profile, problem.evaluate(decision))])
        balance = problem.balancedness(decision)
        if not math.isclose(balance, entry.balancedness, rel_tol=1e-9):
            yield f"layer {entry.layer} balancedness is {entry.balancedness:.6g}, it should be {balance:.6g}"


def _posed(plan: ReplicaPlan, row: int) -> ReplicaProblem:
    """The question of a layer on its summed counts, which decide feasibility whatever the steps."""
    from .problem import replica_problem, settings_from
    from .ranks import Ranks

    return replica_problem(
        plan.logical_count[row],
        Ranks(plan.nodes, plan.slots_per_rank, plan.platform.rank_speed),
        layer=plan.layer_ids[row],
        settings=settings_from(plan.settings),
        current=plan.current[row] if plan.current is not None else None,
    )


def _platform(plan: ReplicaPlan, platform: Platform | None) -> Finding:
    if platform is None:
        return Finding(
            "platform", None, f"{plan.platform.name!r} is no preset: name its file with --platform"
        )
    if plan.platform.fingerprint == platform.fingerprint:
        return Finding("platform", True, f"{platform.name}, as planned")
    sites = platform.topology.sites if platform.topology is not None else 0
    if plan.platform.name == platform.name and plan.platform.name == "gpu-cluster":
        return Finding("platform", None, "a generic cluster, given by options")
    pairs: dict[str, tuple[object, object]] = {"ranks": (plan.ranks, sites)}
    return finding("platform", named_differences(pairs, "links, nodes or GPUs"), "")
