"""Whole decode steps on a cluster of GPUs, with experts and their replicas placed on ranks.

Requests are split evenly over the ranks (data-parallel attention); every MoE layer ends when its slowest
rank and the links do, as the family `replicas` scores it. What is not a routed expert runs on every rank for
its own requests, by rooflines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..common.errors import UsageError
from .gpu_decode import GpuDecode, gpu_decode
from .gpu_memory import GpuMemory, gpu_memory
from .kv_cache import cache_bytes

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.replicas.problem import Decision, ReplicaProblem
    from ..workload.model import MoEModel


@dataclass(frozen=True)
class ClusterDecode:
    """Mean seconds of a decode step: `own`, what every rank does for itself, and the routed experts."""

    own: GpuDecode
    experts: Mapping[str, float]
    batch: int
    ranks: int
    memory: GpuMemory
    """Of the rank with the most slots; more ranks would share the same slots."""

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part; they add up to `tpot_s`."""
        return {
            "attention_s": self.own.attention_s,
            "shared_and_dense_s": self.own.experts_s,
            "routing_s": self.own.routing_s,
            "norms_s": self.own.norms_s,
            "head_s": self.own.head_s,
            **{f"experts_{name}": seconds for name, seconds in self.experts.items()},
        }

    @property
    def tpot_s(self) -> float:
        """Time per output token."""
        return sum(self.parts.values())

    @property
    def tokens_per_s(self) -> float:
        """Of the whole batch."""
        return self.batch / self.tpot_s


def cluster_decode(
    model: MoEModel,
    platform: Platform,
    problems: Sequence[ReplicaProblem],
    decisions: Sequence[Decision],
    *,
    batch: int,
    context: int,
) -> ClusterDecode:
    """Return the decode step of `batch` requests, all of `context` tokens, over the ranks of the problems.

    Placed layers stand for all MoE layers, by their mean, and their slots for what a rank holds. Raises
    UsageError where the batch cannot be split evenly or nothing is placed, and what `gpu_decode` raises.
    """
    if not problems or len(problems) != len(decisions):
        raise UsageError(f"{len(problems)} layers, {len(decisions)} placements", fix="place at least one")
    ranks = problems[0].ranks.ranks
    if batch % ranks:
        raise UsageError(
            f"{batch} requests cannot be split evenly over {ranks} ranks", fix=f"choose a multiple of {ranks}"
        )
    nothing = np.zeros((1, 1, model.experts), dtype=np.int32)
    own = gpu_decode(model, platform, nothing, [context] * (batch // ranks))
    costs = [problem.evaluate(decision) for problem, decision in zip(problems, decisions, strict=True)]
    decoding = model.attention.cross_layers or tuple(range(model.layers))
    layers = sum(layer in model.moe_layers for layer in decoding)
    experts = {name: layers * float(np.mean([cost.parts[name] for cost in costs])) for name in costs[0].parts}
    memory = _memory(model, platform, problems, batch, context)
    own = replace(own, memory_bytes=memory.memory_bytes, fits=memory.fits)
    return ClusterDecode(own, experts, batch, ranks, memory)


def _memory(
    model: MoEModel, platform: Platform, problems: Sequence[ReplicaProblem], batch: int, context: int
) -> GpuMemory:
    assert platform.gpu is not None  # or gpu_decode had refused
    room = np.mean([problem.ranks.room for problem in problems], axis=0)
    slot_bytes = len(model.moe_layers) * model.expert_bytes
    cached = batch * cache_bytes(model).of(context)
    return gpu_memory(
        gpus=len(room),
        memory_bytes=model.other_bytes + float(room.max()) * slot_bytes + cached / len(room),
        capacity_bytes=platform.gpu.memory_bytes,
        everywhere_bytes=model.other_bytes,
        split_bytes=float(room.sum()) * slot_bytes + cached,
        units=math.gcd(batch, round(float(room.sum()))),
    )
