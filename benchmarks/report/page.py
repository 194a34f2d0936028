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
from .machine import is_grid, links_note, map_figure, shards, small_figure
from .scales import TimeFormat, bins, percent, time_format
from .svg import colour_key
from .verdict import Row, basis, best_baseline, comparison, pace, ratio, reference, rows, seen, times

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
        is_grid=is_grid(plan.platform),
        lead=_lead(plan),
        figures=_figures(plan),
        solvers=_solvers(plan, ranked),
        solvers_unit=_every_time(ranked).unit,
        bound=_every_time(ranked).text(plan.totals.bound_s),
        with_risk=any(row.profile and row.profile.objective_s != row.profile.total_s for row in ranked),
        maps=_maps(plan),
        atlas=_atlas(plan),
        loads=_loads(plan),
        parts=_parts(ranked),
        gap_figure=gap_chart(plan.layers),
        layers=_layers(plan),
        layers_note=_layers_note(plan),
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
class Picture:
    """A drawing with its name and a line on what it shows."""

    name: str
    note: str
    drawing: Markup


@dataclass(frozen=True)
class Drawn:
    """Pictures on one colour scale, the key to it, and what to know when reading them."""

    pictures: tuple[Picture, ...]
    key: Markup
    note: str


@dataclass(frozen=True)
class Column:
    """Head of a column that holds words or numbers."""

    name: str
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Cells as text. A row's flag marks the plan's own."""

    head: tuple[Column, ...]
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
    proven = "proven optimal" if totals.gap == 0.0 else "no placement saves more, on the profile"
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


def _typical(plan: PlanFile) -> int:
    """Return the index of the layer whose gain over the reference baseline is the median; without one, whose time."""
    name = reference(plan)

    def gain(index: int) -> float:
        layer = plan.layers[index]
        mine, other = seen(plan, layer), seen(plan, layer.baselines[name]) if name else None
        own_s = mine.total_s if mine else 0.0
        return (ratio(other.total_s, own_s) or 0.0) if other else own_s

    return sorted(range(len(plan.layers)), key=gain)[(len(plan.layers) - 1) // 2]


def _maps(plan: PlanFile) -> Drawn | None:
    """Draw the machine with the site loads of a typical layer, for the reference baseline and the plan."""
    index = _typical(plan)
    shown = {who: loads[index] for who, loads in _site_loads(plan).items()}
    if not shown:
        return None
    every = [load for loads in shown.values() for load in loads]
    scale, time = bins(min(every), max(every)), time_format(max(every), digits=3)
    layer = plan.layers[index]
    held = shards(plan.platform, [place.sites for place in layer.experts])

    def picture(who: str, loads: Sequence[float]) -> Picture:
        own = who == "plan"
        drawing = map_figure(
            "map-plan" if own else "map-baseline",
            f"Site loads of {who} in layer {layer.layer}",
            plan.platform,
            loads,
            held=held if own else None,
            bins=scale,
            time=time,
        )
        mean_s = math.fsum(loads) / len(loads)
        note = f"busiest {time.text(max(loads))}, mean {time.text(mean_s)}"
        return Picture(f"plan ({plan.solver})" if own else who, note, drawing)

    pictures = tuple(picture(who, loads) for who, loads in shown.items())
    return Drawn(pictures, colour_key("map-key", scale, time), _maps_note(plan, index, scale.edges[0], time))


def _maps_note(plan: PlanFile, index: int, start_s: float, time: TimeFormat) -> str:
    """Say which layer the large pictures show and why, and what their colours leave out."""
    name = reference(plan)
    middle = f"the median gain over {name}" if name else "the median time"
    several = len(plan.layers) > 1
    sentences = (
        f"Layer {plan.layers[index].layer}{f', the one with {middle}' if several else ''}.",
        "Layers run one after another, so a sum over them would hide the peaks." if several else "",
        links_note(plan.platform),
        f"Colours start at {time.text(start_s)}." if start_s > 0.0 else "",
        "" if len(_site_loads(plan)) > 1 else "The plan file has no site loads of baselines on these steps.",
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _atlas(plan: PlanFile) -> Drawn | None:
    """Draw every layer small, baseline beside plan; None where the large picture already says it all."""
    series = _site_loads(plan)
    if len(plan.layers) < 2 or not series:
        return None
    every = [load for loads in series.values() for layer in loads for load in layer]
    scale, time = bins(min(every), max(every)), time_format(max(every), digits=3)

    def picture(index: int, layer: int) -> Picture:
        shown = [loads[index] for loads in series.values()]
        title = f"Layer {layer}: {' and '.join(series)}"
        busiest = " → ".join(time.number(max(load)) for load in shown)
        return Picture(
            str(layer), busiest, small_figure(f"layer-{index}", title, plan.platform, shown, scale)
        )

    pictures = tuple(picture(index, layer.layer) for index, layer in enumerate(plan.layers))
    return Drawn(pictures, colour_key("atlas-key", scale, time), f"{' → '.join(series)}, {time.unit}")


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
    head = [Column(f"{name}, {time.unit}") for name in (*map(part_label, names), "sum")]
    cells = []
    for row, scores in zip(ranked, bars.values(), strict=True):
        numbers = (*(scores.parts.get(name, 0.0) for name in names), scores.total_s) if scores else ()
        empty = ("does not fit", *("" for _ in names))
        cells.append((row.is_plan, (row.name, *(map(time.number, numbers) if scores else empty))))
    return Charted(parts_chart(bars, time), Table((Column("solver", words=True), *head), tuple(cells)))


def _layers(plan: PlanFile) -> Table:
    """One row per layer; how bounds were proven is a column only where layers differ in it."""
    name, varied = reference(plan), len(_arguments(plan)) > 1
    time = times(s for layer in plan.layers for s in (layer.profile, layer.held_out))
    with_held_out = plan.totals.held_out is not None
    head = [Column("layer", words=True), Column(f"profile, {time.unit}")]
    head += [Column(f"held-out, {time.unit}")] if with_held_out else []
    head += [Column(f"bound, {time.unit}"), Column("gap"), Column("stop", words=True)]
    head += [Column(f"{name} ÷ plan"), Column(f"plan beside {name}", words=True)] if name else []
    head += [Column("bound by", words=True)] if varied else []

    def cells(layer: LayerEntry) -> tuple[str, ...]:
        line = [str(layer.layer), time.number(layer.profile.total_s)]
        line += [time.number(layer.held_out.total_s) if layer.held_out else ""] if with_held_out else []
        line += [time.number(layer.bound_s), percent(layer.gap), layer.stop.replace("_", " ")]
        line += _beside(plan, layer, name) if name else []
        line += [layer.bound_by] if varied else []
        return tuple(line)

    return Table(tuple(head), tuple((False, cells(layer)) for layer in plan.layers))


def _arguments(plan: PlanFile) -> tuple[str, ...]:
    return tuple(dict.fromkeys(layer.bound_by for layer in plan.layers))


def _layers_note(plan: PlanFile) -> str:
    """Say how bounds were proven, and on how many layers the plan beats the best baseline of the whole."""
    best, arguments = best_baseline(plan), _arguments(plan)
    proven = f"Every bound is proven by: {arguments[0]}." if len(arguments) == 1 else ""
    if best is None or len(plan.layers) < 2:
        return proven
    words = Counter(_beside(plan, layer, best.name)[1] for layer in plan.layers)
    counted = " and ".join(f"{word} on {count}" for word, count in words.most_common())
    beside = f"Beside {best.name}, the best baseline on {basis(plan)} steps, the plan is {counted}"
    return f"{proven} {beside} of {len(plan.layers)} layers.".strip()


def _beside(plan: PlanFile, layer: LayerEntry, name: str) -> list[str]:
    """Return a baseline's time over the plan's on one layer, and the same in a word."""
    other, mine = seen(plan, layer.baselines[name]), seen(plan, layer)
    value = ratio(other.total_s, mine.total_s) if other and mine else None
    if value is None or other is None or mine is None:
        return ["—", "not compared"]
    return [_fold(value), pace(mine.total_s, other.total_s)]


def _fold(value: float) -> str:
    return f"{value:.3f}\N{MULTIPLICATION SIGN}"


def _must(scores: Scores | None) -> Scores:
    """Return a plan's own scores, which exist on the steps that its report speaks of."""
    assert scores is not None
    return scores
