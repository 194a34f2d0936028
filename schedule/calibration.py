"""Calibrate adaptive routing: what pruning costs in routing mass, against what it saves in time.

SPIMOE 3.2.1 searches a grid for the Pareto front of accuracy and performance. Accuracy needs the model; what
a trace tells is the share of router weight that the kept experts carry. Time is J of the `channels` family on
a placement, summed over layers, mean over decode steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..common.errors import BadInput, UsageError
from ..workload.pruning import PruningSettings
from ..workload.rows import prune_replayed
from .moe_time import layer_lives

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..workload.load import Load
    from ..workload.rows import Replayed
    from .moe_time import MoeTimer

Variant = Literal["static", "dynamic", "boost"]
VARIANTS: Final[tuple[Variant, ...]] = ("static", "dynamic", "boost")
#: Names the cognitive experts of every layer, bool [L, E], for a number of them.
Cognitive = Callable[[int], "NDArray[np.bool_]"]

_ALPHAS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_DEPTH: Final = (0.0, 0.1)
_THINK: Final = (0.5, 0.75)
_BOOSTS: Final = (1.25, 1.5, 2.0)
_COGNITIVE_SHARES: Final = (16, 8)


@dataclass(frozen=True)
class Point:
    """One setting, and what it does to decode steps.

    - `kept_mass`: share of router weight that is kept; `experts_per_token`; means over tokens and layers.
    - `j_s`: seconds of the experts of a step, all layers, mean over steps.
    - `dropped_by_weight`, `dropped_by_congestion`: shares of all choices.
    """

    settings: PruningSettings
    kept_mass: float
    experts_per_token: float
    j_s: float
    dropped_by_weight: float
    dropped_by_congestion: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Measure:
    """Decode steps and a placement, on which settings are tried.

    `timers` by layer must cover the trace's layers. `cognitive` is asked for the experts to favour; None
    where settings count none. Raises BadInput where a layer has no placement.
    """

    replayed: Replayed
    timers: Mapping[int, MoeTimer]
    cognitive: Cognitive | None = None
    model_layers: int | None = None

    def __post_init__(self) -> None:
        missing = [layer for layer in self.replayed.load.layers if layer not in self.timers]
        if missing:
            raise BadInput(
                f"the placement has no layer {missing[0]} of the trace",
                fix="plan that layer too, or leave it out with --layers",
            )
        for layer, timer in self.timers.items():
            if timer.experts != self.replayed.load.num_experts:
                raise BadInput(
                    f"the placement has {timer.experts} experts in layer {layer}, "
                    f"the trace {self.replayed.load.num_experts}",
                    fix="take a placement of the trace's model",
                )

    def point(self, settings: PruningSettings) -> Point:
        """Prune the steps and time them; raises what `workload.pruning.prune` raises."""
        return self.pruned(settings)[0]

    def pruned(self, settings: PruningSettings) -> tuple[Point, Load]:
        """The same, with the pruned steps."""
        load = self.replayed.load
        favoured = None
        if settings.cognitive:
            if self.cognitive is None:
                raise UsageError("the settings count cognitive experts, and none are known")
            favoured = self.cognitive(settings.cognitive)
        used = {layer: self.timers[layer] for layer in load.layers}
        left, done = prune_replayed(
            self.replayed,
            settings,
            cognitive=favoured,
            lives=layer_lives(used) if settings.congestion else None,
            model_layers=self.model_layers,
        )
        choices = int((load.experts >= 0).sum())
        return Point(
            settings=settings,
            kept_mass=float(done.kept_mass.mean()),
            experts_per_token=float(done.experts_per_token.mean()),
            j_s=mean_j_s(left, used),
            dropped_by_weight=done.by_weight / choices,
            dropped_by_congestion=done.by_congestion / choices,
        ), left


def mean_j_s(load: Load, timers: Mapping[int, MoeTimer]) -> float:
    """Mean over decode steps of J, summed over the load's layers."""
    return sum(
        float(timers[layer].steps_s(load.experts[:, :, index]).sum(axis=1).mean())
        for index, layer in enumerate(load.layers)
    )


def grid(variant: Variant, top_k: int, num_experts: int) -> Iterator[PruningSettings]:
    """Settings to try. Each is there with and without congestion pruning.

    - "static": one alpha for all layers and phases, k_min 1 or half of top-k.
    - "dynamic": alphas that rise with depth or not, lower in the think phase by a factor, and one expert more
      at least in shallow layers (SPIMOE 4.3).
    - "boost": the dynamic ones that rise with depth, with beta and a share of the experts as cognitive ones.

    Raises UsageError on an unknown variant.
    """
    if variant not in VARIANTS:
        raise UsageError(f"unknown variant {variant!r}", allowed=", ".join(VARIANTS))
    floors = sorted({1, max(1, top_k // 2)})
    for settings in _static(floors) if variant == "static" else _dynamic(floors, top_k, variant, num_experts):
        yield settings
        yield replace(settings, congestion=True)


def _static(floors: Sequence[int]) -> Iterator[PruningSettings]:
    for floor in floors:
        yield from (PruningSettings(uniform=alpha, k_min=(floor,) * 3) for alpha in _ALPHAS)


def _dynamic(
    floors: Sequence[int], top_k: int, variant: Variant, num_experts: int
) -> Iterator[PruningSettings]:
    for floor in floors:
        k_min = (min(floor + 1, top_k), floor, floor)
        for answer in _ALPHAS[1::2]:
            for rise in _DEPTH if variant == "dynamic" else _DEPTH[-1:]:
                for factor in _THINK if variant == "dynamic" else _THINK[-1:]:
                    tiers = tuple(min(1.0, max(0.05, answer + step * rise)) for step in (-1, 0, 1))
                    shallow, middle, deep = tiers
                    base = PruningSettings(
                        think=(factor * shallow, factor * middle, factor * deep),
                        answer=(shallow, middle, deep),
                        k_min=k_min,
                    )
                    if variant == "dynamic":
                        yield base
                        continue
                    for boost in _BOOSTS:
                        for share in _COGNITIVE_SHARES:
                            yield replace(base, boost=boost, cognitive=max(1, num_experts // share))


def calibrate(measure: Measure, candidates: Iterable[PruningSettings]) -> list[Point]:
    """Try every candidate, and doing nothing, and return the Pareto front (see `pareto`)."""
    return pareto([measure.point(PruningSettings()), *map(measure.point, candidates)])


def pareto(points: Sequence[Point]) -> list[Point]:
    """Points of which no other keeps as much mass in less time, or more mass in as little; fastest last.

    Of equal points the first one stays.
    """
    ordered = sorted(range(len(points)), key=lambda i: (-points[i].kept_mass, points[i].j_s, i))
    front: list[Point] = []
    for index in ordered:
        if not front or points[index].j_s < front[-1].j_s:
            front.append(points[index])
    return front


def choose(front: Sequence[Point], keep: float) -> Point:
    """The fastest point of a front that keeps at least the share `keep` of routing mass.

    Raises UsageError on a share outside (0, 1]; doing nothing keeps all, so that there always is one.
    """
    if not 0.0 < keep <= 1.0:
        raise UsageError(f"the share of mass to keep is {keep!r}", allowed="above 0, at most 1")
    fit = [point for point in front if point.kept_mass >= keep - 1e-12]
    if not fit:
        raise UsageError(f"no setting keeps {keep:.1%} of the mass", fix="ask for less")
    return min(fit, key=lambda point: point.j_s)
