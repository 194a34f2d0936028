"""One layer of synthetic routing, drawn block after block with the same result as in one piece."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError
from .model import MoEModel

if TYPE_CHECKING:
    from .synthetic import SyntheticRouting

_CHUNK_ELEMENTS: Final = 1 << 22  # tokens x experts that are sampled at a time
_COLDEST: Final = 0.9  # share of a layer's experts that are cold at most
_LANES: Final = 16  # experts are padded to a multiple of this for the kernel


@dataclass(frozen=True)
class Clock:
    """Which step and request every row of a recording belongs to.

    `tokens` rows; `concurrency` requests run side by side, each for `length` steps, then the next wave.
    Raises UsageError on fewer than one token.
    """

    tokens: int
    concurrency: int
    length: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UsageError(f"a trace needs at least one token, not {self.tokens}")

    @property
    def steps(self) -> int:
        """Decode steps that are begun."""
        return -(-self.tokens // self.concurrency)

    @property
    def requests(self) -> int:
        """Requests that are begun."""
        last_wave = (self.steps - 1) // self.length
        rows = self.tokens - last_wave * self.length * self.concurrency
        return last_wave * self.concurrency + min(rows, self.concurrency)

    def times(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Step and request of these rows, both [T]."""
        row = np.arange(rows.start, rows.stop)
        step = row // self.concurrency
        return step, step // self.length * self.concurrency + row % self.concurrency

    def blocks(self, experts: int) -> Iterator[slice]:
        """The rows, cut into blocks that a layer of `experts` experts draws at a time."""
        size = max(1, _CHUNK_ELEMENTS // experts)
        for first in range(0, self.tokens, size):
            yield slice(first, min(first + size, self.tokens))


class LayerStream:
    """Choices of one layer, to be drawn in the order of `Clock.blocks`.

    The random numbers of the layer are one sequence: popularity, drift of all steps, preferences of all
    requests, groups, choices. To draw block after block, three generators read it at different places.
    """

    def __init__(
        self, model: MoEModel, routing: SyntheticRouting, clock: Clock, *, seed: int, index: int
    ) -> None:
        rng = np.random.default_rng([seed, index])
        self._routing, self._clock, self._top_k = routing, clock, model.top_k
        self._popularity = _popularity(rng, model, routing, seed, index)
        self._drift_rng = copy.deepcopy(rng)
        _skip_normals(rng, clock.steps * model.experts)
        self._taste_rng = copy.deepcopy(rng)
        _skip_normals(rng, clock.requests * model.experts)
        self._member, self._group_share = _groups(rng, self._popularity, routing)
        self._rng = rng
        self._key = int(rng.integers(1 << 63)) if routing.sampler == "draws" else 0
        self._walk = np.empty((0, model.experts), dtype=np.float32)  # [S, E]: of steps that are still needed
        self._first_step = 0
        self._taste = np.empty((0, model.experts), dtype=np.float32)  # [R, E]
        self._first_request = 0

    def draw(self, rows: slice) -> NDArray[np.int16]:
        """Choices [T, K] of the next block."""
        step, request = self._clock.times(rows)
        first, last = int(request.min()), int(request.max())
        self._advance_drift(int(step[0]), int(step[-1]))
        self._advance_taste(first, last)
        # Of a wide wave a block sees a few requests only.
        taste = self._taste[first - self._first_request : last + 1 - self._first_request]
        with np.errstate(over="ignore"):
            by_step = np.exp(
                self._popularity + np.float32(self._routing.drift) * self._walk, dtype=np.float32
            )
            by_request = np.exp(self._routing.persistence * taste)
        step, request = step - self._first_step, request - first
        if self._routing.sampler == "draws":
            return self._drawn(by_step, step, by_request, request, rows.start)
        return self._raced(by_step, step, by_request, request)

    def _advance_drift(self, first: int, last: int) -> None:
        """Let `_walk` hold a stationary autoregressive walk of unit size over the steps first..last."""
        kept = self._walk[first - self._first_step :]
        fresh = self._drift_rng.standard_normal(
            (last + 1 - first - len(kept), self._walk.shape[1]), dtype=np.float32
        )
        memory = np.float32(self._routing.drift_memory)
        news = np.sqrt(1 - memory**2)
        before = self._walk[-1] if len(self._walk) else None
        for now in range(len(fresh)):
            if before is not None:
                fresh[now] = memory * before + news * fresh[now]
            before = fresh[now]
        self._walk, self._first_step = np.concatenate([kept, fresh]), first

    def _advance_taste(self, first: int, last: int) -> None:
        """Let `_taste` hold the requests first..last and those of an unfinished wave before them."""
        wave = first // self._clock.concurrency * self._clock.concurrency
        kept = self._taste[wave - self._first_request :]
        count = last + 1 - wave - len(kept)
        if count > 0:
            fresh = self._taste_rng.standard_normal((count, self._taste.shape[1]), dtype=np.float32)
            kept = np.concatenate([kept, fresh])
        self._taste, self._first_request = kept, wave

    def _raced(
        self,
        by_step: NDArray[np.float32],
        step: NDArray[np.int64],
        by_request: NDArray[np.float32],
        request: NDArray[np.int64],
    ) -> NDArray[np.int16]:
        share = self._group_share
        group = self._rng.choice(share.size, size=step.size, p=share)
        odds = by_step[step]
        odds *= by_request[request]
        boost = np.float32(np.exp(self._routing.coactivation))
        odds *= np.where(self._member == group[:, None], boost, np.float32(1))
        keys = np.divide(self._rng.standard_exponential(odds.shape, dtype=np.float32), odds, dtype=np.float32)
        return _smallest(keys, self._top_k).astype(np.int16)

    def _drawn(
        self,
        by_step: NDArray[np.float32],
        step: NDArray[np.int64],
        by_request: NDArray[np.float32],
        request: NDArray[np.int64],
        first: int,
    ) -> NDArray[np.int16]:
        from .draws import draw_without_replacement

        active = self._routing.coactivation > 0
        choices = np.empty((step.size, self._top_k), dtype=np.int16)
        draw_without_replacement(
            _padded(by_step),
            step,
            _padded(by_request),
            request,
            _members(self._member),
            np.cumsum(self._group_share) if active else np.empty(0),
            float(np.exp(self._routing.coactivation)),
            self._key,
            first,
            choices,
        )
        return choices


def _popularity(
    rng: np.random.Generator, model: MoEModel, routing: SyntheticRouting, seed: int, index: int
) -> NDArray[np.float64]:
    """Log popularity [E] of one layer."""
    experts, layers = model.experts, len(model.moe_layers)
    if routing.even:
        skew_level = _level(seed, index, layers, even=True, which=0)
        normal = rng.permutation(_quantiles(experts))
    else:
        skew_level = rng.standard_normal()
        normal = rng.standard_normal(experts)
    skew = routing.skew * np.exp(routing.skew_spread * skew_level)
    tail = routing.cold_tail
    if routing.cold_spread > 0:
        tail *= np.exp(routing.cold_spread * _level(seed, index, layers, even=routing.even, which=1))
    if routing.ceiling > 0:
        normal = np.minimum(normal, routing.ceiling)
    popularity: NDArray[np.float64] = skew * np.where(normal > 0, routing.head * normal, normal)
    cold = rng.permutation(experts)[
        : round((tail if routing.cold_spread == 0 else min(tail, _COLDEST)) * experts)
    ]
    popularity[cold] -= routing.cold_depth
    return popularity


def _level(seed: int, index: int, layers: int, *, even: bool, which: int) -> float:
    """By how many standard deviations a layer's skew (0) or cold share (1) is off.

    These have random numbers of their own, so that a layer's other numbers do not depend on them.
    """
    if even:
        order = np.random.default_rng([seed, layers, which]).permutation(layers)
        return float(_quantiles(layers)[order[index]])
    return float(np.random.default_rng([seed, index, which]).standard_normal())


def _quantiles(count: int) -> NDArray[np.float64]:
    """Evenly spaced quantiles of the normal distribution, in ascending order."""
    from scipy.special import ndtri

    result: NDArray[np.float64] = ndtri((np.arange(count) + 0.5) / count)
    return result


def _skip_normals(rng: np.random.Generator, count: int) -> None:
    """Draw and forget float32 normals: how many random bits one takes is random, so there is no jump."""
    for done in range(0, count, _CHUNK_ELEMENTS):
        rng.standard_normal(min(_CHUNK_ELEMENTS, count - done), dtype=np.float32)


def _groups(
    rng: np.random.Generator, popularity: NDArray[np.float64], routing: SyntheticRouting
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Random groups of experts: the group of every expert [E], and the groups' shares [G]."""
    member = rng.permutation(popularity.size) // routing.group_size
    share = np.bincount(member, weights=np.exp(popularity))
    return member, share / share.sum()


def _members(member: NDArray[np.int64]) -> NDArray[np.int64]:
    """Experts of every group [G, M], filled up with -1."""
    order = np.argsort(member, kind="stable")
    sizes = np.bincount(member)
    table = np.full((sizes.size, sizes.max()), -1)
    table[member[order], np.arange(member.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = order
    return table


def _padded(odds: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(odds, ((0, 0), (0, -odds.shape[1] % _LANES)))


def _smallest(keys: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Indices of the `count` smallest keys of every row, in ascending order of the keys."""
    found = np.argpartition(keys, count - 1, axis=-1)[:, :count]
    order = np.take_along_axis(keys, found, axis=-1).argsort(axis=-1)
    return np.take_along_axis(found, order, axis=-1)
