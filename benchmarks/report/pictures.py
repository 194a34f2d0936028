"""What of a plan is drawn on the machine: a typical layer large, every layer small, sites by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from .charts import loads_chart
from .machine import links_note, map_figure, shards, small_figure
from .scales import TimeFormat, bins, time_format
from .svg import colour_key
from .verdict import basis, ratio, reference, seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...placement.channels.document import ChannelPlan


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


def typical_layer(plan: ChannelPlan) -> Drawn | None:
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


def every_layer(plan: ChannelPlan) -> Drawn | None:
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


def sites_by_rank(plan: ChannelPlan) -> Markup | None:
    """Sort the sites of every layer by load, then add up layers by rank: no layer hides another's peak."""
    ranked = {
        who: _sums(sorted(load, reverse=True) for load in loads) for who, loads in _site_loads(plan).items()
    }
    if not ranked:
        return None
    return loads_chart(ranked, time_format(max(max(loads) for loads in ranked.values())))


def _site_loads(plan: ChannelPlan) -> dict[str, list[tuple[float, ...]]]:
    """Return loads [layers][N] of the reference baseline, if it has any, and of the plan last.

    A plan without held-out steps records no site loads of its baselines.
    """
    sites, name = plan.platform.sites, reference(plan)
    found: dict[str, list[tuple[float, ...]]] = {}
    if name is not None:
        entries = [layer.baselines.get(name) for layer in plan.layers]
        found[name] = [entry.held_out_site_load_s if entry else () for entry in entries]
    own = basis(plan) == "held-out"
    found["plan"] = [layer.held_out_site_load_s if own else layer.site_load_s for layer in plan.layers]
    return {who: loads for who, loads in found.items() if all(len(load) == sites for load in loads)}


def _sums(loads: Iterable[Sequence[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*loads, strict=True)]


def _typical(plan: ChannelPlan) -> int:
    """Return the index of the layer with the median gain over the reference baseline, or the median time."""
    name = reference(plan)

    def gain(index: int) -> float:
        layer = plan.layers[index]
        mine, other = seen(plan, layer), seen(plan, layer.baselines.get(name or ""))
        own_s = mine.total_s if mine else 0.0
        return (ratio(other.total_s, own_s) or 0.0) if other else own_s

    return sorted(range(len(plan.layers)), key=gain)[(len(plan.layers) - 1) // 2]


def _maps_note(plan: ChannelPlan, index: int, start_s: float, time: TimeFormat) -> str:
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
