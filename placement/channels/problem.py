"""The question of the `channels` family: a TP factor and a group of channel sites for every expert.

Cost of a decode step (SPIMOE 3.4.1): `J = J_dram + J_noc`. `J_dram` is the busiest site's PIM time, in
which the tokens of its experts run one after the other as GEMVs. `J_noc` is the sum of four phases
(SPIMOE 3.3.2): dispatch of activations from the site where a token's attention ran to the sites of its
experts; the collective around FFN2 inside every group; a ring all-gather over the first cores of the
activated experts; and the way home of the results. The objective is the mean over decode steps, plus
`risk` standard deviations where asked: over the recorded steps and those drawn by `unseen`, so that what is
minimised is the time of traffic to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import BadInput, ProvenInfeasible, UsageError
from ...common.files import fingerprint
from ..problem import Bound, Cost
from .bound import step_bounds
from .expert_time import LayoutName, Mode, is_row_mode, shard_s
from .groups import Groups, tiles
from .tables import SLACK, Tables, link_tables, ring_tables, slot_tables
from .unseen import unseen_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from ..control import Control

PART_NAMES = ("dram_s", "dispatch_s", "collective_s", "gather_s", "scatter_s")
GIB = 2.0**30
#: Drawn steps per recorded one, and the routed tokens (steps x batch x top-k) that they stop at: a move of a
#: search costs time in proportion, and a larger batch has less chance in it.
_LEAST_RESAMPLED, _MOST_RESAMPLED, _MOST_ROUTED = 1, 15, 2**16
_LARGEST_RESAMPLE = 1000


@dataclass(frozen=True)
class Settings:
    """What may be chosen about the question itself.

    `risk`: standard deviations over steps added to the mean. `mode`: how FFN2 is split, by `row`
    (all-reduce after it), by `col` (all-gather before it), or `auto`: `col` where d_moe < d, by which
    ratio SPIMOE 3.3.2 selects. `layout`: whole outputs per
    bank (`rows`, as Newton and SPIMOE do) or the fastest split of K over banks (`best`), for every matrix
    and TP factor on its own. `resample`: drawn steps per recorded one that the objective also counts (see
    `unseen`), None: 1 to 15, fewer where steps and batch are large already, 0: the recorded steps alone;
    `resample_seed` draws them.
    """

    risk: float = 0.0
    mode: Mode = "auto"
    layout: LayoutName = "best"
    resample: int | None = None
    resample_seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.risk < float("inf"):
            raise UsageError(
                f"risk must be at least 0 standard deviations, not {self.risk!r}", fix="for example 1.0"
            )
        if self.mode not in ("auto", "row", "col"):
            raise UsageError(f"unknown mode {self.mode!r}", allowed="auto, row, col")
        if self.layout not in ("rows", "best"):
            raise UsageError(f"unknown layout {self.layout!r}", allowed="rows, best")
        for name, largest in (("resample", _LARGEST_RESAMPLE), ("resample_seed", 2**63)):
            value = getattr(self, name)
            if value is None and name == "resample":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
                raise UsageError(
                    f"{name} {value!r} is not possible", allowed=f"whole numbers, 0 to {largest}"
                )

    def times(self, tokens: int) -> int:
        """Drawn steps per recorded one, where the recorded ones hold so many routed tokens."""
        if self.resample is not None:
            return self.resample
        return min(_MOST_RESAMPLED, max(_LEAST_RESAMPLED, _MOST_ROUTED // tokens - 1))


@dataclass(frozen=True, eq=False)
class Decision:
    """Group of every expert: `group_of` [E], int32 ids of the problem's catalogue."""

    group_of: NDArray[np.int32]

    def __post_init__(self) -> None:
        fixed = np.array(self.group_of, dtype=np.int32)
        fixed.flags.writeable = False
        object.__setattr__(self, "group_of", fixed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and np.array_equal(self.group_of, other.group_of)

    def __hash__(self) -> int:
        return hash(self.group_of.tobytes())


@dataclass(frozen=True, eq=False)
class ChannelProblem:
    """One MoE layer on one load. Build it with `channel_problem`.

    `tables` hold the S recorded steps, `drawn` those and further ones that the objective also counts (None:
    no further ones).
    """

    layer: int
    groups: Groups
    tokens: NDArray[np.int16]  # [S, B, K] logical experts of every slot's token; -1: dropped by the router
    tables: Tables
    risk: float
    fingerprint: str
    held_out: ChannelProblem | None = None
    drawn: Tables | None = None
    family: str = "channels"
    baselines: tuple[str, ...] = ("ep", "round_robin", "lpt", "spimoe")

    @property
    def experts(self) -> int:
        """Number of routed experts."""
        return len(self.tables.counts)

    @property
    def sites(self) -> int:
        """Number of channel sites."""
        return len(self.tables.near)

    def step_parts(self, decision: Decision) -> NDArray[np.float64]:
        """Seconds of every decode step by part, `[S, 5]` in the order of PART_NAMES."""
        from .kernels import evaluate_steps

        return evaluate_steps(self.tables, decision.group_of).parts

    @property
    def objective_tables(self) -> Tables:
        """What the objective is averaged over: the recorded steps first, then the drawn ones."""
        return self.tables if self.drawn is None else self.drawn

    def evaluate(self, decision: Decision) -> Cost:
        """Mean time of the recorded steps in parts, and the objective mean + risk * standard deviation.

        The objective counts the drawn steps too, where there are any.
        """
        from .kernels import evaluate_steps

        every = evaluate_steps(self.objective_tables, decision.group_of).parts
        parts = every[: self.tables.counts.shape[1]]
        steps, means = every.sum(axis=1), parts.mean(axis=0)
        mean_s = float(steps.mean())
        return Cost(
            total_s=float(parts.sum(axis=1).mean()),
            objective_s=mean_s + self.risk * float(steps.std()) if self.risk else mean_s,
            parts={name: float(value) for name, value in zip(PART_NAMES, means, strict=True)},
        )

    def site_load_s(self, decision: Decision) -> NDArray[np.float64]:
        """Mean PIM seconds of every site in a decode step, `[N]`."""
        from .kernels import evaluate_steps

        mean: NDArray[np.float64] = evaluate_steps(self.tables, decision.group_of).load_s.mean(axis=1)
        return mean

    def lower_bound(self) -> Bound:
        """Average-load, largest-expert and gather bound of every step on its own, averaged over steps."""
        return self._floor

    @cached_property
    def _floor(self) -> Bound:
        # Every solve of a layer asks for it, the baselines too.
        return Bound(
            float(step_bounds(self.objective_tables, self.groups).mean()),
            "average load, largest expert and gather per step",
        )

    def check(self, decision: Decision) -> str | None:
        """Every expert has a group of the catalogue, and no site holds more than its memory."""
        group_of = decision.group_of
        if group_of.shape != (self.experts,):
            return f"{len(group_of)} experts are placed, the layer has {self.experts}"
        if group_of.min() < 0 or group_of.max() >= len(self.groups):
            expert = int(np.flatnonzero((group_of < 0) | (group_of >= len(self.groups)))[0])
            return f"expert {expert} is on group {group_of[expert]}, allowed are 0..{len(self.groups) - 1}"
        used = self.memory_bytes(decision)
        site = int(used.argmax())
        if used[site] > self.tables.capacity_bytes * SLACK:
            return (
                f"site {site} would hold {used[site] / GIB:.3f} GiB of layer {self.layer}, "
                f"it has {self.tables.capacity_bytes / GIB:.3f} GiB for it"
            )
        return None

    def memory_bytes(self, decision: Decision) -> NDArray[np.float64]:
        """Weight bytes on every site, `[N]`."""
        g, t = decision.group_of, self.tables
        width = np.diff(t.group_start)[g]
        members = np.concatenate([self.groups.sites_of(int(group)) for group in g])
        bytes_ = np.repeat(t.shard_bytes[g], width)
        return np.bincount(members, weights=bytes_, minlength=self.sites).astype(np.float64)

    def infeasible(self) -> str | None:
        """All experts at their least total size do not fit, or one does not fit a site however split."""
        t = self.tables
        if t.shard_bytes.min() > t.capacity_bytes * SLACK:
            shard = t.shard_bytes.min() / GIB
            return f"the smallest shard of an expert has {shard:.3f} GiB, more than a site holds"
        total = self.experts * float((t.shard_bytes * np.diff(t.group_start)).min())
        room = self.sites * t.capacity_bytes
        if total > room * SLACK:
            return f"{total / GIB:.2f} GiB of experts do not fit in {room / GIB:.2f} GiB"
        return None

    def sites_of(self, decision: Decision, expert: int) -> tuple[int, ...]:
        """Sites that hold the shards of one expert, first core first."""
        return tuple(int(site) for site in self.groups.sites_of(int(decision.group_of[expert])))

    def decision_from_sites(self, sites: Sequence[Sequence[int]]) -> Decision:
        """Rebuild a decision from the sites of every expert.

        Raises BadInput for sites that are no group of the catalogue.
        """
        found = [self.groups.find(tuple(group)) for group in sites]
        if None in found:
            expert = found.index(None)
            raise BadInput(
                f"the sites {list(sites[expert])} are no channel group",
                where=f"expert {expert} of layer {self.layer}",
                allowed=f"groups of {', '.join(map(str, self.groups.factors))} neighbouring sites",
            )
        return Decision(np.array(found, dtype=np.int32))


def problem_of(control: Control[Decision]) -> ChannelProblem:
    """The problem under solution, as what it is for solvers of this family."""
    problem = control.problem
    assert isinstance(problem, ChannelProblem)
    return problem


def channel_problem(
    model: MoEModel,
    platform: Platform,
    load: Load,
    layer: int,
    *,
    held_out: Load | None = None,
    settings: Settings | None = None,
) -> ChannelProblem:
    """Pose the question for one MoE layer (absolute id) of a model on a platform with PIM sites.

    Every layer may use an equal share of a site's memory, after what is not a routed expert has been
    spread evenly over all sites. Raises BadInput where platform, model and load do not belong together,
    ProvenInfeasible where the model does not fit.
    """
    settings = settings or Settings()
    for part in (load, held_out):
        if part is not None:
            _check(model, platform, part, layer)
    topology, pim = platform.topology, platform.pim
    assert topology is not None
    assert pim is not None
    groups = tiles(topology, largest=min(topology.sites, model.expert_intermediate_size))
    row_mode = is_row_mode(model, settings.mode)
    links = link_tables(topology)
    token_bytes = model.hidden_size * model.activation_bytes
    inner_bytes = model.expert_intermediate_size * model.activation_bytes
    rings = ring_tables(
        topology, groups, links, row_mode=row_mode, token_bytes=token_bytes, inner_bytes=inner_bytes
    )
    token_s = np.array(
        [sum(shard_s(model, platform, t, settings.mode, settings.layout)) for t in groups.factors]
    )
    shard_bytes = model.expert_bytes / np.array(groups.factors, dtype=np.float64)
    noc = topology.kind != "star"

    def pose(part: Load, beside: ChannelProblem | None, *, planned: bool) -> ChannelProblem:
        tokens = np.ascontiguousarray(part.experts[:, :, part.layers.index(layer), :])
        batch, made = tokens.shape[1], slot_tables(tokens, model.experts)
        tables = Tables(
            made.counts, made.slot_start, made.slots, made.answers,
            (np.arange(batch) % topology.sites).astype(np.int32),
            groups.start, groups.sites, groups.factor_of, groups.factor_start,
            token_s[groups.factor_of], shard_bytes[groups.factor_of],
            layer_capacity_bytes(model, platform), noc, token_bytes,
            *links, *rings,
        )  # fmt: skip
        key = fingerprint(part.fingerprint, model.fingerprint, platform.fingerprint, layer, vars(settings))
        times = settings.times(tokens.size) if planned else 0
        drawn = draw_steps(tables, tokens, times, settings.resample_seed) if times else None
        return ChannelProblem(layer, groups, tokens, tables, settings.risk, key, beside, drawn)

    beside = pose(held_out, None, planned=False) if held_out is not None else None
    return pose(load, beside, planned=True)


def draw_steps(tables: Tables, tokens: NDArray[np.int16], times: int, seed: int) -> Tables:
    """Tables of the recorded steps `tokens` [S, B, K], followed by `times` as many that might come."""
    experts = len(tables.counts)
    every = np.concatenate([tokens, unseen_steps(tokens, experts, times, seed)])
    return tables._replace(**slot_tables(every, experts)._asdict())


def layer_capacity_bytes(model: MoEModel, platform: Platform) -> float:
    """Bytes that one layer's experts may take on one site.

    Raises ProvenInfeasible where the model does not fit.
    """
    sites = platform.topology.sites if platform.topology else 0
    room = platform.site_memory_bytes * sites
    needed = model.expert_bytes * model.experts * len(model.moe_layers) + model.other_bytes
    if needed > room:
        raise ProvenInfeasible(
            f"{model.name} does not fit on {platform.name}: {(needed - room) / GIB:.1f} GiB are missing",
            where=f"experts and other weights take {needed / GIB:.1f} GiB, "
            f"{sites} sites hold {room / GIB:.1f} GiB",
            fix="take a platform with more memory, or a model with smaller weights",
        )
    return (room - model.other_bytes) / sites / len(model.moe_layers)


def _check(model: MoEModel, platform: Platform, load: Load, layer: int) -> None:
    if platform.pim is None or platform.topology is None:
        raise BadInput(
            f"platform {platform.name!r} has no PIM channel sites to place experts on",
            fix="take one that has, for example spimoe-4x8",
        )
    if load.num_experts != model.experts:
        raise BadInput(
            f"the trace has {load.num_experts} experts a layer, {model.name} has {model.experts}",
            fix=f"take a trace of {model.name}, or name the model of the trace ({load.model})",
        )
    if layer not in load.layers:
        raise BadInput(
            f"layer {layer} is not in the trace", allowed=f"layers {load.layers[0]}..{load.layers[-1]}"
        )
