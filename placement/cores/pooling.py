"""What pooling in cores is worth: ReXpert's MFU cascade over all layers, under one placement rule."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...common.errors import UsageError
from ..planning import BASELINE_BUDGET, Search, in_order, search_layer
from ..result import Budget
from ..solve import solve
from .layout import Layout, die_layout, pooling_cores
from .mesh import Multicasts, multicasts
from .problem import CoreProblem, Decision, Settings, core_problem

if TYPE_CHECKING:
    from ...hardware.nearmem import Die
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .layout import Mode
    from .rounds import Cascade

Placement = Literal["contiguous", "lpt", "coactivation", "ours"]
PLACEMENTS: tuple[Placement, ...] = ("contiguous", "lpt", "coactivation", "ours")
#: What our search may take on one layer: moves, so that the answer repeats.
SEARCH_BUDGET = Budget(time_s=None, iterations=100_000)


@dataclass(frozen=True)
class LayerScore:
    """One layer: equation 2 of ReXpert, rounds that no placement gets below, and its multicasts.

    `place_of`: core of every expert, or unit where nothing is pooled.
    """

    layer: int
    cascade: Cascade
    rounds_bound: float
    stretch: float
    place_of: tuple[int, ...]


@dataclass(frozen=True)
class PoolScore:
    """Means over layers, measured on steps that no placement has seen (where there are any).

    `rounds_bound`: rounds of a step that no placement gets below. `adjusted_mfu`: ideal MFU times what a
    tile of this width reaches of the peak. `stretch`: how far multicasts on the core mesh lengthen the
    rounds, 1.0 where nothing is pooled; `effective_mfu` is actual MFU over it. `multicast_p99_bytes_per_s`
    and `multicast_peak_bytes_per_s`: demand on the mesh of a core. `step_s`: of all layers, unstretched.
    """

    layout: Layout
    ideal_mfu: float
    occupancy: float
    actual_mfu: float
    adjusted_mfu: float
    rounds: float
    rounds_bound: float
    stretch: float
    effective_mfu: float
    multicast_p99_bytes_per_s: float
    multicast_peak_bytes_per_s: float
    step_s: float
    layers: tuple[LayerScore, ...]


def pool(
    model: MoEModel,
    die: Die,
    profile: Load,
    held_out: Load | None,
    *,
    placement: Placement,
    mode: Mode = "broadcast",
    width: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    budget: Budget = SEARCH_BUDGET,
    interrupt: threading.Event | None = None,
) -> PoolScore:
    """Place every layer of `profile` on `die` and measure it on `held_out`, else on the profile itself.

    Layers run `jobs` at a time. Raises UsageError for an unknown placement, and what `die_layout` and
    `core_problem` raise.
    """
    if placement not in PLACEMENTS:
        raise UsageError(f"unknown placement {placement!r}", allowed=", ".join(PLACEMENTS))
    layout = die_layout(model, die, mode=mode, width=width, cores=pooling_cores(die))
    # The published placements see the recorded steps alone.
    settings = Settings(mode=mode, width=width) if placement == "ours" else Settings(mode, width, resample=0)
    stop = interrupt or threading.Event()

    def place(layer: int) -> tuple[LayerScore, Multicasts | None]:
        problem = core_problem(model, layout, profile, layer, held_out=held_out, settings=settings)
        decision = _decide(problem, placement, Search("auto", budget, seed), stop)
        return _score(problem.held_out or problem, decision, die)

    placed = list(in_order(place, profile.layers, jobs))
    return _mean(layout, [score for score, _ in placed], [sent for _, sent in placed if sent], die)


def _decide(problem: CoreProblem, placement: Placement, search: Search, stop: threading.Event) -> Decision:
    if placement == "ours":
        return search_layer(problem, search, stop, f"layer {problem.layer}").decision
    decision = solve(problem, placement, budget=BASELINE_BUDGET).decision
    assert decision is not None, "the published placements always offer one"
    return decision


def _score(problem: CoreProblem, decision: Decision, die: Die) -> tuple[LayerScore, Multicasts | None]:
    layout = problem.layout
    sent = None
    if layout.mode == "broadcast":
        jobs = problem.jobs[: problem.steps]
        sent = multicasts(jobs, decision.place_of, layout.cores, die.core)
    score = LayerScore(
        layer=problem.layer,
        cascade=problem.cascade(decision),
        rounds_bound=float(problem.least[: problem.steps].mean()),
        stretch=sent.stretch if sent else 1.0,
        place_of=tuple(decision.place_of.tolist()),
    )
    return score, sent


def _mean(layout: Layout, layers: list[LayerScore], sent: list[Multicasts], die: Die) -> PoolScore:
    cascades = [layer.cascade for layer in layers]
    streams = np.concatenate([s.streams.ravel() for s in sent]) if sent else np.zeros(1)
    rate = die.core.unit.read_bytes_per_s
    rounds = float(np.mean([c.rounds for c in cascades]))
    actual_mfu = float(np.mean([c.actual_mfu for c in cascades]))
    stretch = float(np.mean([layer.stretch for layer in layers]))
    return PoolScore(
        layout=layout,
        ideal_mfu=float(np.mean([c.ideal_mfu for c in cascades])),
        occupancy=float(np.mean([c.occupancy for c in cascades])),
        actual_mfu=actual_mfu,
        adjusted_mfu=float(np.mean([c.adjusted_mfu for c in cascades])),
        rounds=rounds,
        rounds_bound=float(np.mean([layer.rounds_bound for layer in layers])),
        stretch=stretch,
        effective_mfu=actual_mfu / stretch,
        multicast_p99_bytes_per_s=float(np.quantile(streams, 0.99, method="inverted_cdf")) * rate,
        multicast_peak_bytes_per_s=float(streams.max()) * rate,
        step_s=rounds * layout.round_s * len(layers),
        layers=tuple(layers),
    )
