"""Who is how good, in words: the plan and every baseline on the same steps.

Held-out steps decide wherever there are any; otherwise all is said of the profile, and named so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...placement.problem import SAME_COST
from .scales import TimeFormat, percent, time_format, token_format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...placement.plan import BaselineEntry, LayerEntry, PlanFile, Scores

_CLASSIC = "ep"
_LOADS = {"as fast": "as low", "faster": "lower", "slower": "higher"}


@dataclass(frozen=True)
class Row:
    """One solver on the whole plan. `gap` is None where nothing fits; `verdict` compares with the plan."""

    name: str
    is_plan: bool
    profile: Scores | None
    held_out: Scores | None
    seen: Scores | None
    gap: float | None
    stop: str
    verdict: str


def basis(plan: PlanFile) -> str:
    """Return "held-out" or "profile": the steps that the report speaks of."""
    return "profile" if plan.totals.held_out is None else "held-out"


def seen(plan: PlanFile, entry: LayerEntry | BaselineEntry | None) -> Scores | None:
    """Return an entry's scores on the steps that the report speaks of; None where it has none."""
    if entry is None:
        return None
    return entry.profile if plan.totals.held_out is None else entry.held_out


def seen_of_plan(plan: PlanFile) -> Scores:
    """Return the whole plan's scores on the steps that the report speaks of."""
    return plan.totals.held_out or plan.totals.profile


def rows(plan: PlanFile) -> tuple[Row, ...]:
    """Return the plan and its baselines, fastest first; those that do not fit come last."""
    totals = plan.totals
    bound_s = totals.bound_s
    mine, stop = seen_of_plan(plan), totals.stop.replace("_", " ")
    found = [Row(plan.solver, True, totals.profile, totals.held_out, mine, totals.gap, stop, "the plan")]
    for name, entry in totals.baselines.items():
        scores = seen(plan, entry)
        gap = gap_to(entry.profile.objective_s, bound_s) if entry.profile else None
        verdict = _against(scores, mine, plan)
        stop = "baseline" if entry.profile else "does not fit"
        found.append(Row(name, False, entry.profile, entry.held_out, scores, gap, stop, verdict))
    return tuple(sorted(found, key=lambda row: row.seen.total_s if row.seen else float("inf")))


def own_objective(plan: PlanFile) -> str:
    """Say what bound and gap are of where that is not the profile's mean time; "" where it is.

    Searches also count steps drawn beside the recorded ones, and risk where it is asked for.
    """
    entries = [plan.totals.profile, *(b.profile for b in plan.totals.baselines.values() if b.profile)]
    if all(abs(each.objective_s - each.total_s) <= SAME_COST * each.total_s for each in entries):
        return ""
    counted = ["the recorded steps"]
    if plan.settings.get("resample", 0) != 0:
        counted.append("steps drawn beside them")
    if plan.settings.get("drift"):
        counted.append("loads that drift")
    if plan.settings.get("risk"):
        counted.append("risk")
    return " and ".join([", ".join(counted[:-1]), counted[-1]]) if len(counted) > 1 else "what was minimised"


def best_baseline(plan: PlanFile) -> Row | None:
    """Return the fastest baseline, or None where none fits."""
    return next((row for row in rows(plan) if not row.is_plan and row.seen), None)


def reference(plan: PlanFile) -> str | None:
    """Name the baseline that the plan is drawn beside: `ep` where it fits, else the slowest."""
    fitting = [row.name for row in rows(plan) if not row.is_plan and row.seen]
    if _CLASSIC in fitting:
        return _CLASSIC
    return fitting[-1] if fitting else None


def comparison(plan: PlanFile) -> str:
    """Return for example "4.2% less than lpt, the best baseline"; "" where no baseline fits."""
    best, mine = best_baseline(plan), seen_of_plan(plan)
    if best is None or best.seen is None:
        return ""
    other_s = best.seen.total_s
    words = {"as fast": "the same as", "faster": "less than", "slower": "more than"}
    word = words[pace(mine.total_s, other_s)]
    if word == words["as fast"]:
        return f"{word} {best.name}, the best baseline"
    share = ratio(abs(mine.total_s - other_s), other_s)
    return f"{percent(share) + ' ' if share else ''}{word} {best.name}, the best baseline"


def ratio(value_s: float, base_s: float) -> float | None:
    """Return value / base, or None where the base is zero."""
    return value_s / base_s if base_s > 0.0 else None


def pace(time_s: float, other_s: float) -> str:
    """Return "faster", "slower", or "as fast": what the first is beside the second."""
    if abs(time_s - other_s) <= SAME_COST * other_s:
        return "as fast"
    return "faster" if time_s < other_s else "slower"


def in_tokens(plan: PlanFile) -> bool:
    """Tell whether the plan's times are tokens of the fullest rank, as in plans without a model."""
    return getattr(plan, "unit", "seconds") == "tokens"


def pace_word(word: str, plan: PlanFile) -> str:
    """Return what `pace` says, in the words for the plan's unit."""
    return _LOADS[word] if in_tokens(plan) else word


def times(scores: Iterable[Scores | None], plan: PlanFile) -> TimeFormat:
    """Return the one format in which these scores of a plan can be compared."""
    largest = max((s.total_s for s in scores if s), default=0.0)
    return token_format(largest) if in_tokens(plan) else time_format(largest)


def gap_to(objective_s: float, bound_s: float) -> float:
    """Return (objective - bound) / objective, at least 0.0."""
    return max(0.0, 1.0 - bound_s / objective_s) if objective_s > 0.0 else 0.0


def _against(scores: Scores | None, mine: Scores, plan: PlanFile) -> str:
    if scores is None:
        return "does not fit"
    pair = scores.total_s, mine.total_s
    word = pace_word(pace(*pair), plan)
    if pace(*pair) == "as fast":
        return f"{word} as the plan"
    share = ratio(abs(pair[0] - pair[1]), mine.total_s)
    return f"{percent(share)} {word} than the plan" if share else f"{word} than the plan"
