"""What the plan file of any family says, held against itself and against its model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from ..common.errors import BadInput, MoeplanError
from .planning import ROWS
from .problem import SAME_COST, Cost, Problem
from .registry import solvers_of
from .result import Stop
from .summary import worst_stop

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ..hardware.platform import Platform
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from .plan import BaselineEntry, PlanFile, Scores
    from .result import Result

SettingsT = TypeVar("SettingsT", bound="DataclassInstance")

_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """Outcome of one check: `ok` is None where it could not be made; `detail` says what was found."""

    check: str
    ok: bool | None
    detail: str


def verify_scores(plan: PlanFile) -> list[Finding]:
    """Check that totals are sums, that no score is below its bound, and that gaps follow from both."""
    return [
        finding("totals", _total_faults(plan), "totals are the sums of the layers"),
        finding("bound and gap", _gap_faults(plan), "no score is below its bound, gaps follow from both"),
    ]


def verify_model(plan: PlanFile, model: MoEModel | None) -> Finding:
    """Check that the model is still the one that was planned."""
    if plan.model is None:
        return Finding("model", None, "the plan was made from counts alone")
    if model is None:
        return Finding("model", None, f"{plan.model.name!r} is no preset: name its file with --model")
    return finding("model", _model_faults(plan, model), f"{model.name}, as planned")


def verify_platform(plan: PlanFile, platform: Platform | None, faults: Iterable[str]) -> Finding:
    """Check that the machine is still the one that was planned; `faults` says in what a known one differs."""
    if platform is None:
        detail = f"{plan.platform.name!r} is no preset: name its file with --platform"
        return Finding("platform", None, detail)
    return finding("platform", faults, f"{platform.name}, as planned")


def same_steps(plan: PlanFile, profile_steps: Load, held_out_steps: Load | None) -> list[Finding]:
    """Check that replayed steps are those that the plan was made and measured on."""
    pairs = [("profile steps", plan.profile, profile_steps)]
    if plan.held_out is not None and held_out_steps is not None:
        pairs.append(("held-out steps", plan.held_out, held_out_steps))
    return [
        Finding(check, True, "the trace gives the steps that were planned on")
        if planned.fingerprint == replayed.fingerprint
        else Finding(check, False, "the trace gives other steps than those that were planned on")
        for check, planned, replayed in pairs
    ]


def verify_costs(
    plan: PlanFile, problems: Mapping[int, Problem[Any]], placed: Mapping[int, Any]
) -> list[Finding]:
    """Score every layer's decision again, on profile and held-out steps; compare with what is recorded."""
    profile, held_out = [], []
    for entry in plan.layers:
        problem, decision = problems[entry.layer], placed[entry.layer]
        profile.append((entry.layer, entry.profile, problem.evaluate(decision)))
        if entry.held_out is not None and problem.held_out is not None:
            held_out.append((entry.layer, entry.held_out, problem.held_out.evaluate(decision)))
    as_recorded = "every layer scores as recorded"
    findings = [finding("profile scores", score_faults(profile), as_recorded)]
    if held_out:
        findings.append(finding("held-out scores", score_faults(held_out), as_recorded))
    return findings


def settings_of(plan: PlanFile, kind: type[SettingsT]) -> SettingsT:
    """Rebuild the settings of a plan. Raises BadInput where they are not those of its family."""
    known = {field.name for field in fields(kind)}
    if set(plan.settings) != known:
        raise BadInput(
            f"the plan's settings are not those of {plan.family}",
            where="settings",
            allowed=", ".join(sorted(known)),
        )
    given: dict[str, Any] = dict(plan.settings)
    try:
        return kind(**given)
    except (MoeplanError, TypeError) as error:
        raise BadInput(f"the plan's settings cannot be used: {error}", where="settings") from error


def layer_id_faults(plan: PlanFile) -> Iterator[str]:
    """Say where layer ids repeat or fall."""
    ids = [entry.layer for entry in plan.layers]
    if ids != sorted(set(ids)):
        yield f"layer ids are not distinct and ascending: {ids}"


def finding(check: str, faults: Iterable[str], fine: str) -> Finding:
    """Return the outcome of a check that found `faults`; `fine` is what to say where there are none."""
    found = list(faults)
    if not found:
        return Finding(check, True, fine)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Finding(check, False, "; ".join(found[:_SHOWN]) + more)


def score_faults(layers: list[tuple[int, Scores, Cost]]) -> Iterator[str]:
    """Compare recorded with measured scores, by layer."""
    for layer, recorded, measured in layers:
        yield from _difference(f"layer {layer} total_s", recorded.total_s, measured.total_s)
        yield from _difference(f"layer {layer} objective_s", recorded.objective_s, measured.objective_s)
        names, known = sorted(recorded.parts), sorted(measured.parts)
        if names != known:
            yield f"layer {layer} parts are {', '.join(names)}, they should be {', '.join(known)}"
            continue
        for name in names:
            yield from _difference(f"layer {layer} {name}", recorded.parts[name], measured.parts[name])


def verify_bounds(plan: PlanFile, problems: Mapping[int, Problem[Any]]) -> Finding:
    """Prove every layer's bound again, as far as the question itself gives one.

    What a solver proved beyond that would take its search; the finding names it.
    """
    faults, claimed = [], set()
    for entry in plan.layers:
        own = problems[entry.layer].lower_bound()
        if entry.bound_s <= own.value_s * (1.0 + SAME_COST):
            continue
        if entry.bound_by == own.by:
            faults.append(
                f"layer {entry.layer}: bound_s is {entry.bound_s:.9g}, {own.by} gives {own.value_s:.9g}"
            )
        else:
            claimed.add(entry.bound_by)
    fine = "bounds are proven again"
    if claimed:
        fine += f", but for those by {', '.join(sorted(claimed))}, which only a search proves"
    return finding("bounds", faults, fine)


def verify_baselines(
    plan: PlanFile, run: Callable[[int, Sequence[str]], Mapping[str, Result[Any]]]
) -> Finding:
    """Run the published heuristics of every layer again, and compare with what they are said to get.

    `run(layer, names)` runs those of `names`. What searches is left out: another machine may round otherwise
    and end elsewhere.
    """
    known = solvers_of(plan.family)
    faults: list[str] = []
    left_out: set[str] = set()
    for entry in plan.layers:
        solvers = {name: known.get(name.removesuffix(ROWS)) for name in entry.baselines}
        faults += [f"there is no solver {name}" for name, info in solvers.items() if info is None]
        left_out |= {name for name, info in solvers.items() if info is not None and info.seeded}
        again = [name for name, info in solvers.items() if info is not None and not info.seeded]
        for name, result in run(entry.layer, again).items():
            recorded = entry.baselines[name]
            for scores, cost in ((recorded.profile, result.cost), (recorded.held_out, result.held_out)):
                if scores is not None and cost is not None and result.decision is not None:
                    faults += [f"{name}, {fault}" for fault in score_faults([(entry.layer, scores, cost)])]
                elif scores is not None:
                    faults.append(f"{name}, layer {entry.layer}: it finds no placement, but has scores")
    fine = "published heuristics score as recorded"
    if left_out:
        fine += f" ({', '.join(sorted(left_out))}: searches, not run again)"
    return finding("baselines", faults, fine)


def figure_faults(
    layer: int, figures: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> Iterator[str]:
    """Compare recorded with measured figures of a layer, by name; numbers in the same order."""
    for name, (recorded, measured) in figures.items():
        if len(recorded) != len(measured):
            yield f"layer {layer} {name}: {len(recorded)} numbers are recorded, {len(measured)} found"
            continue
        for mine, found in zip(recorded, measured, strict=True):
            yield from _difference(f"layer {layer} {name}", mine, found)


def named_differences(
    pairs: Mapping[str, tuple[Any, Any]], otherwise: str, *, alike: bool = False
) -> list[str]:
    """Differences by name; where none is recorded, in what the two must differ if they are not `alike`.

    `alike`: their fingerprints are equal, so that a difference means a changed file.
    """
    different = [
        f"{name}: the plan has {mine}, here {now}" for name, (mine, now) in pairs.items() if mine != now
    ]
    return different or ([] if alike else [f"they differ in {otherwise} (other fingerprint)"])


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
    for where, scores in ((name, total), *((f"{name} of a layer", each) for each in known)):
        yield from _difference(f"{where}: the sum of parts", math.fsum(scores.parts.values()), scores.total_s)
    for part, value in total.parts.items():
        of_layers = [scores.parts.get(part, math.nan) for scores in known]
        yield from _difference(f"{name}.{part}", value, math.fsum(of_layers))


def _gap_faults(plan: PlanFile) -> Iterator[str]:
    for entry in plan.layers:
        where = f"layer {entry.layer}"
        yield from _one_gap(where, entry.profile.objective_s, entry.bound_s, entry.gap)
        if entry.stop == Stop.OPTIMAL and entry.gap > SAME_COST:
            yield f"{where} is called optimal, with a gap of {entry.gap:.6g}"
        if entry.stop not in set(Stop):
            yield f"{where}: there is no stop {entry.stop!r}"
        if not entry.anytime:
            yield f"{where}: the search has no curve"
        else:
            yield from _difference(
                f"{where}: the curve's end", entry.anytime[-1].best_s, entry.profile.objective_s
            )
        if plan.family != "replicas":  # there baselines may break the rules that the bound is of
            for name, baseline in entry.baselines.items():
                if baseline.profile and entry.bound_s > baseline.profile.objective_s * (1.0 + SAME_COST):
                    yield f"{where}: {name} is below the bound"
    if all(entry.stop in set(Stop) for entry in plan.layers):
        worst = worst_stop(entry.stop for entry in plan.layers)
        if plan.totals.stop != worst:
            yield f"totals: stop is {plan.totals.stop!r}, the layers give {worst!r}"
    yield from _one_gap("totals", plan.totals.profile.objective_s, plan.totals.bound_s, plan.totals.gap)


def _one_gap(where: str, objective_s: float, bound_s: float, gap: float) -> Iterator[str]:
    if bound_s > objective_s * (1.0 + SAME_COST):
        yield f"{where}: the bound {bound_s:.6g} s is above the objective {objective_s:.6g} s"
        return
    expected = max(0.0, 1.0 - bound_s / objective_s) if objective_s > 0.0 else 0.0
    if not math.isclose(gap, expected, rel_tol=1e-6, abs_tol=1e-9):
        yield f"{where}: the gap is {gap:.6g}, objective and bound give {expected:.6g}"


def _model_faults(plan: PlanFile, model: MoEModel) -> list[str]:
    assert plan.model is not None
    alike = plan.model.fingerprint == model.fingerprint
    if alike and not {entry.layer for entry in plan.layers} <= set(model.moe_layers):
        return ["it has layers that the model has not"]
    pairs = {
        name: (getattr(plan.model, name), getattr(model, name))
        for name in ("experts", "top_k", "expert_bytes")
    }
    return named_differences(pairs, "shapes that a plan does not record", alike=alike)


def _difference(name: str, recorded: float, expected: float) -> Iterator[str]:
    if not math.isclose(recorded, expected, rel_tol=SAME_COST):
        yield f"{name} is {recorded:.9g}, it should be {expected:.9g}"
