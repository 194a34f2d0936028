"""A whole decode step on SPIMOE: all layers of a batch, sub-batch by sub-batch, on both kinds of PIM.

Every layer is timed stage by stage (`schedule.stages`) for every sub-batch; the pipeline of sub-batches then
overlaps attention with the rest (SPIMOE eq. 6), and the output head follows. The published model overlaps
freely; that cores read the cache from banks which compute at the same time is not charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..common.errors import BadInput, UsageError
from .attention import CoreAttention, Spread, core_attention
from .kv_cache import Cached, Eviction, KvCapacity, platform_capacity
from .moe_side import Channels, GatherRings, RoutedExperts
from .moe_time import MoeTimer, moe_timer
from .pipeline import (
    PipelineTimes,
    best_partition,
    fixed_partition,
    greedy_partition,
    step_pipeline,
)
from .sparse_attention import BlockSparse
from .stages import STAGES, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..placement.channels.problem import ChannelProblem, Decision
    from ..workload.load import Load

Partition = Literal["none", "static", "greedy", "dynamic", "oracle"]
PARTITIONS: tuple[Partition, ...] = ("none", "static", "greedy", "dynamic", "oracle")
MOST_UNITS = 32
"""Sub-batches are cut between so many units of neighbouring slots at most."""
_GATHER = "kv_all_gather"
_ROUNDING = 1e-9
_OF_ATTENTION = tuple(stage.name for stage in STAGES if stage.side is Side.ATTENTION)
_OF_MOE = tuple(stage.name for stage in STAGES if stage.side is Side.MOE)


@dataclass(frozen=True)
class Features:
    """Mechanisms of SPIMOE, each of which can be switched off.

    `partition` of the batch: `none` is serial, `static` makes `sub_batches` equal ones, `greedy` packs by
    predicted times as published, `dynamic` takes the partition that is best by predicted times, `oracle` the
    best by true ones. Raises UsageError on an unknown partition, or no sub-batch.
    """

    partition: Partition = "dynamic"
    sub_batches: int = 4
    sparse: BlockSparse | None = BlockSparse()  # noqa: RUF009 - frozen, hence no shared state
    eviction: Eviction | None = Eviction()  # noqa: RUF009
    spread: Spread = "heads"
    """Where keys and values lie; see `schedule.attention`."""

    def __post_init__(self) -> None:
        if self.partition not in PARTITIONS:
            raise UsageError(f"unknown partition {self.partition!r}", allowed=", ".join(PARTITIONS))
        if self.sub_batches < 1:
            raise UsageError(f"{self.sub_batches} sub-batches are not possible", allowed="at least 1")

    def cached(self, context: int) -> Cached:
        """Return what is cached of a request of `context` tokens."""
        return self.eviction.resident(context) if self.eviction else Cached(context, context, 0)


@dataclass(frozen=True, eq=False)
class DecodeRun:
    """S simulated decode steps."""

    step_s: NDArray[np.float64]
    """[S] the pipeline, and the output head."""
    parts: Mapping[str, float]
    """Mean seconds of every stage, summed over layers and sub-batches, and `head_s`."""
    pipelines: tuple[PipelineTimes, ...]
    """[S]"""
    batch: int
    cached: Cached
    capacity: KvCapacity

    @property
    def tpot_s(self) -> float:
        """Mean time per output token."""
        return float(self.step_s.mean())

    @property
    def tokens_per_s(self) -> float:
        """Of the whole batch."""
        return self.batch / self.tpot_s

    @property
    def serial_s(self) -> float:
        """Sum of all parts: what the same sub-batches take without overlap."""
        return sum(self.parts.values())

    @property
    def overlapped_s(self) -> float:
        """What the pipeline hides of the parts; 0.0 where that is rounding."""
        hidden_s = self.serial_s - self.tpot_s
        return hidden_s if hidden_s > _ROUNDING * self.serial_s else 0.0

    def mean(self, name: str) -> float:
        """Mean over steps of a field or property of `PipelineTimes`."""
        return float(np.mean([getattr(times, name) for times in self.pipelines]))


@dataclass(frozen=True, eq=False)
class Spimoe:
    """A model on the machine, with a placement of its experts; build it with `spimoe`."""

    channels: Channels
    experts: Mapping[int, RoutedExperts]
    """By absolute id of a MoE layer; layers without one take the mean of these."""

    def simulate(
        self,
        load: Load,
        context: int,
        features: Features | None = None,
        predicted: NDArray[np.int16] | None = None,
        expected_s: NDArray[np.float64] | None = None,
    ) -> DecodeRun:
        """Run the steps of a load, all of whose requests have `context` tokens.

        `predicted` [S, B, L, K] are the choices that partitions by predicted times go by. `expected_s`
        [B + 1] are profiled seconds of the routed experts of so many tokens, all placed layers together
        (`predictor.step_zero_table`): the dynamic partition scales predicted times to that mean, since
        likely choices are more alike than true ones. Raises BadInput where the caches do not fit, or the
        load has layers that are not placed; UsageError where a prediction is needed and missing.
        """
        features = features or Features()
        model = self.channels.model
        if context < 1:
            raise UsageError(f"a context of {context} tokens is not possible", allowed="at least 1")
        missing = [layer for layer in load.layers if layer not in self.experts]
        if missing:
            raise BadInput(f"the experts of layer {missing[0]} are not placed", fix="plan that layer, too")
        capacity = platform_capacity(model, self.channels.platform)
        cached = features.cached(context)
        capacity.require(load.batch, cached.peak, where=f"context {context} on {self.channels.platform.name}")
        resident = np.full(load.batch, cached.resident)
        return _Step(self, load, resident, features, predicted, expected_s).run(cached, capacity)

    @cached_property
    def timers(self) -> dict[int, MoeTimer]:
        """J of sub-batches, by absolute id of the layer."""
        return {
            layer: moe_timer(replace(routed.problem, tables=routed.tables), routed.decision)
            for layer, routed in self.experts.items()
        }


def spimoe(
    channels: Channels, problems: Mapping[int, ChannelProblem], decisions: Mapping[int, Decision]
) -> Spimoe:
    """Return the machine with the decisions in place; both by absolute id of the layer."""
    token_bytes = channels.model.hidden_size * channels.model.activation_bytes
    rings = GatherRings(channels.topology, token_bytes)
    return Spimoe(
        channels,
        {layer: RoutedExperts(channels, problems[layer], decisions[layer], rings) for layer in decisions},
    )


@dataclass(frozen=True, eq=False)
class _Step:
    """One simulation: what depends on the batch and its caches, but not on the step, is computed once."""

    system: Spimoe
    load: Load
    cached: NDArray[np.int64]
    features: Features
    predicted: NDArray[np.int16] | None
    expected_s: NDArray[np.float64] | None

    def run(self, cached: Cached, capacity: KvCapacity) -> DecodeRun:
        head_s = self.system.channels.head_s(self.load.batch)
        starts = [self._starts(step) for step in range(self.load.steps)]
        of_step = np.repeat(np.arange(len(starts)), [len(cuts) - 1 for cuts in starts])
        ranges = [(int(i), int(j)) for cuts in starts for i, j in pairwise(cuts)]
        layers = self._layers(of_step, ranges)
        attention = np.array([sum(times[name] for name in _OF_ATTENTION) for times in layers])
        moe = np.array([sum(times[name] for name in _OF_MOE) for times in layers])
        pipelines = tuple(
            step_pipeline(attention[:, of_step == step], moe[:, of_step == step])
            for step in range(len(starts))
        )
        parts = {
            stage.name: float(sum(times[stage.name].sum() for times in layers)) / len(starts)
            for stage in STAGES
        }
        return DecodeRun(
            step_s=np.array([times.total_s + head_s for times in pipelines]),
            parts=parts | {"head": head_s},
            pipelines=pipelines,
            batch=self.load.batch,
            cached=cached,
            capacity=capacity,
        )

    def _layers(
        self, of_step: NDArray[np.int64], ranges: list[tuple[int, int]]
    ) -> list[dict[str, NDArray[np.float64]]]:
        """Seconds by stage of every layer of the model, [P] for the P sub-batches of all steps."""
        model = self.system.channels.model
        recorded = {
            layer: self._layer(layer, index, of_step, ranges) for index, layer in enumerate(self.load.layers)
        }
        mean = {
            stage.name: np.mean([times[stage.name] for times in recorded.values()], axis=0)
            for stage in STAGES
        }
        found = []
        for layer in range(model.layers):
            if layer in recorded:
                found.append(recorded[layer])
            elif layer in model.moe_layers:
                found.append(mean)
            else:
                found.append(self._layer(layer, None, of_step, ranges))
        return found

    def _layer(
        self, layer: int, index: int | None, of_step: NDArray[np.int64], ranges: list[tuple[int, int]]
    ) -> dict[str, NDArray[np.float64]]:
        """Seconds by stage, [P]; `index` of the layer in the load, None for a dense layer."""
        each = [self._unrouted(layer, begin, end) for begin, end in ranges]
        times = {stage.name: np.array([one.get(stage.name, 0.0) for one in each]) for stage in STAGES}
        if index is not None:
            slot = np.arange(self.load.batch)
            inside = np.array([(slot >= begin) & (slot < end) for begin, end in ranges])
            tokens = np.where(inside[:, :, None], self.load.experts[of_step, :, index], np.int16(-1))
            for name, seconds in self.system.experts[layer].stage_s(tokens).items():
                times[name] = times[name] + seconds
        return times

    def _unrouted(self, layer: int, begin: int, end: int) -> dict[str, float]:
        """Seconds by stage of a sub-batch, but of routed experts; layers of one kind are timed once."""
        key = (self._kind(layer), begin, end)
        if key not in self._known:
            channels = self.system.channels
            slots = np.zeros(self.load.batch, dtype=np.bool_)
            slots[begin:end] = True
            attention = self._attention[self._kind(layer)]
            times = channels.common_s(layer, slots, self.features.spread) | attention.stage_s(slots)
            times[_GATHER] = channels.all_gather_s(end - begin, attention.shape.gathered_width)
            model = channels.model
            dense = layer not in model.moe_layers
            width = (
                model.dense_intermediate_size
                if dense
                else model.shared_experts * model.shared_intermediate_size
            )
            self._known[key] = times | (channels.spread_ffn_s(width, end - begin) if width else {})
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[tuple[bool, bool], int, int], dict[str, float]]:
        return {}

    def _kind(self, layer: int) -> tuple[bool, bool]:
        model = self.system.channels.model
        return layer in model.moe_layers, layer in model.attention.sliding_layers

    @cached_property
    def _attention(self) -> dict[tuple[bool, bool], CoreAttention]:
        channels = self.system.channels
        kinds = {self._kind(layer): layer for layer in range(channels.model.layers)}
        return {
            kind: core_attention(
                channels.model,
                channels.core,
                channels.topology.sites,
                self.cached,
                layer,
                self.features.sparse,
                self.features.spread,
            )
            for kind, layer in kinds.items()
        }

    def _starts(self, step: int) -> NDArray[np.int64]:
        """Boundaries of the step's sub-batches, in slots."""
        batch, kind = self.load.batch, self.features.partition
        if kind == "none" or batch == 1:
            return np.array([0, batch])
        if kind == "static":
            return fixed_partition(batch, min(self.features.sub_batches, batch))
        if kind == "oracle":
            tokens = self.load.experts[step]
        elif self.predicted is None:
            raise UsageError(
                f"the partition {kind!r} goes by a prediction, and there is none",
                fix="hand over what a predictor foretells, or take static",
            )
        else:
            tokens = self.predicted[step]
        attention, moe = self._tables(tokens, scaled=kind == "dynamic")
        if kind == "greedy":
            return self._cuts[greedy_partition(moe, attention)]
        return self._cuts[best_partition(moe, attention)[0]]

    def _tables(
        self, tokens: NDArray[np.int16], *, scaled: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of both sides [L, U + 1, U + 1] of all sub-batches, for choices [B, L, K].

        `scaled`: so that sub-batches of equal size take on average what is expected of them.
        """
        attention, moe = self._unrouted_tables
        timers = [self.system.timers[layer] for layer in self.load.layers]
        routed = np.array([timer.table_s(tokens[:, index], self._cuts) for index, timer in enumerate(timers)])
        if scaled and self.expected_s is not None:
            size = np.maximum(self._cuts - self._cuts[:, None], 0)
            found = routed.sum(axis=0)
            mean = np.bincount(size.ravel(), found.ravel()) / np.maximum(np.bincount(size.ravel()), 1)
            scale = np.divide(self.expected_s[: len(mean)], mean, out=np.ones_like(mean), where=mean > 0.0)
            routed = routed * scale[size]
        return attention, moe + routed

    @cached_property
    def _unrouted_tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same without routed experts."""
        cuts, layers = self._cuts, self.load.layers
        attention = np.zeros((len(layers), len(cuts), len(cuts)))
        moe = np.zeros_like(attention)
        kinds: dict[tuple[bool, bool], int] = {}
        for index, layer in enumerate(layers):
            known = kinds.setdefault(self._kind(layer), index)
            if known != index:
                attention[index], moe[index] = attention[known], moe[known]
                continue
            for i in range(len(cuts) - 1):
                for j in range(i + 1, len(cuts)):
                    times = self._unrouted(layer, int(cuts[i]), int(cuts[j]))
                    attention[index, i, j] = sum(times.get(name, 0.0) for name in _OF_ATTENTION)
                    moe[index, i, j] = sum(times.get(name, 0.0) for name in _OF_MOE)
        return attention, moe

    @cached_property
    def _cuts(self) -> NDArray[np.int64]:
        return fixed_partition(self.load.batch, min(MOST_UNITS, self.load.batch))
