"""Rates of the timing models: one evaluation of a known shape, and a whole table of expert times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...hardware.platform import load_platform
from ...workload.model import load_model

if TYPE_CHECKING:
    from ...hardware.pim import Pim

_MODEL, _PLATFORM = "qwen3-30b-a3b", "spimoe-4x8"
_FACTORS = (1, 2, 4, 8, 16, 32)
_TOKENS = 512
_CALLS, _RUNS = 20_000, 7


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield what, figure, and what it was measured on."""
    model, groups = load_model(_MODEL), load_platform(_PLATFORM).site_pseudo_channels
    hidden, inner, bytes_each = model.hidden_size, model.expert_intermediate_size, model.weight_bytes
    pim = _pim()
    gemv = partial(
        pim.gemv_s,
        inner,
        hidden,
        weight_bytes=bytes_each,
        activation_bytes=model.activation_bytes,
        groups=groups,
        tokens=4,
    )
    expert = partial(
        pim.expert_s,
        hidden,
        inner,
        matrices=model.expert_matrices,
        weight_bytes=bytes_each,
        activation_bytes=model.activation_bytes,
        groups=groups,
        tokens=4,
        tp=2,
    )
    where = f"{_MODEL} on {_PLATFORM}"
    yield "PIM GEMV, known shape", f"{_per_call_s(gemv) * 1e6:.2f} us", f"{where}, [{inner}, {hidden}]"
    yield "PIM expert, known shape", f"{_per_call_s(expert) * 1e6:.2f} us", f"{where}, two shards"

    def table_s() -> float:
        fresh = _pim()
        begun = time.perf_counter()
        fresh.expert_table(
            hidden,
            inner,
            matrices=model.expert_matrices,
            weight_bytes=bytes_each,
            activation_bytes=model.activation_bytes,
            groups=groups,
            tokens=_TOKENS,
            factors=_FACTORS,
        )
        return time.perf_counter() - begun

    built_s = statistics.median(table_s() for _ in range(_RUNS))
    what = f"{where}, tokens 1 to {_TOKENS}, {len(_FACTORS)} TP factors"
    yield "table of expert times", f"{built_s * 1e3:.1f} ms", what


def _pim() -> Pim:
    """Return a device that no shape was asked of."""
    pim = load_platform(_PLATFORM).pim
    assert pim is not None
    return pim


def _per_call_s(call: Callable[[], object]) -> float:
    """Return the median over runs of the mean time of a call whose shape is known."""
    call()
    means = []
    for _ in range(_RUNS):
        begun = time.perf_counter()
        for _ in range(_CALLS):
            call()
        means.append((time.perf_counter() - begun) / _CALLS)
    return statistics.median(means)
