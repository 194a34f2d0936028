"""From a routing trace to simulated decode steps on SPIMOE: placement, pruning, prediction, pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..common.errors import BadInput, NothingFound
from ..placement.channels.problem import ChannelProblem, Decision, Settings, channel_problem
from ..placement.registry import find
from ..placement.result import Budget
from ..placement.solve import solve
from ..workload.checks import DROPPED
from ..workload.replay import split
from ..workload.rows import Replayed, prune_replayed, replay_rows
from .moe_side import Channels
from .predictor import calibrate_predictor, hit_rates, step_zero_table
from .spimoe import DecodeRun, Features, Spimoe, spimoe

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.channels.document import ChannelPlan
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from ..workload.pruning import PruningSettings
    from ..workload.trace import RoutingTrace


@dataclass(frozen=True, eq=False)
class Traffic:
    """What may be planned on, and what is simulated."""

    profile: RoutingTrace
    """The part of the trace that placements and predictors see."""
    planned: Replayed
    """Its decode steps."""
    simulated: Replayed
    """Decode steps of the other part."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the experts of all recorded layers live, by absolute id of the layer."""

    settings: Settings
    problems: Mapping[int, ChannelProblem]
    decisions: Mapping[int, Decision]
    source: str
    """In words."""


@dataclass(frozen=True)
class PruningShares:
    """What adaptive routing left: means over tokens and layers."""

    kept_mass: float
    experts_per_token: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """Simulated steps, and what went into them."""

    run: DecodeRun
    load: Load
    """The simulated steps as the router chose, without pruning."""
    pruned: PruningShares | None
    hit_rate: float | None
    """Share of a token's experts that the predictor foretold; None where nothing was predicted."""


def prepare(
    trace: RoutingTrace,
    *,
    batch: int,
    steps: int,
    profile_steps: int = 64,
    held_out: float = 0.5,
    seed: int = 0,
) -> Traffic:
    """Split a trace by request, and replay both parts in `batch` slots.

    With `held_out` 0.0 both parts are the whole trace. Raises UsageError and BadInput as `split` and
    `replay` do.
    """
    profile, other = (trace, trace) if held_out == 0.0 else split(trace, held_out, seed=seed)
    return Traffic(
        profile,
        replay_rows(profile, batch=batch, steps=profile_steps, seed=seed),
        replay_rows(other, batch=batch, steps=steps, seed=seed),
    )


def place(
    model: MoEModel,
    platform: Platform,
    profile: Load,
    solver: str,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    settings: Settings | None = None,
) -> Placement:
    """Place the experts of every layer of `profile` with a solver of the `channels` family, from LPT.

    Raises NothingFound where a layer gets no feasible placement, and what `channel_problem` raises.
    """
    settings, info = settings or Settings(), find("channels", solver)
    problems, decisions = {}, {}
    for layer in profile.layers:
        problem = channel_problem(model, platform, profile, layer, settings=settings)
        start = solve(problem, "lpt", seed=seed).decision if info.uses_start else None
        found = solve(problem, info.name, budget=budget, seed=seed, start=start).decision
        if found is None:
            raise NothingFound(
                f"{info.name} finds no feasible placement of layer {layer}",
                where=problem.infeasible() or "",
                fix="raise the budget, or take another solver",
            )
        problems[layer], decisions[layer] = problem, found
    return Placement(settings, problems, decisions, f"{info.name} on {profile.steps} profiled steps")


def place_by_plan(plan: ChannelPlan, model: MoEModel, platform: Platform, profile: Load) -> Placement:
    """Place experts as a plan says. Raises BadInput where it is of another model or platform."""
    from ..placement.channels.document import decisions
    from ..placement.verify import settings_of
    from .moe_time import check_plan

    check_plan(plan, model, platform)
    settings = settings_of(plan, Settings)
    entries = tuple(entry for entry in plan.layers if entry.layer in profile.layers)
    problems = {
        entry.layer: channel_problem(model, platform, profile, entry.layer, settings=settings)
        for entry in entries
    }
    found = decisions(plan.model_copy(update={"layers": entries}), problems)
    return Placement(settings, problems, found, f"plan by {plan.solver}")


def of_layers(trace: RoutingTrace, layers: Sequence[int]) -> RoutingTrace:
    """Return the trace of those of its layers that are named. Raises BadInput where none is."""
    at = [index for index, layer in enumerate(trace.layers) if layer in set(layers)]
    if not at:
        raise BadInput(
            "the trace has none of the layers that are asked for", where=trace.source, fix="name other layers"
        )
    if len(at) == len(trace.layers):
        return trace
    return replace(
        trace,
        experts=trace.experts[:, at],
        weights=None if trace.weights is None else trace.weights[:, at],
        layers=tuple(trace.layers[index] for index in at),
    )


def simulate(
    model: MoEModel,
    platform: Platform,
    traffic: Traffic,
    placement: Placement,
    context: int,
    *,
    features: Features | None = None,
    ring: bool = True,
    pruning: PruningSettings | None = None,
) -> Outcome:
    """Simulate the steps of `traffic` with every request at `context` tokens.

    `pruning` drops experts first, as the placement has them on channels; cognitive experts are not known
    here. Raises BadInput where the caches do not fit, or what pruning needs is missing.
    """
    features = features or Features()
    system = spimoe(
        Channels(model, platform, placement.settings, ring), placement.problems, placement.decisions
    )
    replayed = traffic.simulated
    load, shares = replayed.load, None
    if pruning is not None:
        load, shares = _pruned(system, replayed, pruning)
    predicted, hits, expected_s = None, None, None
    if features.partition in ("greedy", "dynamic"):
        predictor = calibrate_predictor(traffic.profile)
        predicted = predictor.predict(replayed.load, replayed.fresh)
        if not replayed.fresh.all():
            hits = hit_rates(predictor, replayed.load, predicted, replayed.fresh).means()["token"]
        if shares is not None:
            # Predictions are best first: as many are counted as pruning leaves.
            predicted[..., max(1, round(shares.experts_per_token)) :] = DROPPED
        profile = traffic.planned.load
        if pruning is not None:
            profile, _ = _pruned(system, traffic.planned, pruning)
        expected_s = step_zero_table([system.timers[layer] for layer in profile.layers], profile)
    run = system.simulate(load, context, features, predicted, expected_s)
    return Outcome(run, replayed.load, shares, hits)


def _pruned(system: Spimoe, replayed: Replayed, pruning: PruningSettings) -> tuple[Load, PruningShares]:
    lives = np.stack([system.experts[layer].member > 0 for layer in replayed.load.layers])
    load, done = prune_replayed(replayed, pruning, lives=lives, model_layers=system.channels.model.layers)
    return load, PruningShares(float(done.kept_mass.mean()), float(done.experts_per_token.mean()))
