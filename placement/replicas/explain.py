"""What a plan of replicas reaches, what keeps it from more, and whether it is worth deploying."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .problem import Decision, ReplicaProblem, replica_problem, settings_from
from .ranks import Ranks
from .traffic import rank_traffic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .document import ReplicaPlan

#: What is said where ranks can carry the same load, so that only traffic that varies keeps them from it.
EVEN = "nothing: ranks can carry equal loads"
#: Distance of the bound from the average load below which nothing but the average limits a layer.
_EVEN = 1.001


@dataclass(frozen=True)
class LayerLimit:
    """What limits one layer, on its counts summed over the profile.

    Their balance is another than that of single steps, whose mean is the plan's `balancedness`.
    """

    layer: int
    ceiling: float
    """Balancedness that no plan of these slots exceeds: average load over the bound."""
    reached: float
    """Balancedness of the plan on the same sum."""
    limit: str
    hottest_expert: int
    hottest_share: float
    """Share of the layer's tokens that go to it."""
    hottest_replicas: int


@dataclass(frozen=True)
class Explanation:
    """Answers to the questions before a deployment."""

    layers: tuple[LayerLimit, ...]
    before: str
    """What the plan is compared with: current, or linear where no placement was given."""
    measured_on: str
    """held-out or profile."""
    measure: str
    """What is compared: the largest load in tokens, or the step's time where there is a model."""
    gain: float
    """Part of it that the plan saves."""
    gain_over_eplb: float | None
    """None where ranks have unequal slots, which EPLB does not know."""
    moved_slots: int
    slots: int
    moved_bytes: float | None
    """None without a model."""
    moving_s: float | None
    """Time until the busiest rank has got its new experts over its slower link; None without a model."""
    steps_to_repay: float | None
    """Decode steps after which that time is saved; None without a model or a gain."""
    worth: bool
    verdict: str

    @property
    def ceiling(self) -> float:
        """Mean over layers."""
        return float(np.mean([layer.ceiling for layer in self.layers]))

    @property
    def reached(self) -> float:
        """Mean over layers."""
        return float(np.mean([layer.reached for layer in self.layers]))


def explain(plan: ReplicaPlan, threshold: float = 0.05) -> Explanation:
    """Explain a plan from what its file holds.

    It is worth deploying where it saves at least `threshold` of the largest rank load against what is there,
    on held-out steps where the plan has them.
    """
    before = "current" if plan.current is not None else "linear"
    held_out = plan.totals.held_out is not None
    mine = plan.totals.held_out or plan.totals.profile
    gain = _gain(plan, before, mine.total_s, held_out)
    over_eplb = _gain(plan, "eplb", mine.total_s, held_out) if "eplb" in plan.totals.baselines else None
    moved = moved_of(plan)
    per_rank = moved.max(initial=0)
    size = plan.model.expert_bytes if plan.model is not None else None
    slowest = plan.platform.across_bytes_per_s or plan.platform.inside_bytes_per_s
    moving_s = None if size is None else float(per_rank) * size / slowest
    saved_s = gain / (1.0 - gain) * mine.total_s if gain < 1.0 else 0.0
    repay = moving_s / saved_s if moving_s is not None and saved_s > 0.0 else None
    worth = gain >= threshold
    return Explanation(
        layers=tuple(_limit(plan, row) for row in range(len(plan.layers))),
        before=before,
        measured_on="held-out" if held_out else "profile",
        measure=_measure(plan),
        gain=gain,
        gain_over_eplb=over_eplb,
        moved_slots=int(moved.sum()),
        slots=len(plan.layers) * sum(plan.slots_per_rank),
        moved_bytes=None if size is None else float(moved.sum()) * size,
        moving_s=moving_s,
        steps_to_repay=repay,
        worth=worth,
        verdict=f"{_verdict(worth, gain, threshold)}: {_measure(plan)} is {_change(gain, before, held_out)}",
    )


def posed(plan: ReplicaPlan, row: int) -> ReplicaProblem:
    """Return the question of a layer on its counts summed over the profile."""
    return replica_problem(
        plan.logical_count[row],
        Ranks(plan.nodes, plan.slots_per_rank, plan.platform.rank_speed),
        layer=plan.layer_ids[row],
        settings=settings_from({**plan.settings, "drift": 0.0, "risk": 0.0}),
        current=plan.current[row] if plan.current is not None else None,
    )


def moved_of(plan: ReplicaPlan) -> NDArray[np.int64]:
    """Slots of every rank, over all layers, that differ from what is there (else from the linear layout)."""
    ranks = Ranks(plan.nodes, plan.slots_per_rank)
    moved = np.zeros(plan.ranks, dtype=np.int64)
    linear = np.arange(ranks.slots) % plan.logical_experts
    for row, slots in enumerate(plan.physical_to_logical):
        here = _placed(np.array(slots), ranks, plan.logical_experts)
        there = _placed(np.array(plan.current[row]) if plan.current is not None else linear, ranks, len(here))
        moved += np.maximum(here - there, 0).sum(axis=0)
    return moved


def traffic_matrix(plan: ReplicaPlan) -> NDArray[np.float64]:
    """Predicted tokens from source rank to rank, `[G, G]`, of a mean profiled step over all layers.

    The profile's counts are taken to come evenly from all ranks.
    """
    total = np.zeros((plan.ranks, plan.ranks))
    for row, slots in enumerate(plan.physical_to_logical):
        total += rank_traffic(posed(plan, row), Decision(np.array(slots, dtype=np.int32)))
    return total / plan.profile.steps


def traffic_shares(plan: ReplicaPlan, matrix: NDArray[np.float64]) -> dict[str, float]:
    """Shares of tokens that stay on their rank, cross to a rank of the node, and cross to another node."""
    rank = np.arange(plan.ranks)
    node = rank // (plan.ranks // plan.nodes)
    own = rank[:, None] == rank
    near = (node[:, None] == node) & ~own
    total = matrix.sum()
    return {
        "same_rank": float(matrix[own].sum() / total),
        "same_node": float(matrix[near].sum() / total),
        "cross_node": float(matrix[~own & ~near].sum() / total),
    }


def _placed(slots: NDArray[np.int64], ranks: Ranks, experts: int) -> NDArray[np.int64]:
    has = np.zeros((experts, ranks.ranks), dtype=np.int64)
    np.add.at(has, (slots, ranks.rank_of), 1)
    return has


def _limit(plan: ReplicaPlan, row: int) -> LayerLimit:
    from .bound_kernel import largest_replica

    problem = posed(plan, row)
    weight, ranks = problem.weight, problem.ranks
    decision = Decision(np.array(plan.physical_to_logical[row], dtype=np.int32))
    load = problem.rank_tokens(decision).sum(axis=0) / np.array(ranks.speed)
    average = float(weight.sum() / sum(ranks.speed))
    bound = max(problem.lower_bound().value_s, average) if problem.plain else average
    hottest = int(weight.argmax())
    most = problem.most * ranks.ranks // problem.nodes
    largest = float(largest_replica(weight, ranks.slots - problem.experts, most)) / max(ranks.speed)
    moves, reached = problem.settings.max_moves, average / float(load.max())
    if moves is not None and problem.moved(decision) >= moves and reached * _EVEN < average / bound:
        limit = f"the {moves} slots that may move"
    elif bound <= average * _EVEN:
        limit = EVEN
    elif largest >= bound / _EVEN:
        limit = f"the largest replica: expert {hottest} has too few; more slots would help"
    elif problem.nodes > 1:
        limit = "groups that must stay on a node: no pairing of groups and nodes is even"
    else:
        limit = "the number of slots that every rank must fill"
    return LayerLimit(
        layer=problem.layer,
        ceiling=min(1.0, average / bound),
        reached=reached,
        limit=limit,
        hottest_expert=hottest,
        hottest_share=float(weight[hottest] / weight.sum()),
        hottest_replicas=int(problem.has(decision)[hottest].sum()),
    )


def _gain(plan: ReplicaPlan, name: str, mine_s: float, held_out: bool) -> float:
    entry = plan.totals.baselines[name]
    theirs = entry.held_out if held_out else entry.profile
    return 1.0 - mine_s / theirs.total_s if theirs is not None and theirs.total_s > 0.0 else 0.0


def _measure(plan: ReplicaPlan) -> str:
    return "the largest load" if plan.unit == "tokens" else "the step's time"


def _verdict(worth: bool, gain: float, threshold: float) -> str:
    return "worth it" if worth else f"not worth it (threshold {threshold:.0%})"


def _change(gain: float, before: str, held_out: bool) -> str:
    where = "held-out steps" if held_out else "the profile itself (nothing was held out)"
    there = "what is there" if before == "current" else "the linear layout"
    return f"{abs(gain):.1%} {'less' if gain >= 0.0 else 'more'} than {there} on {where}"
