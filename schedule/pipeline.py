"""Sub-batches of a decode step in a pipeline of two substrates (SPIMOE 3.4.2).

SRAM-PIM computes the attention of sub-batch i + 1 while HBM-PIM runs the experts of sub-batch i; both wait
for each other before they go on (equation 6). A sub-batch is named by the boundaries of its tokens in a
given order: `starts` [n + 1] from 0 to B. Tables of all possible sub-batches are `[B + 1, B + 1]` seconds,
entry [i, j] for tokens i to j - 1; entries with i >= j are never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Sub-batch boundaries up to which the optimal partition of several chained layers is searched.
LONGEST_CHAINED = 256


@dataclass(frozen=True)
class PipelineTimes:
    """Seconds of one decode step, through all its layers.

    `total_s` = `startup_s` + overlapped stages + `drain_s`; `attention_s` and `moe_s` are the busy time of
    either substrate; `sub_batches` is their number.
    """

    total_s: float
    startup_s: float
    drain_s: float
    attention_s: float
    moe_s: float
    sub_batches: int

    @property
    def efficiency(self) -> float:
        """Pipeline efficiency: the share of both substrates' time in which they work, (A + M) / 2 T.

        The usual measure of a pipeline, its speed-up over the number of its stages.
        SPIMOE prints 77.7 % and 87.3 % beside 1.80x and 1.99x without a formula; with two stages and a
        baseline that does the same work one after the other, no measure of busy time goes with both, since
        1.80 / 0.777 and 1.99 / 0.873 exceed 2.
        """
        return (self.attention_s + self.moe_s) / (2.0 * self.total_s) if self.total_s > 0.0 else 0.0

    @property
    def bottleneck_share(self) -> float:
        """Share of the step in which the busier substrate works, max(A, M) / T.

        What is missing to 1 is lost to filling, draining and stages that do not match.
        """
        return max(self.attention_s, self.moe_s) / self.total_s if self.total_s > 0.0 else 0.0


def pipeline_s(attention_s: NDArray[np.float64], moe_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Equation 6 for one chain of sub-batches, `[..., n]` seconds of each: `[...]`.

    T = attention of the first + sum of max(attention of i + 1, experts of i) + experts of the last. One
    sub-batch has nothing to overlap with and takes the serial time. Raises UsageError on shapes that differ
    or hold no sub-batch.
    """
    attention, moe = _same_shape(attention_s, moe_s)
    overlapped = np.maximum(attention[..., 1:], moe[..., :-1]).sum(axis=-1)
    total: NDArray[np.float64] = attention[..., 0] + overlapped + moe[..., -1]
    return total


def step_pipeline(attention_s: NDArray[np.float64], moe_s: NDArray[np.float64]) -> PipelineTimes:
    """Time a decode step of L layers, `[L, n]` seconds of every sub-batch in every layer.

    With two sub-batches or more the layers form one chain: while the last sub-batch is with its experts, the
    first one, whose experts have answered, is in the attention of the next layer. So the pipeline fills and
    drains once a step, as equation 6 has it. With one sub-batch the step is serial. Raises UsageError on
    shapes that differ or are not [L, n].
    """
    attention, moe = _same_shape(attention_s, moe_s)
    if attention.ndim != 2:
        raise UsageError(f"times of a step need the axes [layers, sub-batches], not {attention.shape}")
    if attention.shape[1] == 1:
        total = float(attention.sum() + moe.sum())
    else:
        total = float(pipeline_s(attention.ravel(), moe.ravel()))
    return PipelineTimes(
        total_s=total,
        startup_s=float(attention[0, 0]),
        drain_s=float(moe[-1, -1]),
        attention_s=float(attention.sum()),
        moe_s=float(moe.sum()),
        sub_batches=int(attention.shape[1]),
    )


def attention_table(by_size_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Table of sub-batches [B + 1, B + 1] where attention depends on the number of tokens alone [B + 1]."""
    sizes = np.asarray(by_size_s, dtype=np.float64)
    order = np.arange(len(sizes))
    table: NDArray[np.float64] = sizes[np.maximum(order - order[:, None], 0)]
    return table


def fixed_partition(tokens: int, sub_batches: int) -> NDArray[np.int64]:
    """Boundaries of `sub_batches` nearly equal sub-batches: SPIMOE's static partition.

    Raises UsageError where there are fewer tokens than sub-batches, or none asked for.
    """
    if not 1 <= sub_batches <= tokens:
        raise UsageError(
            f"{tokens} tokens do not make {sub_batches} sub-batches", allowed=f"1 to {tokens} sub-batches"
        )
    return np.arange(sub_batches + 1) * tokens // sub_batches


def greedy_partition(
    moe_s: NDArray[np.float64], attention_s: NDArray[np.float64], nominal: int | None = None
) -> NDArray[np.int64]:
    """Pack tokens in their order and close a sub-batch as soon as its expert time exceeds attention's.

    `moe_s` and `attention_s` are tables `[B + 1, B + 1]`, or `[L, B + 1, B + 1]` that are summed over layers:
    predicted ones make SPIMOE's dynamic partition, actual ones its oracle. The threshold is the attention
    time of the sub-batch itself, or with `nominal` that of so many tokens from its start ("determined by the
    sub-batch size"), which keeps sub-batches near that size where one substrate dominates. Raises UsageError
    on tables of other shapes.
    """
    moe, attention = _tables(moe_s, attention_s)
    moe, attention = moe.sum(axis=0), attention.sum(axis=0)
    tokens = len(moe) - 1
    if nominal is not None and nominal < 1:
        raise UsageError(f"a nominal sub-batch of {nominal} tokens is not possible", allowed="1 or more")
    starts, begin = [0], 0
    while begin < tokens:
        ends = np.arange(begin + 1, tokens + 1)
        limit = attention[begin, ends if nominal is None else min(begin + nominal, tokens)]
        over = moe[begin, ends] > limit
        begin = int(ends[over.argmax()]) if over.any() else tokens
        starts.append(begin)
    return np.array(starts)


def best_partition(
    moe_s: NDArray[np.float64], attention_s: NDArray[np.float64]
) -> tuple[NDArray[np.int64], float]:
    """The partition of the given order with the least step time, and that time in seconds.

    Tables as for `greedy_partition`; several layers are timed as one chain (`step_pipeline`), all with the
    same partition. Dynamic programming over the last sub-batch, with the first one fixed in turn where
    layers are chained: O(B^3) for one layer, O(L B^3 + B^4) for more, where B is the number of units that
    the tables' boundaries cut. Proven by construction, and never worse than any other partition of the
    order. Raises UsageError on tables of other shapes, or beyond 256 units in several layers.
    """
    from .partition_kernel import best_chain

    moe, attention = _tables(moe_s, attention_s)
    if len(moe) > 1 and moe.shape[1] - 1 > LONGEST_CHAINED:
        raise UsageError(
            f"the optimal partition of {moe.shape[1] - 1} units in {len(moe)} layers is out of reach",
            allowed=f"{LONGEST_CHAINED} units",
            fix="cut at every second or fourth token (MoeTimer.table_s with cuts)",
        )
    starts, total_s = best_chain(np.ascontiguousarray(attention), np.ascontiguousarray(moe))
    return starts, float(total_s)


def partition_times(
    moe_s: NDArray[np.float64], attention_s: NDArray[np.float64], starts: NDArray[np.int64]
) -> PipelineTimes:
    """Time a partition with the tables' times. Raises UsageError where `starts` is no partition."""
    moe, attention = _tables(moe_s, attention_s)
    starts = np.asarray(starts)
    if starts[0] != 0 or starts[-1] != moe.shape[1] - 1 or (np.diff(starts) < 1).any():
        raise UsageError(
            f"{starts.tolist()} is no partition", allowed=f"rising boundaries from 0 to {moe.shape[1] - 1}"
        )
    begins, ends = starts[:-1], starts[1:]
    return step_pipeline(attention[:, begins, ends], moe[:, begins, ends])


def _same_shape(
    attention_s: NDArray[Any], moe_s: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    attention, moe = np.asarray(attention_s, dtype=np.float64), np.asarray(moe_s, dtype=np.float64)
    if attention.shape != moe.shape or attention.ndim == 0 or attention.shape[-1] == 0:
        raise UsageError(
            f"attention times of shape {attention.shape} beside expert times of shape {moe.shape}",
            allowed="one of each per sub-batch, and one sub-batch at least",
        )
    return attention, moe


def _tables(
    moe_s: NDArray[Any], attention_s: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both tables as [L, B + 1, B + 1]; attention is repeated where it is the same in all layers."""
    moe, attention = np.asarray(moe_s, dtype=np.float64), np.asarray(attention_s, dtype=np.float64)
    moe = moe[None] if moe.ndim == 2 else moe
    fits = moe.ndim == 3 and moe.shape[1] == moe.shape[2] >= 2
    if not fits or attention.shape not in (moe.shape, moe.shape[1:]):
        raise UsageError(
            f"tables of shapes {moe.shape} and {attention.shape} do not describe sub-batches of one order",
            allowed="[B + 1, B + 1] or [L, B + 1, B + 1], B at least 1",
        )
    return moe, np.broadcast_to(attention, moe.shape)
