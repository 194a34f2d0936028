"""What is asked of every family, small to large, on synthetic and on recorded routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .instances import Instance, recorded, synthetic

if TYPE_CHECKING:
    from ...placement.channels.problem import ChannelProblem
    from ...placement.partition.layer import LayoutName
    from ...placement.partition.problem import PartitionProblem
    from ...placement.problem import Problem
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


def _real(trace: tuple[str, str], batch: int, steps: int) -> Callable[[], tuple[Load, Load]]:
    return lambda: recorded(*trace, batch, steps)


def _drawn(model: str, batch: int, steps: int) -> Callable[[], tuple[Load, Load]]:
    return lambda: synthetic(model, batch, steps)


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
    Instance("partition/mixtral-b16", "small", _partition("mixtral-8x7b", 16, "tp"), quick=True),
    Instance("partition/qwen3-30b-b64-ep", "medium", _partition("qwen3-30b-a3b", 64, "ep"), quick=True),
    Instance("partition/qwen3.5-397b-b256", "large", _partition("qwen3.5-397b-a17b", 256, "tp")),
    Instance("partition/qwen3.5-397b-b256-ep", "large", _partition("qwen3.5-397b-a17b", 256, "ep")),
    Instance("ring/4x8-c9", "small", _ring(4, 8, 9), quick=True),
    Instance("ring/4x8-c21", "medium", _ring(4, 8, 21), quick=True),
    Instance("ring/12x12-c64", "large", _ring(12, 12, 64)),
)  # fmt: skip
