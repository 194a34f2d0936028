"""J of any sub-batch of a decode step under a placement of channels, fast enough to try all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..placement.channels.document import ChannelPlan
    from ..placement.channels.problem import ChannelProblem, Decision
    from ..placement.plan import PlanFile
    from ..workload.load import Load
    from ..workload.model import MoEModel
    from .moe_kernel import Placed


@dataclass(frozen=True, eq=False)
class MoeTimer:
    """J = J_dram + J_noc of one layer, for tokens that need not fill a decode step.

    The cost is that of the `channels` family (its problem says what the parts are), for the tokens of the
    sub-batch alone. Build it with `moe_timer`. Tokens are `[B, K]` logical experts, -1 where dropped; `home`
    [B] is the site where a token's attention runs, by default slot b on site b mod N.
    """

    layer: int
    placed: Placed
    lives: NDArray[np.bool_]  # [E, N] whether an expert has a shard on a site

    @property
    def experts(self) -> int:
        """E, routed experts of the layer."""
        return len(self.placed.token_s)

    @property
    def sites(self) -> int:
        """N, channel sites."""
        return len(self.placed.near)

    def homes(self, batch: int) -> NDArray[np.int32]:
        """Where the attention of `batch` slots runs, int32 [B]."""
        return (np.arange(batch) % self.sites).astype(np.int32)

    def steps_s(self, tokens: NDArray[Any]) -> NDArray[np.float64]:
        """Seconds of whole decode steps by part, [S, 5] for tokens [S, B, K]."""
        from .moe_kernel import grow_steps

        tokens = self._tokens(tokens, 3)
        parts = np.zeros((len(tokens), 5))
        grow_steps(self.placed, tokens, self.homes(tokens.shape[1]), parts)
        return parts

    def partition_s(
        self, tokens: NDArray[Any], starts: NDArray[Any], home: NDArray[np.int32] | None = None
    ) -> NDArray[np.float64]:
        """J of every sub-batch of a partition, [n] for `starts` [n + 1] of tokens [B, K]."""
        from .moe_kernel import grow_each

        tokens = self._tokens(tokens, 2)
        starts = self._cuts(starts, len(tokens))
        parts = np.zeros((len(starts) - 1, 5))
        grow_each(self.placed, tokens, self._home(home, len(tokens)), starts, parts)
        total: NDArray[np.float64] = parts.sum(axis=1)
        return total

    def growing_s(self, tokens: NDArray[Any], home: NDArray[np.int32] | None = None) -> NDArray[np.float64]:
        """J of the first n tokens of [B, K], n = 1 .. B: [B]."""
        from .moe_kernel import grow

        tokens = self._tokens(tokens, 2)
        parts = np.zeros((len(tokens), 5))
        cuts = np.arange(1, len(tokens) + 1)
        grow(self.placed, tokens, self._home(home, len(tokens)), 0, cuts, parts)
        total: NDArray[np.float64] = parts.sum(axis=1)
        return total

    def table_s(
        self,
        tokens: NDArray[Any],
        cuts: NDArray[Any] | None = None,
        home: NDArray[np.int32] | None = None,
    ) -> NDArray[np.float64]:
        """J of all sub-batches, [n, n] where entry [i, j] is for tokens `cuts[i]` to `cuts[j]` - 1.

        Without `cuts` they are cut at every token, [B + 1, B + 1]. Entries with i >= j are 0.
        """
        from .moe_kernel import grow_all

        tokens = self._tokens(tokens, 2)
        cuts = np.arange(len(tokens) + 1) if cuts is None else self._cuts(cuts, len(tokens))
        table = np.zeros((len(cuts), len(cuts)))
        grow_all(self.placed, tokens, self._home(home, len(tokens)), cuts, table)
        return table

    def _tokens(self, tokens: NDArray[Any], axes: int) -> NDArray[np.int16]:
        if tokens.ndim != axes or 0 in tokens.shape:
            raise UsageError(f"tokens need {axes} axes that are not empty, not {tokens.shape}")
        if tokens.max() >= self.experts or tokens.min() < -1:
            raise BadInput(
                f"expert {int(tokens.max())} is not placed",
                where=f"layer {self.layer}",
                allowed=f"-1 to {self.experts - 1}",
            )
        return np.ascontiguousarray(tokens, dtype=np.int16)

    def _home(self, home: NDArray[np.int32] | None, batch: int) -> NDArray[np.int32]:
        if home is None:
            return self.homes(batch)
        if home.shape != (batch,) or home.min() < 0 or home.max() >= self.sites:
            raise UsageError(f"one site per token is needed, [{batch}] of 0 to {self.sites - 1}")
        return np.ascontiguousarray(home, dtype=np.int32)

    def _cuts(self, cuts: NDArray[Any], batch: int) -> NDArray[np.int64]:
        cuts = np.ascontiguousarray(cuts, dtype=np.int64)
        if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != batch or (np.diff(cuts) < 1).any():
            raise UsageError(
                f"{cuts.tolist()} does not cut {batch} tokens", allowed="rising, 0 to all tokens"
            )
        return cuts


def moe_timer(problem: ChannelProblem, decision: Decision) -> MoeTimer:
    """Timer of a layer's placement. Raises BadInput where the placement is none of this problem."""
    from .moe_kernel import Placed

    fault = problem.check(decision)
    if fault is not None:
        raise BadInput(f"the placement is not feasible: {fault}")
    t, group = problem.tables, decision.group_of
    site_start, sites = _gathered(t.group_start, t.group_sites, group)
    ring_start, ring_links = _gathered(t.ring_start, t.ring_links, group)
    _, ring_bytes = _gathered(t.ring_start, t.ring_bytes, group)
    lives = np.zeros((len(group), len(t.near)), dtype=np.bool_)
    lives[np.repeat(np.arange(len(group)), np.diff(site_start)), sites] = True
    lives.flags.writeable = False
    placed = Placed(
        t.token_s[group], site_start, sites, ring_start, ring_links, ring_bytes, t.ring_rank[group],
        t.ring_latency_s, t.noc, t.token_bytes, t.route_start, t.route_links, t.seconds_per_byte,
        t.latency_rank, t.latency_s, t.near,
    )  # fmt: skip
    return MoeTimer(problem.layer, placed, lives)


def plan_timers(
    plan: PlanFile, model: MoEModel, platform: Platform, load: Load, layers: Sequence[int] | None = None
) -> dict[int, MoeTimer]:
    """Timers of the layers of a plan of channels (or of `layers`, absolute ids), by layer.

    `load` is any of the model's; a problem cannot be posed without one. Raises BadInput where the plan is of
    another family, model or platform, lacks a layer, or is not feasible.
    """
    from ..placement.channels.document import ChannelPlan, decisions
    from ..placement.channels.problem import Settings, channel_problem
    from ..placement.verify import settings_of

    if not isinstance(plan, ChannelPlan):
        raise BadInput(
            f"the plan is of the family {plan.family!r}, not of channels", fix="plan a PIM machine's channels"
        )
    check_plan(plan, model, platform)
    known = {entry.layer for entry in plan.layers}
    wanted = sorted(known) if layers is None else list(layers)
    missing = [layer for layer in wanted if layer not in known]
    if missing:
        raise BadInput(
            f"the plan has no layer {missing[0]}",
            allowed=f"layers {', '.join(map(str, sorted(known)))}",
            fix="plan that layer too, or leave it out with --layers",
        )
    settings = settings_of(plan, Settings)
    part = plan.model_copy(update={"layers": tuple(e for e in plan.layers if e.layer in set(wanted))})
    problems = {layer: channel_problem(model, platform, load, layer, settings=settings) for layer in wanted}
    found = decisions(part, problems)
    return {layer: moe_timer(problems[layer], found[layer]) for layer in wanted}


def check_plan(plan: ChannelPlan, model: MoEModel, platform: Platform) -> None:
    """Raise BadInput unless the plan was made for this model and this platform."""
    if plan.model.fingerprint != model.fingerprint:
        raise BadInput(
            f"the plan places {plan.model.name}, not this {model.name}",
            where=f"{plan.model.experts} experts of {plan.model.expert_bytes / 2**20:.1f} MiB, "
            f"here {model.experts} of {model.expert_bytes / 2**20:.1f} MiB",
            fix="name the model that the plan was made for, or plan this one",
        )
    if plan.platform.fingerprint != platform.fingerprint:
        raise BadInput(
            f"the plan is for {plan.platform.name}, not for this {platform.name}",
            fix="name the platform that the plan was made for, or plan for this one",
        )


def lpt_timers(
    model: MoEModel, platform: Platform, load: Load, layers: Sequence[int], solver: str = "lpt"
) -> dict[int, MoeTimer]:
    """Timers of placements that a quick published heuristic makes on `load`, by layer.

    Raises NothingFound where it finds no feasible one.
    """
    from ..common.errors import NothingFound
    from ..placement.channels.problem import channel_problem
    from ..placement.planning import BASELINE_BUDGET
    from ..placement.solve import solve

    timers = {}
    for layer in layers:
        problem = channel_problem(model, platform, load, layer)
        found = solve(problem, solver, budget=BASELINE_BUDGET).decision
        if found is None:
            raise NothingFound(
                f"{solver} finds no feasible placement of layer {layer}", fix="plan it with moeplan plan"
            )
        timers[layer] = moe_timer(problem, found)
    return timers


def layer_lives(timers: Mapping[int, MoeTimer]) -> NDArray[np.bool_]:
    """Where experts live, bool [L, E, N] in the order of the timers: what `workload.pruning` asks for."""
    return np.stack([timer.lives for timer in timers.values()])


def _gathered(
    start: NDArray[np.int32], values: NDArray[Any], group: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """CSR rows `group` [E] of (start, values), as a CSR of its own."""
    length = (start[1:] - start[:-1])[group].astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(length)])
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], length)
    return ends, np.ascontiguousarray(values[np.repeat(start[:-1][group], length) + within])
