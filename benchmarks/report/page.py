"""The plan as one HTML page: no network, no scripts, the same bytes for the same plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...common.errors import BadInput
from ...placement.channels.document import ChannelPlan
from .charts import factors_chart, gap_chart, part_label, part_names, parts_chart
from .facts import facts
from .machine import is_grid
from .pictures import every_layer, sites_by_rank, typical_layer
from .scales import percent
from .sheet import Column, Table
from .verdict import (
    Row,
    basis,
    best_baseline,
    comparison,
    in_tokens,
    own_objective,
    pace,
    pace_word,
    ratio,
    reference,
    rows,
    seen,
    seen_of_plan,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...placement.plan import LayerEntry, PlanFile

_FOLDER = Path(__file__).parent


def render(plan: PlanFile) -> str:
    """Return a plan's report as one self-contained HTML page. Raises BadInput where nothing is placed."""
    drawn = plan if isinstance(plan, ChannelPlan) else None
    if not plan.layers or (drawn and not (drawn.layers[0].experts and drawn.platform.sites)):
        raise BadInput("the plan places no experts", where="keys 'layers' and 'platform'", fix="plan again")
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ranked, mine = rows(plan), seen_of_plan(plan)
    return environment.get_template("plan.html.j2").render(
        plan=plan,
        subject=plan.model.name if plan.model else "counted traffic",
        steps=basis(plan),
        is_grid=drawn is not None and is_grid(drawn.platform),
        tokens=in_tokens(plan),
        time=times([mine], plan).text(mine.total_s),
        comparison=comparison(plan),
        figures=_figures(plan),
        solvers=_solvers(plan, ranked),
        bound=times([plan.totals.profile], plan).text(plan.totals.bound_s),
        counted=own_objective(plan),
        maps=drawn and typical_layer(drawn),
        atlas=drawn and every_layer(drawn),
        loads=drawn and sites_by_rank(drawn),
        parts=None if in_tokens(plan) else _parts(plan, ranked),
        gap_figure=gap_chart(plan.layers),
        layers=_layers(plan),
        layers_note=_layers_note(plan),
        factors=drawn
        and factors_chart(Counter(place.tp for layer in drawn.layers for place in layer.experts)),
        facts=facts(plan),
    )


def _factors(plan: ChannelPlan) -> Markup:
    return factors_chart(Counter(place.tp for layer in plan.layers for place in layer.experts))


@dataclass(frozen=True)
class Figure:
    """One number of the headline."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Charted:
    """A chart and the table that holds its numbers."""

    chart: Markup
    table: Table


def _figures(plan: PlanFile) -> tuple[Figure, ...]:
    """The plan and its best baseline on the steps that count; bound and gap, and what they are of."""
    totals, best = plan.totals, best_baseline(plan)
    time = times([totals.profile, totals.held_out, best.seen if best else None], plan)
    found = [Figure(f"Plan, {basis(plan)}", time.text(seen_of_plan(plan).total_s), plan.solver)]
    if best and best.seen:
        found.append(Figure(f"Best baseline, {basis(plan)}", time.text(best.seen.total_s), best.name))
    if totals.held_out is not None:
        profile = time.text(totals.profile.total_s)
        found.append(Figure("Plan, profile", profile, "the steps it was planned on"))
    counted = own_objective(plan)
    of = "profile"
    if counted:
        of = "objective"
        found.append(Figure("Plan, objective", time.text(totals.profile.objective_s), f"counts {counted}"))
    no_bound = "nothing is proven" if totals.bound_s == 0.0 else f"no placement goes below, on the {of}"
    found.append(Figure(f"Lower bound, {of}", time.text(totals.bound_s), no_bound))
    proven = "proven optimal" if totals.gap == 0.0 else f"no placement saves more, on the {of}"
    found.append(Figure("Gap", percent(totals.gap), proven))
    return tuple(found)


def _solvers(plan: PlanFile, ranked: Sequence[Row]) -> Table:
    time = times((scores for row in ranked for scores in (row.profile, row.held_out)), plan)
    with_held_out, counted = plan.totals.held_out is not None, own_objective(plan)
    head = [Column("solver", words=True), Column(f"profile, {time.unit}")]
    head += [Column(f"held-out, {time.unit}")] if with_held_out else []
    head += [Column(f"objective, {time.unit}")] if counted else []
    head += [Column("over bound"), Column("gap"), Column(f"on {basis(plan)} steps", words=True)]

    def cells(row: Row) -> tuple[str, ...]:
        line = [row.name, time.number(row.profile.total_s) if row.profile else "—"]
        line += [time.number(row.held_out.total_s) if row.held_out else "—"] if with_held_out else []
        if counted:
            line.append(time.number(row.profile.objective_s) if row.profile else "—")
        over = ratio(row.profile.objective_s, plan.totals.bound_s) if row.profile else None
        gap = percent(row.gap) if row.gap is not None else "—"
        return (*line, _fold(over) if over else "—", gap, row.verdict)

    return Table(tuple(head), tuple((row.is_plan, cells(row)) for row in ranked))


def _parts(plan: PlanFile, ranked: Sequence[Row]) -> Charted:
    bars = {f"{row.name} (plan)" if row.is_plan else row.name: row.seen for row in ranked}
    time = times(bars.values(), plan)
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
    time = times((s for layer in plan.layers for s in (layer.profile, layer.held_out)), plan)
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
    other, mine = seen(plan, layer.baselines.get(name)), seen(plan, layer)
    value = ratio(other.total_s, mine.total_s) if other and mine else None
    if value is None or other is None or mine is None:
        return ["—", "not compared"]
    return [_fold(value), pace_word(pace(mine.total_s, other.total_s), plan)]


def _fold(value: float) -> str:
    return f"{value:.3f}\N{MULTIPLICATION SIGN}"
