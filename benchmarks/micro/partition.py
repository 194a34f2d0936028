"""The GPU/PIM partition on the critical path: `fast` against the published greedy, compiled the same way."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.platform import load_platform
from ...placement.partition.layer import LAYOUTS, PartitionLayer, partition_layer
from ...placement.partition.online import OnlinePartition
from ...placement.partition.published import sieve_experts
from ...placement.result import Stop
from ...placement.solve import solve
from ...workload.model import load_model
from ...workload.replay import replay
from ...workload.synthetic import synthesize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...workload.model import MoEModel

    Counts = NDArray[np.int64]

_MODELS = ("gpt-oss-120b", "deepseek-v3", "qwen3.5-397b-a17b")
_BATCH, _LAYERS, _STEPS, _RUNS = 256, 4, 24, 5
_CERTIFIED = 0.003


def rows() -> Iterator[tuple[str, str, str]]:
    """Medians over layers and steps of a call of `fast`, of the greedy, and of an exact solve."""
    platform = load_platform("b200-hbmpim")
    for name in _MODELS:
        model = load_model(name)
        counts = _counts(model)
        for layout in LAYOUTS:
            where = f"{name}, {model.experts} experts, {layout}, batch {_BATCH}, synthetic"
            yield from _compare(partition_layer(model, platform, layout=layout), counts, where)


def _compare(layer: PartitionLayer, counts: Counts, where: str) -> Iterator[tuple[str, str, str]]:
    online = OnlinePartition(layer)
    gaps = [online.split(step).gap for step in counts]
    fast_s, greedy_s = _medians(counts, online.split, _greedy(layer, online))
    yield "fast split, Python API", f"{fast_s * 1e6:.1f} us", where
    yield "published greedy (Sieve)", f"{greedy_s * 1e6:.1f} us", where
    yield "fast / greedy", f"{fast_s / greedy_s:.1f} x", where
    certified = sum(gap <= _CERTIFIED for gap in gaps) / len(gaps)
    yield f"certified gap <= {_CERTIFIED:.1%}", f"{certified:.1%} of layers", where
    times_s, proven = [], 0
    for step in counts:
        problem = layer.problem(step)
        begun = time.perf_counter()
        proven += solve(problem, "exact").stop is Stop.OPTIMAL
        times_s.append(time.perf_counter() - begun)
    exact = f"{statistics.median(times_s) * 1e3:.2f} ms, {proven} of {len(counts)} proven"
    yield "exact solve", exact, where


def _greedy(layer: PartitionLayer, online: OnlinePartition) -> Callable[[Counts], object]:
    """Sieve's greedy as a call on the same table, with its arrays made beforehand."""
    experts = len(layer.home)
    busy_s, order = np.zeros(layer.homes), np.empty(experts, dtype=np.int64)
    histogram, mask = np.zeros(4096, dtype=np.int64), np.empty(experts, dtype=np.bool_)
    table, coefficients = online.table.snapshot.seconds, layer.gpu.coefficients(_BATCH)

    def greedy(tokens: Counts) -> object:
        busy_s[:] = 0.0
        return sieve_experts(
            tokens, table, coefficients, 0.0, 0.0, layer.home, busy_s, order, histogram, mask
        )

    return greedy


def _medians(counts: Counts, *calls: Callable[[Counts], object]) -> list[float]:
    """Median seconds of each call over all steps; calls take turns, so that they share the machine's mood."""
    times_s: list[list[float]] = [[] for _ in calls]
    for run in range(_RUNS + 1):
        for step in counts:
            for call, taken_s in zip(calls, times_s, strict=True):
                begun = time.perf_counter()
                call(step)
                if run > 0:
                    taken_s.append(time.perf_counter() - begun)
    return [statistics.median(taken_s) for taken_s in times_s]


def _counts(model: MoEModel) -> Counts:
    """Tokens per expert, `[layers * steps, E]`."""
    few = dataclasses.replace(model, moe_layers=model.moe_layers[:_LAYERS])
    load = replay(synthesize(few, tokens=_BATCH * _STEPS, seed=0), batch=_BATCH, steps=_STEPS, seed=0)
    return load.counts().reshape(-1, model.experts).astype(np.int64)
