"""The plan as one HTML page: no network, no scripts, the same bytes for the same plan."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .charts import factors_chart, gap_chart, loads_chart, part_label, part_names, parts_chart
from .facts import facts
from .machine import links_note, map_figure, shards, small_figure
from .scales import TimeFormat, bins, percent, time_format
from .svg import colour_key
from .verdict import Row, basis, best_baseline, comparison, ratio, reference, rows, seen, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...placement.plan import LayerEntry, PlanFile, Scores

_FOLDER = Path(__file__).parent


def render(plan: PlanFile) -> str:
    """Return the report of a plan as one self-contained HTML page."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ranked = rows(plan)
    return environment.get_template("plan.html.j2").render(
        plan=plan,
        steps=basis(plan),
        lead=_lead(plan),
        figures=_figures(plan),
        solvers=_solvers(plan, ranked),
        solvers_unit=_every_time(ranked).unit,
        with_risk=any(row.profile and row.profile.objective_s != row.profile.total_s for row in ranked),
        maps=_maps(plan),
        atlas=_atlas(plan),
        loads=_loads(plan),
        parts=_parts(ranked),
        gap_figure=gap_chart(plan.layers),
        layers=_layers(plan),
        factors=factors_chart(Counter(place.tp for layer in plan.layers for place in layer.experts)),
        facts=facts(plan),
    )


@dataclass(frozen=True)
class Lead:
    """The first sentence: how long a step takes, and what that is beside the best baseline."""

    time: str
    comparison: str


@dataclass(frozen=True)
class Figure:
    """One number of the headline."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Drawn:
    """Pictures with captions, the key to their colours, and a sentence on what was left out."""

    pictures: tuple[tuple[str, Markup], ...]
    key: Markup
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Cells as text. A row's flag marks the plan's own."""

    head: tuple[str, ...]
    rows: tuple[tuple[bool, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Charted:
    """A chart and the table that holds its numbers."""

    chart: Markup
    table: Table


def _lead(plan: PlanFile) -> Lead:
    mine = _must(seen(plan, plan.totals))
    return Lead(times([mine]).text(mine.total_s), comparison(plan))


def _figures(plan: PlanFile) -> tuple[Figure, ...]:
    """The plan and its best baseline on the steps that count; the bound and gap, which are of the profile."""
    totals, best = plan.totals, best_baseline(plan)
    time = times([totals.profile, totals.held_out, best.seen if best else None])
    found = [Figure(f"Plan, {basis(plan)}", time.text(_must(seen(plan, totals)).total_s), plan.solver)]
    if best and best.seen:
        found.append(Figure(f"Best baseline, {basis(plan)}", time.text(best.seen.total_s), best.name))
    if totals.held_out is not None:
        profile = time.text(totals.profile.total_s)
        found.append(Figure("Plan, profile", profile, "the steps it was planned on"))
    no_bound = "nothing is proven" if totals.bound_s == 0.0 else "no placement is faster on the profile"
    found.append(Figure("Lower bound, profile", time.text(totals.bound_s), no_bound))
    proven = "proven optimal" if totals.gap == 0.0 else "at most so far from the optimum, on the profile"
    found.append(Figure("Gap", percent(totals.gap), proven))
    return tuple(found)


def _every_time(ranked: Iterable[Row]) -> TimeFormat:
    return times(scores for row in ranked for scores in (row.profile, row.held_out))


def _solvers(plan: PlanFile, ranked: Sequence[Row]) -> tuple[dict[str, Any], ...]:
    time, bound_s = _every_time(ranked), plan.totals.bound_s

    def line(row: Row) -> dict[str, Any]:
        over = ratio(row.profile.objective_s, bound_s) if row.profile else None
        return {
            "name": row.name,
            "is_plan": row.is_plan,
            "profile": time.number(row.profile.total_s) if row.profile else "",
            "held_out": time.number(row.held_out.total_s) if row.held_out else "",
            "over": _fold(over) if over else "",
            "gap": percent(row.gap) if row.gap is not None else "",
            "verdict": row.verdict,
        }

    return tuple(line(row) for row in ranked)


def _site_loads(plan: PlanFile) -> dict[str, list[tuple[float, ...]]]:
    """Return loads [layers][N] of the reference baseline, if it has any, and of the plan last.

    A plan without held-out steps records no site loads of its baselines.
    """
    sites, name = plan.platform.sites, reference(plan)
    found = {}
    if name is not None:
        found[name] = [layer.baselines[name].held_out_site_load_s for layer in plan.layers]
    own = basis(plan) == "held-out"
    found["plan"] = [layer.held_out_site_load_s if own else layer.site_load_s for layer in plan.layers]
    return {who: loads for who, loads in found.items() if all(len(load) == sites for load in loads)}


def _sums(loads: Iterable[Sequence[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*loads, strict=True)]


def _maps(plan: PlanFile) -> Drawn | None:
    """Draw the machine with site loads summed over layers, for the reference baseline and the plan."""
    sums = {who: _sums(loads) for who, loads in _site_loads(plan).items()}
    if not sums:
        return None
    every = [load for loads in sums.values() for load in loads]
    scale = bins(min(every), max(every))
    time = time_format(max(every), digits=3)
    held = shards(plan.platform, [place.sites for layer in plan.layers for place in layer.experts])
    pictures = tuple(
        (
            who,
            map_figure(
                f"map-{index}",
                f"Site loads of {who}",
                plan.platform,
                loads,
                held=held if who == "plan" else None,
                bins=scale,
                time=time,
            ),
        )
        for index, (who, loads) in enumerate(sums.items())
    )
    return Drawn(pictures, colour_key("map-key", scale, time), links_note(plan.platform))


def _atlas(plan: PlanFile) -> Drawn | None:
    """Draw every layer small, baseline beside plan; None where the large picture already says it all."""
    series = _site_loads(plan)
    if len(plan.layers) < 2 or not series:
        return None
    every = [load for loads in series.values() for layer in loads for load in layer]
    scale, time = bins(min(every), max(every)), time_format(max(every), digits=3)
    pictures = []
    for index, layer in enumerate(plan.layers):
        shown = [loads[index] for loads in series.values()]
        title = f"Layer {layer.layer}: {' and '.join(series)}"
        busiest = " → ".join(time.number(max(load)) for load in shown)
        picture = small_figure(f"layer-{index}", title, plan.platform, shown, scale)
        pictures.append((f"{layer.layer}: {busiest}", picture))
    note = f"{' → '.join(series)}, in {time.unit}" if len(series) > 1 else f"in {time.unit}"
    return Drawn(tuple(pictures), colour_key("atlas-key", scale, time), note)


def _loads(plan: PlanFile) -> Markup | None:
    """Sort the sites of every layer by load, then add up layers by rank: no layer hides another's peak."""
    ranked = {
        who: _sums(sorted(load, reverse=True) for load in loads) for who, loads in _site_loads(plan).items()
    }
    if not ranked:
        return None
    return loads_chart(ranked, time_format(max(max(loads) for loads in ranked.values())))


def _parts(ranked: Sequence[Row]) -> Charted:
    bars = {f"{row.name} (plan)" if row.is_plan else row.name: row.seen for row in ranked}
    time = times(bars.values())
    names = part_names(bars)
    head = ("solver", *(f"{part_label(name)}, {time.unit}" for name in names), f"sum, {time.unit}")
    cells = []
    for row, scores in zip(ranked, bars.values(), strict=True):
        numbers = (*(scores.parts.get(name, 0.0) for name in names), scores.total_s) if scores else ()
        empty = ("does not fit", *("" for _ in names))
        cells.append((row.is_plan, (row.name, *(map(time.number, numbers) if scores else empty))))
    return Charted(parts_chart(bars, time), Table(head, tuple(cells)))


def _layers(plan: PlanFile) -> Table:
    name = reference(plan)
    time = times(s for layer in plan.layers for s in (layer.profile, layer.held_out))
    with_held_out = plan.totals.held_out is not None
    head = ["layer", f"profile, {time.unit}"]
    head += [f"held-out, {time.unit}"] if with_held_out else []
    head += [f"bound, {time.unit}", "gap", "bound by", "stop"]
    head += [f"{name} ÷ plan, {basis(plan)}"] if name else []

    def cells(layer: LayerEntry) -> tuple[str, ...]:
        line = [str(layer.layer), time.number(layer.profile.total_s)]
        line += [time.number(layer.held_out.total_s) if layer.held_out else ""] if with_held_out else []
        line += [time.number(layer.bound_s), percent(layer.gap), layer.bound_by, layer.stop.replace("_", " ")]
        line += [_beside(plan, layer, name)] if name else []
        return tuple(line)

    return Table(tuple(head), tuple((False, cells(layer)) for layer in plan.layers))


def _beside(plan: PlanFile, layer: LayerEntry, name: str) -> str:
    """Return a baseline's time over the plan's on one layer, saying so where the plan loses."""
    other, mine = seen(plan, layer.baselines[name]), seen(plan, layer)
    if other is None or mine is None:
        return "does not fit"
    value = ratio(other.total_s, mine.total_s)
    if value is None:
        return ""
    return _fold(value) if value >= 1.0 else f"{_fold(value)}, plan is slower"


def _fold(value: float) -> str:
    return f"{value:.3f}\N{MULTIPLICATION SIGN}"


def _must(scores: Scores | None) -> Scores:
    """Return a plan's own scores, which exist on the steps that its report speaks of."""
    assert scores is not None
    return scores
