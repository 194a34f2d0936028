"""What a load and a trace look like: skew, unions, persistence, co-activation.

Every figure is given per layer, averaged over steps, and as the mean over layers. A step's figure
is worked out for that step and then averaged, as in table II of ReXpert (mean per layer and step).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError
from .checks import DROPPED
from .load import Load, count_pairs
from .trace import RoutingTrace


@dataclass(frozen=True)
class Figure:
    """A statistic: its mean over layers, and its value in every layer."""

    mean: float
    per_layer: tuple[float, ...]


@dataclass(frozen=True)
class LoadStatistics:
    """Statistics of decode steps.

    - `gini`: Gini coefficient of the experts' token counts (0: all equal).
    - `hottest_over_mean`: tokens of the hottest expert over the mean, B * K / E; `peak_over_mean` is
      the largest such ratio of any step.
    - `top8_share`: share of the tokens' choices that go to the step's eight hottest experts.
    - `union`: for b tokens of a step, the expected number of distinct experts, U(b), by b.
    - `persistence`: share of a step's activated experts that the next step activates again (None
      for a single step).
    - `hot_persistence`: share of steps whose hottest expert is the one that is hottest most often
      (ReXpert, table II, "hot-set persistence").
    """

    steps: int
    batch: int
    requests: int
    gini: Figure
    hottest_over_mean: Figure
    peak_over_mean: float
    top8_share: Figure
    union: dict[int, Figure]
    persistence: Figure | None
    hot_persistence: Figure

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"union": {str(b): asdict(figure) for b, figure in self.union.items()}}


@dataclass(frozen=True)
class Lift:
    """A pair of experts and how much more often than independently one token chooses both."""

    layer: int
    experts: tuple[int, int]
    lift: float
    tokens: int


@dataclass(frozen=True)
class TraceStatistics:
    """Statistics of tokens, whatever the batch.

    - `overlap`: share of a token's experts that the request's next token chooses again (None where
      no two rows follow each other); `overlap_by_chance` is the same for two independent tokens.
    - `pair_distance`: total variation distance between the pairs of experts that tokens choose and
      pairs drawn independently with the same popularity (0: no co-activation, 1: disjoint).
    - `top_lifts`: in every layer the pair with the largest lift.
    """

    tokens: int
    requests: int
    overlap: Figure | None
    overlap_by_chance: Figure
    pair_distance: Figure
    top_lifts: tuple[Lift, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def load_statistics(load: Load, unions: tuple[int, ...] = (1, 8, 64)) -> LoadStatistics:
    """Statistics of a load; `unions` are the b of U(b), to which the batch is added.

    Those larger than the batch are left out. Raises UsageError on a b below 1.
    """
    if min(unions, default=1) < 1:
        raise UsageError(f"a union needs at least one token, not {min(unions)}")
    counts = load.counts()
    ordered = np.sort(counts, axis=-1)
    mean = load.batch * load.top_k / load.num_experts
    hottest = ordered[..., -1] / mean
    sizes = sorted({*(b for b in unions if b <= load.batch), load.batch})
    return LoadStatistics(
        steps=load.steps,
        batch=load.batch,
        requests=load.requests,
        gini=_figure(gini(ordered).mean(axis=0)),
        hottest_over_mean=_figure(hottest.mean(axis=0)),
        peak_over_mean=float(hottest.max()),
        top8_share=_figure(ordered[..., -8:].sum(axis=-1).mean(axis=0) / (load.batch * load.top_k)),
        union={b: _figure(union(counts, load.batch, b).mean(axis=0)) for b in sizes},
        persistence=_persistence(counts > 0),
        hot_persistence=_figure(hottest_share(counts)),
    )


def trace_statistics(trace: RoutingTrace) -> TraceStatistics:
    """Statistics of a trace."""
    shared, followed = _shared(trace)
    return token_statistics(
        count_pairs(trace.experts, trace.num_experts),
        layers=trace.layers,
        top_k=trace.top_k,
        tokens=trace.tokens,
        requests=int(np.unique(trace.request).size),
        shared=shared,
        followed=followed,
    )


def token_statistics(
    pairs: NDArray[np.int64],
    *,
    layers: tuple[int, ...],
    top_k: int,
    tokens: int,
    requests: int,
    shared: NDArray[np.int64],
    followed: int,
) -> TraceStatistics:
    """Statistics from counts of a trace, however they were made.

    `pairs` [L, E, E] as of `count_pairs`; `shared` [L] experts that tokens share with the next token of
    their request, over `followed` such pairs of tokens.
    """
    chosen = np.diagonal(pairs, axis1=1, axis2=2) / tokens
    distances, lifts = [], []
    for index, layer in enumerate(layers):
        distance, lift = _coactivation(pairs[index], tokens, layer)
        distances.append(distance)
        lifts += lift
    return TraceStatistics(
        tokens=tokens,
        requests=requests,
        overlap=_figure(shared / (followed * top_k)) if followed else None,
        overlap_by_chance=_figure((chosen**2).sum(axis=-1) / top_k),
        pair_distance=_figure(np.array(distances)),
        top_lifts=tuple(lifts),
    )


def gini(ordered: NDArray[Any]) -> NDArray[np.float64]:
    """Gini coefficient over the last axis of counts in ascending order [..., E].

    Half the mean absolute difference of two experts' counts, relative to the mean count.
    """
    experts = ordered.shape[-1]
    ranks = 2 * np.arange(1, experts + 1) - experts - 1
    result: NDArray[np.float64] = (ordered * ranks).sum(axis=-1) / (experts * ordered.sum(axis=-1))
    return result


def union(counts: NDArray[Any], batch: int, tokens: int) -> NDArray[np.float64]:
    """U(b): expected distinct experts of `tokens` of the `batch` tokens of a step, [...] of [..., E].

    Exact over all subsets: an expert that c of the B tokens chose is missing from a random subset of
    b with probability C(B - c, b) / C(B, b). With b = B it is the number of activated experts.
    """
    missing = np.ones(batch + 1)
    missing[1:] = np.cumprod(1.0 - tokens / np.arange(batch, 0, -1).clip(min=tokens))
    result: NDArray[np.float64] = (1.0 - missing[counts]).sum(axis=-1)
    return result


def _figure(values: NDArray[Any]) -> Figure:
    return Figure(float(np.mean(values)), tuple(float(value) for value in values))


def _persistence(active: NDArray[np.bool_]) -> Figure | None:
    """Per layer, over steps: experts active now and at the next step, over those active now."""
    if active.shape[0] < 2:
        return None
    again = (active[1:] & active[:-1]).sum(axis=-1) / active[:-1].sum(axis=-1)
    return _figure(again.mean(axis=0))


def hottest_share(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Share of the steps of counts [S, L, E] whose hottest expert is the modal hottest of its layer, [L]."""
    hottest = counts.argmax(axis=-1)
    times = [np.bincount(hottest[:, layer]).max() for layer in range(hottest.shape[1])]
    result: NDArray[np.float64] = np.array(times) / counts.shape[0]
    return result


def _shared(trace: RoutingTrace) -> tuple[NDArray[np.int64], int]:
    """Experts [L] that tokens share with the next position of their request, and such pairs of tokens."""
    rows = np.lexsort((trace.position, trace.request))
    request, position = trace.request[rows], trace.position[rows]
    follows = (request[1:] == request[:-1]) & (position[1:] == position[:-1] + 1)
    now, later = trace.experts[rows[:-1][follows]], trace.experts[rows[1:][follows]]
    shared = np.zeros(len(trace.layers), dtype=np.int64)
    for place in range(trace.top_k):
        same = (now == np.roll(later, place, axis=-1)) & (now != DROPPED)
        shared += same.sum(axis=(0, 2))
    return shared, int(follows.sum())


def _coactivation(pairs: NDArray[np.int64], tokens: int, layer: int) -> tuple[float, list[Lift]]:
    """Pair distance of a layer from its pair counts [E, E], and the pair with the largest lift.

    Independent pairs are taken proportional to the product of the two popularities. Pairs that
    independence expects fewer than 20 times have no reliable lift and are passed over.
    """
    joint = np.triu(pairs, 1).astype(np.float64)
    if joint.sum() == 0:  # top-1: there are no pairs
        return 0.0, []
    popularity = np.diagonal(pairs) / tokens
    independent = np.triu(np.outer(popularity, popularity), 1)
    expected = independent * (joint.sum() / independent.sum())
    distance = 0.5 * float(np.abs(joint - expected).sum() / joint.sum())
    lift = np.divide(joint, expected, out=np.zeros_like(joint), where=expected >= 20)
    first, second = (int(i) for i in np.unravel_index(int(lift.argmax()), lift.shape))
    if lift[first, second] == 0.0:
        return distance, []
    return distance, [Lift(layer, (first, second), float(lift[first, second]), int(joint[first, second]))]
