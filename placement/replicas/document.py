"""The plan of replicas as a file, from planned layers, and back from the file to decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ...common.spec import Spec
from ..plan import BaselineEntry, LayerEntry, PlanFile, PlatformEntry, TrafficEntry
from ..summary import baseline_fields, layer_fields, model_entry, search_fields, total_fields, warnings_of
from .cluster import link_rates
from .problem import Decision, ReplicaProblem, Settings

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...workload.model import MoEModel
    from ..planning import Search
    from ..result import Result
    from .planning import LayerPlan, Plans


class OverLayers(Spec):
    """A figure of every layer: its mean, and its worst."""

    mean: float
    worst: float


class ReplicaBaseline(BaselineEntry):
    """What a published heuristic gets, as published: two replicas of an expert may share a rank."""

    balancedness: float | None = Field(description="on the profile")
    held_out_balancedness: float | None
    duplicates: int


class ReplicaLayer(LayerEntry):
    """How well one layer is balanced. Its slots stand in `physical_to_logical` of the plan."""

    balancedness: float = Field(gt=0, description="mean / max rank load, mean over profiled steps")
    held_out_balancedness: float | None = Field(description="the same on steps that no solver saw")
    max_over_bound: float = Field(description="objective over its bound")
    moved_slots: int = Field(ge=0, description="slots that differ from the current placement")
    duplicates: int = Field(ge=0, description="slots that repeat an expert of their rank")
    rank_tokens: tuple[float, ...] = Field(description="[G] mean tokens of every rank in a profiled step")
    kept: float | None = Field(
        default=None,
        description="part of the recorded distance of steps from their mean that was planned for",
    )
    drift: float | None = Field(
        default=None, description="independent drift of log loads that was planned for, given or estimated"
    )
    baselines: Mapping[str, ReplicaBaseline]


class Cluster(PlatformEntry):
    """The planned machine, as far as the cost depends on it."""

    rank_speed: tuple[float, ...] = Field(description="[G] relative")
    rates: dict[str, float] = Field(
        description="seconds per unit of work; without a model a token takes one second, and nothing else"
    )
    inside_bytes_per_s: float = Field(gt=0, description="a rank's link inside its node, one direction")
    across_bytes_per_s: float | None = Field(description="a rank's port to other nodes; null for one node")


class ReplicaPlan(PlanFile):
    """Logical experts of all physical slots of every MoE layer."""

    family: Literal["replicas"] = "replicas"
    platform: Cluster
    unit: Literal["tokens", "seconds"] = Field(
        description="what times mean: seconds by the GPU model, or tokens where no model was given"
    )
    physical_to_logical: tuple[tuple[int, ...], ...] = Field(description="[L][R] slots, rank by rank")
    layer_ids: tuple[int, ...] = Field(description="[L] absolute ids of the planned layers")
    total_layers: int | None = Field(description="all hidden layers of the model; null without a model")
    logical_experts: int = Field(ge=1)
    ranks: int = Field(ge=1)
    nodes: int = Field(ge=1, description="rank g is on node g // (ranks / nodes)")
    slots_per_rank: tuple[int, ...] = Field(description="[G]")
    groups: int = Field(ge=1, description="groups of experts that stay on a node; 1: none")
    split: str = Field(description="how tokens choose a replica: equal, hash, nearest or fixed")
    duplicates: int = Field(ge=0, description="slots that repeat an expert of their rank, over all layers")
    moved_slots: int = Field(
        ge=0, description="slots that differ from the current placement, over all layers"
    )
    balancedness: OverLayers
    held_out_balancedness: OverLayers | None
    max_over_bound: OverLayers
    logical_count: tuple[tuple[float, ...], ...] = Field(description="[L][E] tokens of the profile")
    current: tuple[tuple[int, ...], ...] | None = Field(description="[L][R] the placement before the plan")
    layers: tuple[ReplicaLayer, ...]

    @model_validator(mode="after")
    def _fits_together(self) -> ReplicaPlan:
        """Whoever reads a plan may rely on its lists having the lengths that its numbers say."""
        if (fault := next(_misfits(self), None)) is not None:
            raise ValueError(fault)
        return self


def _misfits(plan: ReplicaPlan) -> Iterator[str]:
    """What does not fit together, of lengths and ids."""
    if len(plan.slots_per_rank) != plan.ranks or plan.ranks % plan.nodes or min(plan.slots_per_rank) < 1:
        yield (
            f"slots_per_rank {list(plan.slots_per_rank)} does not fit {plan.ranks} ranks of "
            f"{plan.nodes} nodes"
        )
    speeds = plan.platform.rank_speed
    if len(speeds) != plan.ranks or min(speeds) <= 0.0:
        yield f"rank_speed must hold {plan.ranks} positive numbers"
    if plan.logical_experts % plan.groups:
        yield f"{plan.logical_experts} experts do not divide into {plan.groups} groups"
    ids = plan.layer_ids
    if not ids or list(ids) != sorted(set(ids)) or ids != tuple(entry.layer for entry in plan.layers):
        yield "layer_ids must be those of layers, distinct and ascending"
    slots, experts = sum(plan.slots_per_rank), plan.logical_experts
    for name, table in (("physical_to_logical", plan.physical_to_logical), ("current", plan.current)):
        if table is None:
            continue
        if [len(row) for row in table] != [slots] * len(ids):
            yield f"{name} must have {len(ids)} rows of {slots} slots"
        strange = [expert for row in table for expert in row if not 0 <= expert < experts]
        if strange:
            yield f"{name} names expert {strange[0]}, the last is {experts - 1}"
    if [len(row) for row in plan.logical_count] != [experts] * len(ids):
        yield f"logical_count must have {len(ids)} rows of {experts} experts"
    if any(len(entry.rank_tokens) != plan.ranks for entry in plan.layers):
        yield f"rank_tokens must hold {plan.ranks} numbers"
    before = "linear" if plan.current is None else "current"
    if any(before not in known for known in (plan.totals.baselines, *(one.baselines for one in plan.layers))):
        yield f"baselines lack {before}"


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a plan's inputs come from."""

    platform: Platform
    model: MoEModel | None
    profile: TrafficEntry
    held_out: TrafficEntry | None
    remarks: tuple[str, ...] = ()
    sources: str = "uniform"
    """Where tokens come from: evenly from all ranks (uniform), or slot b from rank b modulo G (slots)."""


def plan_file(plans: Plans, origin: Origin, *, search: Search, settings: Settings) -> ReplicaPlan:
    """Assemble the file."""
    problems = [plan.problem for plan in plans.layers]
    first = problems[0]
    layers = tuple(_layer(plan) for plan in plans.layers)
    totals = {**total_fields(layers)}
    totals["baselines"] = {name: BaselineEntry(**vars(entry)) for name, entry in totals["baselines"].items()}
    held = [entry.held_out_balancedness for entry in layers]
    inside, across = link_rates(origin.platform)
    fields: dict[str, Any] = search_fields(search)
    document = ReplicaPlan(
        **fields,
        settings={**vars(settings), "sources": origin.sources},
        model=model_entry(origin.model) if origin.model is not None else None,
        platform=Cluster(
            name=origin.platform.name,
            fingerprint=origin.platform.fingerprint,
            rank_speed=first.ranks.speed,
            rates={name: float(value) for name, value in first.rates._asdict().items()},
            inside_bytes_per_s=inside,
            across_bytes_per_s=across,
        ),
        profile=origin.profile,
        held_out=origin.held_out,
        unit="tokens" if origin.model is None else "seconds",
        totals=totals,  # type: ignore[arg-type]
        layers=layers,
        physical_to_logical=tuple(tuple(plan.decision.expert_of.tolist()) for plan in plans.layers),
        layer_ids=tuple(problem.layer for problem in problems),
        total_layers=origin.model.layers if origin.model is not None else None,
        logical_experts=first.experts,
        ranks=first.ranks.ranks,
        nodes=first.ranks.nodes,
        slots_per_rank=first.ranks.room,
        groups=settings.groups,
        split=settings.split,
        duplicates=sum(entry.duplicates for entry in layers),
        moved_slots=sum(entry.moved_slots for entry in layers),
        balancedness=_over([entry.balancedness for entry in layers], min),
        held_out_balancedness=_over([h for h in held if h is not None], min) if None not in held else None,
        max_over_bound=_over([entry.max_over_bound for entry in layers], max),
        logical_count=tuple(tuple(p.tokens.sum(axis=(0, 1)).tolist()) for p in problems),
        current=tuple(tuple(p.current.tolist()) for p in problems if p.current is not None) or None,
        warnings=(),
        elapsed_s=plans.elapsed_s,
    )
    return document.model_copy(update={"warnings": tuple(_warnings(document, origin))})


def decisions(plan: ReplicaPlan) -> dict[int, Decision]:
    """Return the slots of every layer, by layer id."""
    return {
        layer: Decision(np.array(slots, dtype=np.int32))
        for layer, slots in zip(plan.layer_ids, plan.physical_to_logical, strict=True)
    }


def _warnings(plan: ReplicaPlan, origin: Origin) -> list[str]:
    found = list(origin.remarks)
    if plan.duplicates:
        found.append(
            f"{plan.duplicates} slots repeat an expert of their rank: vllm-ascend refuses such a plan, and "
            "elsewhere the slot is wasted"
        )
    if plan.unit == "tokens":
        if plan.held_out is None:
            found.append("nothing was held out: the scores say nothing about traffic that was not recorded")
        return found
    return found + list(warnings_of(plan.totals, plan.layers, plan.held_out is not None))


def _layer(plan: LayerPlan) -> ReplicaLayer:
    problem, decision = plan.problem, plan.decision
    fields = layer_fields(problem.layer, plan)
    return ReplicaLayer(
        **fields,
        balancedness=problem.balancedness(decision),
        held_out_balancedness=_held_out(problem, decision),
        max_over_bound=fields["profile"].objective_s / fields["bound_s"],
        moved_slots=problem.moved(decision),
        duplicates=problem.duplicates(decision),
        rank_tokens=tuple(problem.rank_tokens(decision).mean(axis=0).tolist()),
        kept=problem.variation.kept,
        drift=problem.variation.drift,
        baselines={name: _baseline(problem, result) for name, result in plan.baselines.items()},
    )


def _baseline(problem: ReplicaProblem, result: Result[Decision]) -> ReplicaBaseline:
    decision = result.decision
    return ReplicaBaseline(
        **baseline_fields(result),
        balancedness=problem.balancedness(decision) if decision is not None else None,
        held_out_balancedness=_held_out(problem, decision) if decision is not None else None,
        duplicates=problem.duplicates(decision) if decision is not None else 0,
    )


def _held_out(problem: ReplicaProblem, decision: Decision) -> float | None:
    return problem.held_out.balancedness(decision) if problem.held_out is not None else None


def _over(values: Sequence[float], worst: Any) -> OverLayers:
    return OverLayers(mean=float(np.mean(values)), worst=float(worst(values)))
