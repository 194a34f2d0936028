"""What a plan of replicas says, held against itself, its model, its platform and its traffic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import MoeplanError
from ..problem import SAME_COST
from ..result import Stop
from ..verify import (
    Finding,
    finding,
    named_differences,
    same_steps,
    score_faults,
    verify_baselines,
    verify_bounds,
    verify_costs,
    verify_model,
    verify_platform,
    verify_scores,
)
from .cluster import cluster_nodes, cluster_of, link_rates, rates_of, resized
from .problem import Decision, replica_problem, settings_from
from .ranks import Ranks
from .rates import Rates

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .document import ReplicaLayer, ReplicaPlan
    from .problem import ReplicaProblem


def verify(plan: ReplicaPlan, model: MoEModel | None, platform: Platform | None) -> list[Finding]:
    """Check a plan without its traffic, against its model and platform as far as they are known."""
    machine = planned_machine(plan, platform) if platform is not None else None
    findings = [
        finding("placement", _placement_faults(plan), "every expert has a slot, and all rules are kept"),
        *verify_scores(plan),
        verify_model(plan, model),
        _platform(plan, platform, machine),
    ]
    if findings[0].ok:
        findings.append(
            finding(
                "figures",
                [*_summary_faults(plan), *_layer_faults(plan), *_rate_faults(plan, model, machine)],
                "what is told of balance, moves and duplicates follows from slots, counts and scores",
            )
        )
    if plan.profile.steps == 1 and plan.unit == "tokens" and findings[0].ok:
        findings.append(finding("recorded counts", _count_faults(plan), "counts and slots give the scores"))
    return findings


def rescore(
    plan: ReplicaPlan, model: MoEModel, platform: Platform, profile_steps: Load, held_out_steps: Load | None
) -> list[Finding]:
    """Score a plan again on replayed traffic, and compare with what it recorded."""
    from .document import decisions
    from .planning import baselines
    from .traffic import problems_of_traffic

    findings = same_steps(plan, profile_steps, held_out_steps)
    if not all(each.ok for each in findings):
        return findings
    problems = problems_of_traffic(plan, model, platform, profile_steps, held_out_steps)
    by_layer = {problem.layer: problem for problem in problems}
    return [
        *findings,
        *verify_costs(plan, by_layer, decisions(plan)),
        verify_bounds(plan, by_layer),
        verify_baselines(plan, lambda layer, names: baselines(by_layer[layer], plan.seed, names=names)),
    ]


def _placement_faults(plan: ReplicaPlan) -> Iterator[str]:
    told = {"groups": plan.groups, "split": plan.split}
    for name, value in told.items():
        if plan.settings.get(name) != value:
            yield f"{name} is {value!r}, in the settings {plan.settings.get(name)!r}"
    for row, entry in enumerate(plan.layers):
        try:
            problem = _posed(plan, row)
        except MoeplanError as error:
            yield f"layer {entry.layer}: {error.what}"
            continue
        fault = problem.check(_placed(plan, row))
        if fault is not None:
            yield f"layer {entry.layer}: {fault}"


def _summary_faults(plan: ReplicaPlan) -> Iterator[str]:
    """What is told of all layers, against the layers."""
    layers = plan.layers
    if (plan.unit == "tokens") != (plan.model is None) or (plan.total_layers is None) != (plan.model is None):
        yield "unit and total_layers do not fit whether there is a model"
    if plan.total_layers is not None and plan.layer_ids[-1] >= plan.total_layers:
        yield f"total_layers is {plan.total_layers}, but layer {plan.layer_ids[-1]} is planned"
    for name in ("duplicates", "moved_slots"):
        expected = sum(getattr(entry, name) for entry in layers)
        if getattr(plan, name) != expected:
            yield f"{name} is {getattr(plan, name)}, the layers have {expected}"
    for name, worst in (("balancedness", min), ("held_out_balancedness", min), ("max_over_bound", max)):
        values, told = [getattr(entry, name) for entry in layers], getattr(plan, name)
        if told is None or None in values:
            if told is not None or any(value is not None for value in values):
                yield f"{name} is missing in places"
            continue
        for part, expected in (("mean", math.fsum(values) / len(values)), ("worst", worst(values))):
            if not math.isclose(getattr(told, part), expected, rel_tol=1e-9):
                yield f"{name}.{part} is {getattr(told, part):.6g}, the layers give {expected:.6g}"


def _layer_faults(plan: ReplicaPlan) -> Iterator[str]:
    """What is told of every layer, against its slots, counts and scores."""
    counted = plan.settings.get("sources") != "slots"  # sources of tokens are not in the file
    for row, entry in enumerate(plan.layers):
        problem, decision, name = _posed(plan, row), _placed(plan, row), f"layer {entry.layer}"
        for figure, expected in (
            ("duplicates", problem.duplicates(decision)),
            ("moved_slots", problem.moved(decision)),
        ):
            if getattr(entry, figure) != expected:
                yield f"{name}: {figure} is {getattr(entry, figure)}, the slots give {expected}"
        tokens = problem.rank_tokens(decision)[0] / plan.profile.steps
        if counted and not np.allclose(entry.rank_tokens, tokens, rtol=1e-9, atol=1e-9 * tokens.max()):
            yield f"{name}: rank_tokens are not what counts and slots give"
        over = entry.profile.objective_s / entry.bound_s if entry.bound_s > 0.0 else math.inf
        if not math.isclose(entry.max_over_bound, over, rel_tol=1e-9):
            yield f"{name}: max_over_bound is {entry.max_over_bound:.6g}, objective and bound give {over:.6g}"
        if entry.stop not in set(Stop) or (entry.stop == Stop.OPTIMAL and entry.gap > SAME_COST):
            yield f"{name}: stop is {entry.stop!r} at a gap of {entry.gap:.3g}"
        yield from _balance_faults(plan, entry, float(problem.weight.sum()) / sum(problem.ranks.speed))


def _balance_faults(plan: ReplicaPlan, entry: ReplicaLayer, even: float) -> Iterator[str]:
    """Balancedness within 0 to 1; on one step of counts, that of a baseline follows from its largest load."""
    told = {name: (one.balancedness, one.held_out_balancedness) for name, one in entry.baselines.items()}
    for name, values in {"the plan": (entry.balancedness, entry.held_out_balancedness), **told}.items():
        for value in values:
            if value is not None and not 0.0 < value <= 1.0 + 1e-9:
                yield f"layer {entry.layer}, {name}: balancedness {value:.6g} is not between 0 and 1"
    if plan.unit == "seconds" or plan.profile.steps > 1:
        return
    for name, baseline in entry.baselines.items():
        if baseline.profile is None or baseline.balancedness is None:
            continue
        if not math.isclose(baseline.balancedness * baseline.profile.total_s, even, rel_tol=1e-9):
            yield f"layer {entry.layer}, {name}: balancedness and largest load contradict each other"


def _rate_faults(plan: ReplicaPlan, model: MoEModel | None, machine: Platform | None) -> Iterator[str]:
    """Rates against those of model and machine, where both are known."""
    if plan.unit == "tokens":
        rates = Rates()
    elif model is None or machine is None:
        return
    else:
        rates = rates_of(model, machine)
    expected = rates._replace(tile=settings_from(plan.settings).tile)._asdict()
    if plan.platform.rates.keys() != expected.keys():
        yield f"rates must be {', '.join(expected)}"
        return
    for name, value in expected.items():
        if not math.isclose(plan.platform.rates[name], value, rel_tol=1e-9):
            yield f"rate {name} is {plan.platform.rates[name]:.6g}, it should be {value:.6g}"


def _count_faults(plan: ReplicaPlan) -> Iterator[str]:
    for row, entry in enumerate(plan.layers):
        problem = _posed(plan, row)
        decision = _placed(plan, row)
        yield from score_faults([(entry.layer, entry.profile, problem.evaluate(decision))])
        balance = problem.balancedness(decision)
        if not math.isclose(balance, entry.balancedness, rel_tol=1e-9):
            yield f"layer {entry.layer} balancedness is {entry.balancedness:.6g}, it should be {balance:.6g}"


def _posed(plan: ReplicaPlan, row: int) -> ReplicaProblem:
    """The question of a layer on its summed counts, which decide feasibility whatever the steps."""
    return replica_problem(
        plan.logical_count[row],
        Ranks(plan.nodes, plan.slots_per_rank, plan.platform.rank_speed),
        layer=plan.layer_ids[row],
        settings=settings_from(plan.settings),
        current=plan.current[row] if plan.current is not None else None,
    )


def _placed(plan: ReplicaPlan, row: int) -> Decision:
    return Decision(np.array(plan.physical_to_logical[row], dtype=np.int32))


def planned_machine(plan: ReplicaPlan, platform: Platform) -> Platform | None:
    """Return the platform with the numbers and bandwidths that the plan was made for; None if it is another.

    A plan does not record which options gave its bandwidths, so that all combinations are tried.
    """
    if platform.fingerprint == plan.platform.fingerprint:
        return platform
    inside, across = plan.platform.inside_bytes_per_s, plan.platform.across_bytes_per_s
    for inner, outer in itertools.product((None, inside), (None, across)):
        try:
            machine = resized(
                platform,
                nodes=plan.nodes,
                ranks_per_node=plan.ranks // plan.nodes,
                inside_bytes_per_s=inner,
                across_bytes_per_s=outer,
            )
        except MoeplanError:
            continue
        if machine.fingerprint == plan.platform.fingerprint:
            return machine
    return None


def _platform(plan: ReplicaPlan, platform: Platform | None, machine: Platform | None) -> Finding:
    if platform is None:
        return verify_platform(plan, None, ())
    if machine is not None:
        topology, entry = cluster_of(machine), plan.platform
        told = (plan.ranks, plan.nodes, entry.inside_bytes_per_s, entry.across_bytes_per_s)
        here = (topology.sites, cluster_nodes(topology), *link_rates(machine))
        names = ("ranks", "nodes", "inside_bytes_per_s", "across_bytes_per_s")
        if told != here:
            pairs = {name: (a, b) for name, a, b in zip(names, told, here, strict=True) if a != b}
            return finding("platform", named_differences(pairs, ""), "")
        return Finding(
            "platform", True, f"{platform.name}, {plan.nodes} nodes, {plan.ranks} ranks, as planned"
        )
    sites = platform.topology.sites if platform.topology is not None else 0
    return finding("platform", named_differences({"ranks": (plan.ranks, sites)}, "links, nodes or GPUs"), "")
