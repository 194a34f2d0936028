"""What is asked of every family, small to large, on synthetic and on recorded routing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .instances import Instance, recorded, synthetic

if TYPE_CHECKING:
    from ...placement.channels.problem import ChannelProblem
    from ...placement.cores.problem import CoreProblem
    from ...placement.partition.layer import LayoutName
    from ...placement.partition.problem import PartitionProblem
    from ...placement.problem import Problem
    from ...placement.replicas.problem import ReplicaProblem
    from ...placement.ring.problem import RingProblem
    from ...workload.load import Load

Posed = Callable[[], "Problem[Any]"]
LAW = ("deepseek-v2-lite-law.npz", "deepseek-v2-lite")
DECODE = ("gpt-oss-20b-decode.npz", "gpt-oss-20b")
_TREE = "its tree is far too large to search whole"


def _channels(model: str, loads: Callable[[], tuple[Load, Load]], layer: int | None = None) -> Posed:
    def pose() -> ChannelProblem:
        from ...hardware.platform import load_platform
        from ...placement.channels.problem import channel_problem
        from ...workload.model import load_model

        profile, held_out = loads()
        shapes, machine = load_model(model), load_platform("spimoe-4x8")
        planned = profile.layers[0] if layer is None else layer
        return channel_problem(shapes, machine, profile, planned, held_out=held_out)

    return pose


def _partition(model: str, batch: int, layout: LayoutName) -> Posed:
    def pose() -> PartitionProblem:
        from ...hardware.platform import load_platform
        from ...placement.partition.layer import partition_layer
        from ...workload.model import load_model

        profile, _ = synthetic(model, batch, 4)
        layer = partition_layer(load_model(model), load_platform("b200-hbmpim"), layout=layout)
        return layer.problem(profile.counts()[0, 0], attention_s=layer.attention_s([1024] * batch))

    return pose


def _ring(rows: int, cols: int, cores: int) -> Posed:
    def pose() -> RingProblem:
        from ...hardware.topology import mesh
        from ...placement.ring.problem import RingProblem

        chosen = np.random.default_rng(cores).permutation(rows * cols)[:cores]
        grid = mesh(rows, cols, link_bandwidth_bytes_per_s=25.6e9, hop_latency_s=3.75e-9)
        return RingProblem(grid, tuple(sorted(chosen.tolist())))

    return pose


def _cores(model: str, batch: int, side: int) -> Posed:
    """Fitted routing, 64 steps to profile and the 64 that follow them held out."""

    def pose() -> CoreProblem:
        from ...placement.cores.layout import die_layout, published_die
        from ...placement.cores.problem import core_problem
        from ...workload.model import load_model
        from ...workload.routing_presets import routing_preset
        from ...workload.synthetic import synthesize_load

        shapes = load_model(model)
        shapes = dataclasses.replace(shapes, moe_layers=shapes.moe_layers[:1])
        both = synthesize_load(shapes, batch=batch, steps=128, seed=0, routing=routing_preset(model))
        profile, held_out = (
            dataclasses.replace(both, experts=both.experts[part]) for part in (slice(64), slice(64, 128))
        )
        return core_problem(shapes, die_layout(shapes, published_die(side)), profile, 0, held_out=held_out)

    return pose


def _replicas(
    experts: int, slots: int, ranks: int, nodes: int, groups: int, skew: float, drift: float
) -> Posed:
    """Zipf loads in random order, one window to profile; held-out windows drift in log space."""

    def pose() -> ReplicaProblem:
        from ...placement.replicas.problem import Settings, replica_problem
        from ...placement.replicas.ranks import even_ranks

        rng = np.random.default_rng([experts, slots, int(10 * skew)])
        share = 1.0 / np.arange(1, experts + 1) ** skew
        counts = rng.multinomial(3_200_000, rng.permutation(share / share.sum())).astype(np.float64)
        moved = np.rint(counts * np.exp(drift * rng.standard_normal((64, experts))))
        machine, settings = even_ranks(nodes, ranks, slots), Settings(groups=groups, drift=drift)
        return replica_problem(counts, machine, held_out=moved, settings=settings)

    return pose


def _real(trace: tuple[str, str], batch: int, steps: int) -> Callable[[], tuple[Load, Load]]:
    return lambda: recorded(*trace, batch, steps)


def _drawn(model: str, batch: int, steps: int) -> Callable[[], tuple[Load, Load]]:
    return lambda: synthetic(model, batch, steps)


_MODEL = "its model has more than 40,000 variables"
_NO_MODEL: Mapping[str, str] = {"ilp": _MODEL, "cpsat": _MODEL}
_NO_TREE: Mapping[str, str] = {"exact": _TREE}

INSTANCES: tuple[Instance, ...] = (
    Instance("channels/phi-mini-b8", "small", _channels("phi-mini-moe", _drawn("phi-mini-moe", 8, 32)),
             skips=_NO_TREE, quick=True),
    Instance("channels/olmoe-b32", "medium", _channels("olmoe-1b-7b", _drawn("olmoe-1b-7b", 32, 64)),
             skips=_NO_TREE, quick=True),
    Instance("channels/qwen3-30b-b128", "large", _channels("qwen3-30b-a3b", _drawn("qwen3-30b-a3b", 128, 64)),
             skips=_NO_TREE),
    Instance("channels/law-b32", "medium", _channels(LAW[1], _real(LAW, 32, 64), layer=5),
             trace=LAW[0], skips=_NO_TREE, quick=True),
    Instance("channels/decode-b32", "medium", _channels(DECODE[1], _real(DECODE, 32, 64), layer=5),
             trace=DECODE[0], skips=_NO_TREE),
    Instance("cores/qwen3.5-35b-b128", "medium", _cores("qwen3.5-35b-a3b", 128, 4), quick=True),
    Instance("cores/qwen3.5-397b-b205", "large", _cores("qwen3.5-397b-a17b", 205, 4)),
    Instance("cores/qwen3.5-35b-b128-side2", "large", _cores("qwen3.5-35b-a3b", 128, 2)),
    Instance("replicas/16e-20s-4r", "small", _replicas(16, 20, 4, 1, 1, 1.0, 0.2), quick=True),
    Instance("replicas/64e-72s-8r", "medium", _replicas(64, 72, 8, 1, 1, 1.0, 0.2), quick=True),
    Instance("replicas/256e-288s-32r-4n", "large", _replicas(256, 288, 32, 4, 8, 1.0, 0.2),
             skips=_NO_MODEL),
    Instance("replicas/384e-384s-32r", "large", _replicas(384, 384, 32, 4, 1, 0.3, 0.0)),
    Instance("partition/mixtral-b16", "small", _partition("mixtral-8x7b", 16, "tp"), quick=True),
    Instance("partition/qwen3-30b-b64-ep", "medium", _partition("qwen3-30b-a3b", 64, "ep"), quick=True),
    Instance("partition/qwen3.5-397b-b256", "large", _partition("qwen3.5-397b-a17b", 256, "tp")),
    Instance("partition/qwen3.5-397b-b256-ep", "large", _partition("qwen3.5-397b-a17b", 256, "ep")),
    Instance("ring/4x8-c9", "small", _ring(4, 8, 9), quick=True),
    Instance("ring/4x8-c21", "medium", _ring(4, 8, 21), quick=True),
    Instance("ring/12x12-c64", "large", _ring(12, 12, 64)),
)  # fmt: skip
