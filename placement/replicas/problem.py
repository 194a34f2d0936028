"""The question of the `replicas` family: which logical expert every physical slot of every rank holds.

An expert's tokens are split over its replicas, and a decode step waits for the rank that takes longest. The
cost of a step is that rank's time, by the GPU's roofline (weights of activated experts, tokens, padded to the
kernel's tile where asked), plus dispatch and combine over the cluster's links; where only counts are known, a
token takes a second, so that the cost is the largest rank load in tokens. The objective is the mean over
steps, recorded ones or such as might come (see `unseen`), plus `risk` standard deviations and a weight on
what crosses nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...common.errors import BadInput, UsageError
from ...common.files import fingerprint
from ..problem import Bound, Cost
from .inputs import check_groups, current_of, largest_of_normals, tokens_of
from .ranks import Pairings, Ranks, check_shape, pairings
from .unseen import RECORDED, Variation, planned_steps, variation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..control import Control
    from .cost_kernel import Load
    from .nearest import Nearest
    from .rates import Rates

Split = Literal["equal", "hash", "nearest", "fixed"]
_BASELINES: tuple[str, ...] = ("linear", "round_robin", "eplb", "snake", "flash_like")
PART_NAMES = ("compute_s", "dispatch_s", "combine_s")


@dataclass(frozen=True)
class Settings:
    """What may be chosen about the question itself.

    - `groups`: experts in so many groups of consecutive ids, each of which stays on one node, equally many
      on every node (as in DeepSeek's hierarchical EPLB); 1: no such rule.
    - `duplicates`: whether two replicas of an expert may share a rank.
    - `split`: how an expert's tokens choose a replica: `equal` (in turn), `hash` (each for itself, as vLLM
      does by token index), `nearest` (own rank, else own node, else any, as SGLang's static dispatch), or
      `fixed` (replica number source rank modulo count, as vllm-ascend).
    - `risk`: standard deviations over steps added to the mean.
    - `drift`: standard deviation of the log of every expert's load against which to plan. Where experts
      drift independently, the tokens of a rank have `drift` times the root of the sum of squares of its
      experts' tokens as standard deviation; every rank's tokens are raised by that, times the mean of the
      largest of G normal draws. 0: plan for the recorded steps as they are. None: estimated from the recorded
      steps, which then count as far as they tell what experts have in common (see `unseen.variation`); a
      single one tells nothing, and is planned for as it is.
    - `traffic_weight`: weight on the cross-node part of the objective: tokens that a rank gets from other
      nodes, in the mean, at the time that a token takes across.
    - `max_moves`: slots that may differ from the current placement; None: any number.
    - `tile`: tokens that a kernel computes at a time; a replica's tokens are padded to it.
    """

    groups: int = 1
    duplicates: bool = False
    split: Split = "equal"
    risk: float = 0.0
    drift: float | None = None
    traffic_weight: float = 0.0
    max_moves: int | None = None
    tile: int = 1

    def __post_init__(self) -> None:
        if self.split not in ("equal", "hash", "nearest", "fixed"):
            raise UsageError(f"unknown split {self.split!r}", allowed="equal, hash, nearest, fixed")
        for name in ("risk", "drift", "traffic_weight"):
            if name == "drift" and self.drift is None:
                continue
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise UsageError(
                    f"{name} must be at least 0 and finite, not {getattr(self, name)!r}",
                    fix="0 leaves it out",
                )
        for name in ("groups", "tile"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_moves is not None and self.max_moves < 0:
            raise UsageError(f"at least 0 slots can move, not {self.max_moves}")


@dataclass(frozen=True, eq=False)
class Decision:
    """Logical expert of every physical slot, int32 `[R]`; the slots of a rank follow each other."""

    expert_of: NDArray[np.int32]

    def __post_init__(self) -> None:
        fixed = np.array(self.expert_of, dtype=np.int32)
        fixed.flags.writeable = False
        object.__setattr__(self, "expert_of", fixed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and np.array_equal(self.expert_of, other.expert_of)

    def __hash__(self) -> int:
        return hash(self.expert_of.tobytes())


@dataclass(frozen=True, eq=False)
class ReplicaProblem:
    """One MoE layer on one load. Build it with `replica_problem`."""

    layer: int
    ranks: Ranks
    tokens: NDArray[np.float64]  # [S, P, E] by source rank; P = 1: evenly from all
    rates: Rates
    settings: Settings
    current: NDArray[np.int32] | None
    fingerprint: str
    held_out: ReplicaProblem | None = None
    family: str = "replicas"
    baselines: tuple[str, ...] = _BASELINES

    @property
    def experts(self) -> int:
        """E, the number of logical experts."""
        return int(self.tokens.shape[2])

    @property
    def most(self) -> int:
        """Replicas of an expert that a rank may hold."""
        return max(self.ranks.room) if self.settings.duplicates else 1

    @property
    def nodes(self) -> int:
        """Nodes that the groups are divided over; 1 where nothing ties an expert to a node."""
        return self.ranks.nodes if self.settings.groups > 1 else 1

    @property
    def plain(self) -> bool:
        """Whether the cost of a step is the largest sum of equal shares over a rank's replicas."""
        r, s = self.rates, self.settings
        only_load = r.kernel_s == r.expert_s == r.token_compute_s == r.inside_s == r.across_s == 0.0
        return only_load and s.split in ("equal", "hash") and s.traffic_weight == 0.0 and r.tile == 1

    @cached_property
    def variation(self) -> Variation:
        """How loads are taken to vary: as set, or as estimated."""
        if self.settings.drift is not None:
            return Variation(1.0, self.settings.drift)
        return variation(self.tokens.sum(axis=1))

    @property
    def planned(self) -> NDArray[np.float64]:
        """Tokens of the steps that the objective counts, `[S', P, E]`."""
        return planned_steps(self.tokens, self.variation.kept)

    @cached_property
    def spread(self) -> float:
        """Standard deviations of every rank's drift that the objective adds, times the drift."""
        drift = self.variation.drift
        return drift * largest_of_normals(self.ranks.ranks) if drift else 0.0

    @property
    def planned_rates(self) -> Rates:
        """The rates of the objective: those of the cost, and the drift."""
        return self.rates._replace(spread=self.spread)

    @property
    def mean_decides(self) -> bool:
        """Whether the objective is the largest mean load of a rank, and nothing else."""
        return self.plain and len(self.planned) == 1 and self.spread == 0.0

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Mean tokens of every expert in a step, `[E]`."""
        mean: NDArray[np.float64] = self.tokens.sum(axis=1).mean(axis=0)
        return mean

    def load(self, tokens: NDArray[np.float64]) -> Load:
        """Traffic as kernels take it."""
        from .cost_kernel import SPLITS, Load

        return Load(
            np.ascontiguousarray(tokens),
            np.array(self.ranks.speed, dtype=np.float64),
            self.ranks.per_node,
            SPLITS[self.settings.split],
        )

    def has(self, decision: Decision) -> NDArray[np.int16]:
        """Replicas of every expert by rank, int16 `[E, G]`."""
        from .cost_kernel import place

        return place(decision.expert_of, self.ranks.rank_of, self.experts, self.ranks.ranks)

    def evaluate(self, decision: Decision) -> Cost:
        """Mean time of a recorded step in parts, and the objective."""
        from .cost_kernel import evaluate_steps, objective

        has = self.has(decision)
        parts = evaluate_steps(self.rates, self.load(self.tokens), has)
        planned = parts
        if self.variation != RECORDED:
            planned = evaluate_steps(self.planned_rates, self.load(self.planned), has)
        means = parts[:, :3].mean(axis=0)
        return Cost(
            total_s=float(means.sum()),
            objective_s=float(objective(planned, self.settings.traffic_weight, self.settings.risk)),
            parts=dict(zip(PART_NAMES, means.tolist(), strict=True)),
        )

    def rank_tokens(self, decision: Decision) -> NDArray[np.float64]:
        """Tokens of every rank at every recorded step, `[S, G]`."""
        from .cost_kernel import add_expert, new_state

        load, has = self.load(self.tokens), self.has(decision)
        state = new_state(load)
        for e in range(self.experts):
            add_expert(self.rates, load, state, e, has[e], 1.0)
        return np.asarray(state.tokens)

    def balancedness(self, decision: Decision) -> float:
        """Mean over steps of mean / max rank load (over speed); 1.0 where a step has no token."""
        load = self.rank_tokens(decision) / np.array(self.ranks.speed)
        even = load.sum(axis=1) * 0.0 + self.tokens.sum(axis=(1, 2)) / sum(self.ranks.speed)
        top = load.max(axis=1)
        return float(np.divide(even, top, out=np.ones_like(top), where=top > 0.0).mean())

    def moved(self, decision: Decision) -> int:
        """Slots that must be filled anew to come from the current placement; 0 where there is none."""
        if self.current is None:
            return 0
        before = self.has(Decision(self.current))
        return int(np.maximum(self.has(decision) - before, 0).sum())

    def duplicates(self, decision: Decision) -> int:
        """Slots that repeat an expert of their rank."""
        return int(np.maximum(self.has(decision) - 1, 0).sum())

    def lower_bound(self) -> Bound:
        """The strongest of the bounds that are cheap to prove; see `bound`."""
        return self._floor

    @cached_property
    def _floor(self) -> Bound:
        # Every solve asks for it.
        from .bound import lower_bound

        return lower_bound(self)

    @cached_property
    def pairings(self) -> Pairings:
        """Ways to give groups to nodes."""
        return _pairings(self.settings.groups, self.nodes, self.ranks.alike_nodes)

    def check(self, decision: Decision) -> str | None:
        """Every expert has a slot, ranks and nodes keep their rules, and no more slots move than may."""
        slots, ranks = decision.expert_of, self.ranks
        if slots.shape != (ranks.slots,):
            return f"{len(slots)} slots are filled, the ranks have {ranks.slots}"
        if slots.min() < 0 or slots.max() >= self.experts:
            return f"there is no expert {slots.min() if slots.min() < 0 else slots.max()}"
        has = self.has(decision)
        absent = np.flatnonzero(has.sum(axis=1) == 0)
        if len(absent):
            return f"expert {absent[0]} has no slot"
        return self._rule_fault(decision, has)

    def _rule_fault(self, decision: Decision, has: NDArray[np.int16]) -> str | None:
        if not self.settings.duplicates and has.max() > 1:
            expert, rank = (int(i) for i in np.argwhere(has > 1)[0])
            return f"rank {rank} holds expert {expert} twice"
        if self.nodes > 1 and (fault := self._group_fault(has)) is not None:
            return fault
        limit = self.settings.max_moves
        if limit is not None and (moved := self.moved(decision)) > limit:
            return f"{moved} slots move, allowed are {limit}"
        return None

    def _group_fault(self, has: NDArray[np.int16]) -> str | None:
        by_group = has.reshape(self.settings.groups, -1, self.nodes, self.ranks.per_node).sum(axis=(1, 3))
        homes = by_group > 0
        split = np.flatnonzero(homes.sum(axis=1) > 1)
        if len(split):
            return f"group {split[0]} is on nodes {', '.join(map(str, np.flatnonzero(homes[split[0]])))}"
        per_node = homes.sum(axis=0)
        if per_node.min() != per_node.max():
            return f"nodes hold {per_node.tolist()} groups, equally many are asked for"
        return None

    @cached_property
    def nearest(self) -> Nearest:
        """The fewest moves from the current placement to one that keeps the rules."""
        from .nearest import nearest

        return nearest(self)

    def infeasible(self) -> str | None:
        """Slots against experts, overall and within nodes; then the fewest moves against those allowed."""
        from .nearest import moves_fault

        fault = check_shape(
            self.ranks, self.experts, self.settings.groups, duplicates=self.settings.duplicates
        )
        return fault or moves_fault(self)


def problem_of(control: Control[Decision]) -> ReplicaProblem:
    """The problem under solution, as what it is for solvers of this family."""
    problem = control.problem
    assert isinstance(problem, ReplicaProblem)
    return problem


def replica_problem(
    counts: ArrayLike,
    ranks: Ranks,
    *,
    layer: int = 0,
    held_out: ArrayLike | None = None,
    rates: Rates | None = None,
    settings: Settings | None = None,
    current: ArrayLike | None = None,
) -> ReplicaProblem:
    """Pose the question for one layer.

    `counts`: tokens of every expert `[E]`, by step `[S, E]`, or by step and source rank `[S, G, E]`;
    `held_out` likewise, on steps that no solver sees. `rates`: times by a GPU model (see `rates_of`); None:
    the largest rank load in tokens. `current`: expert of every slot `[R]` now. Raises BadInput on counts
    that are negative, not finite or all zero or on a current placement that does not fit, and UsageError on
    groups that do not divide.
    """
    from .rates import Rates

    settings = settings or Settings()
    rates = (rates or Rates())._replace(tile=settings.tile)
    tokens = tokens_of(counts, ranks, f"layer {layer}")
    check_groups(settings.groups, ranks.nodes, tokens.shape[2])
    now = current_of(current, ranks, tokens.shape[2]) if current is not None else None
    if settings.max_moves is not None and now is None:
        raise UsageError("max_moves counts from a current placement", fix="give the current placement too")
    beside = None
    if held_out is not None:
        beside = tokens_of(held_out, ranks, f"held-out part of layer {layer}")
        if beside.shape[2] != tokens.shape[2]:
            raise BadInput(f"{beside.shape[2]} experts are held out, {tokens.shape[2]} profiled")

    # EPLB knows equal slots only.
    even = len(set(ranks.room)) == 1
    heuristics = tuple(name for name in _BASELINES if name != "eplb" or even)
    if now is not None:
        heuristics = (*heuristics, "current")

    def pose(
        part: NDArray[np.float64], asked: Settings, beside: ReplicaProblem | None = None
    ) -> ReplicaProblem:
        if asked.drift is None and len(part) == 1:
            asked = replace(asked, drift=0.0)  # of one step nothing can be estimated
        key = fingerprint(
            part, ranks.nodes, ranks.room, ranks.speed, tuple(rates), vars(asked), layer,
            "" if now is None else now,
        )  # fmt: skip
        return ReplicaProblem(layer, ranks, part, rates, asked, now, key, beside, baselines=heuristics)

    if beside is None:
        return pose(tokens, settings)
    # Held-out steps are scored as they are.
    return pose(tokens, settings, pose(beside, replace(settings, drift=settings.drift or 0.0)))


_PAIRINGS: dict[tuple[int, int, bool], Pairings] = {}


def _pairings(groups: int, nodes: int, alike: bool) -> Pairings:
    # The same for every layer; the largest takes a second to list.
    key = (groups, nodes, alike)
    if key not in _PAIRINGS:
        _PAIRINGS[key] = pairings(groups, nodes, alike=alike)
    return _PAIRINGS[key]


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return settings from a plan's record. Raises BadInput where they are not those of this family."""
    known = {field.name for field in fields(Settings)}
    try:
        return Settings(**{name: value for name, value in values.items() if name in known})
    except (UsageError, TypeError) as error:
        raise BadInput(f"the plan's settings cannot be used: {error}", where="settings") from error
