"""Adaptive expert routing (SPIMOE 3.2.1, algorithm 1): which of a token's top-k experts are worth running.

Experts whose router weight is far below the token's largest are dropped (equation 1), more or fewer by
reasoning phase and depth of the layer; in the think phase cognitive experts are favoured (equation 2);
then experts on congested channels go. Every mechanism can be switched off on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput, UsageError
from .checks import DROPPED
from .trace import PHASES, RoutingTrace

TIERS: Final = ("shallow", "middle", "deep")
Tiers = tuple[float, float, float]
_THINK: Final = PHASES.index("think")
_ROWS: Final = 1 << 15  # tokens that are worked on at a time


@dataclass(frozen=True)
class PruningSettings:
    """What algorithm 1 may do; the defaults do nothing.

    - `uniform`: one alpha for all layers and phases (SPIMOE's static strategy), instead of the next two.
    - `think`, `answer`: alpha of that phase in shallow, middle and deep layers (equation 1): an expert stays
      where its weight is at least alpha times the token's largest. None: nothing is dropped by weight in
      that phase. Prefill tokens are left alone.
    - `k_min`: experts that a token keeps at least, in shallow, middle and deep layers.
    - `boost`: beta, by which cognitive experts' weights grow in the think phase (equation 2); 1: not at all.
    - `cognitive`: cognitive experts of a layer, N_cog; 0: none.
    - `congestion`: drop experts that are not cognitive from channels that are fuller than most.

    Raises UsageError on a value out of range, or `uniform` beside a phase's alpha.
    """

    uniform: float | None = None
    think: Tiers | None = None
    answer: Tiers | None = None
    k_min: tuple[int, int, int] = (1, 1, 1)
    boost: float = 1.0
    cognitive: int = 0
    congestion: bool = False

    def __post_init__(self) -> None:
        if self.uniform is not None and (self.think or self.answer):
            raise UsageError(
                "a uniform alpha goes for all phases, and alphas of phases were given too",
                fix="give one kind",
            )
        alphas = {"think": self.think, "answer": self.answer}
        if self.uniform is not None:
            alphas = {"uniform": (self.uniform,) * 3}
        for name, tiers in alphas.items():
            if tiers is not None and len(tiers) != len(TIERS):
                raise UsageError(f"alpha of {name} needs {len(TIERS)} values ({', '.join(TIERS)})")
            for alpha in tiers or ():
                if not 0.0 < alpha <= 1.0:
                    raise UsageError(
                        f"alpha of {name} is {alpha!r}",
                        allowed="above 0, at most 1 (1 keeps the largest weight alone)",
                        fix="leave it out to drop nothing by weight",
                    )
        if len(self.k_min) != len(TIERS) or min(self.k_min) < 1:
            raise UsageError(f"k_min is {self.k_min}", allowed=f"{len(TIERS)} whole numbers of at least 1")
        if not 1.0 <= self.boost < float("inf"):
            raise UsageError(f"boost is {self.boost!r}", allowed="at least 1; 1 favours nobody")
        if self.cognitive < 0:
            raise UsageError(f"{self.cognitive} cognitive experts are not possible", allowed="0 or more")
        if self.boost > 1.0 and not self.cognitive:
            raise UsageError("a boost needs cognitive experts", fix="say how many a layer has")

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases that the settings speak of, so that they must occur in a trace."""
        think = self.think is not None or self.boost > 1.0
        return ("think",) * think + ("answer",) * (self.answer is not None)


@dataclass(frozen=True, eq=False)
class Pruned:
    """What is left of a trace.

    - `trace`: the same tokens, -1 in the place of dropped experts, the weights of the others scaled so that
      they sum to what the token's weights summed to before.
    - `kept` bool [T, L, K]; `kept_mass` [L]: share of a token's router weight (before boost and scaling) that
      its remaining experts carry; `experts_per_token` [L]: both means over tokens.
    - `by_weight`, `by_congestion`: choices that each mechanism dropped.
    """

    trace: RoutingTrace
    kept: NDArray[np.bool_]
    kept_mass: NDArray[np.float64]
    experts_per_token: NDArray[np.float64]
    by_weight: int
    by_congestion: int


def prune(
    trace: RoutingTrace,
    settings: PruningSettings,
    *,
    cognitive: NDArray[np.bool_] | None = None,
    lives: NDArray[np.bool_] | None = None,
    together: NDArray[Any] | None = None,
    model_layers: int | None = None,
) -> Pruned:
    """Apply algorithm 1 to every token and layer of a trace with router weights.

    - `cognitive` bool [L, E]: from `workload.cognitive`; needed where the settings count them.
    - `lives` bool [L, E, N]: whether expert e of layer l has a shard on channel n; needed for congestion.
    - `together` [T]: tokens of equal value are decoded in one step; without it the trace's own `step`.
    - `model_layers`: layers of the model, of which the first, second and last third are the depth tiers;
      without it, the last layer of the trace is taken for the model's last.

    The load of a channel is the number of its experts that any token of the step still has (SPIMOE: eta).
    A channel is congested above mean + one standard deviation over channels; a token loses its experts that
    have a shard there and are not cognitive, smallest weight first, while it keeps more than k_min. The
    algorithm names no order; the smallest weight costs the least mass. It spares no expert for being the
    token's largest.

    Raises BadInput where the trace has no weights, no phases or not those that the settings speak of;
    UsageError where k_min exceeds top-k or an array that the settings need is missing or of another shape.
    """
    weights = _needed_weights(trace)
    tier = depth_tier(trace.layers, model_layers)
    k_min = np.array(settings.k_min)[tier]
    _check_settings(trace, settings, tier, cognitive, lives)
    favoured = np.zeros((len(trace.layers), trace.num_experts), dtype=np.bool_)
    if cognitive is not None and settings.cognitive:
        favoured |= cognitive
    alpha = _alphas(settings, tier)
    kept = np.empty(trace.experts.shape, dtype=np.bool_)
    for first in range(0, trace.tokens, _ROWS):
        rows = slice(first, first + _ROWS)
        phase = np.zeros(len(kept[rows]), dtype=np.int8) if trace.phase is None else trace.phase[rows]
        kept[rows] = _by_weight(
            trace.experts[rows], weights[rows], phase, alpha, k_min, favoured, settings.boost
        )
    present = int((trace.experts != DROPPED).sum())
    by_weight = present - int(kept.sum())
    if settings.congestion:
        assert lives is not None
        step = _steps(trace, together)
        for index in range(len(trace.layers)):
            _relieve(
                kept[:, index], trace.experts[:, index], weights[:, index], step,
                lives[index], favoured[index], int(k_min[index]),
            )  # fmt: skip
    return _result(trace, weights, kept, by_weight, present - by_weight - int(kept.sum()))


def depth_tier(layers: tuple[int, ...], model_layers: int | None = None) -> NDArray[np.int64]:
    """Index into `TIERS` of every layer [L]: thirds of the model's layers, by absolute id."""
    total = max(max(layers) + 1, model_layers or 0)
    return np.array(layers) * len(TIERS) // total


def with_phase(trace: RoutingTrace, think: float) -> RoutingTrace:
    """The trace with phases assumed: the first `think` share of every request's tokens, then the answer.

    For recordings that do not say where thinking ended. Raises UsageError on a share outside [0, 1],
    BadInput where the trace has phases of its own.
    """
    if not 0.0 <= think <= 1.0:
        raise UsageError(f"the share of think tokens is {think!r}", allowed="0 to 1")
    if trace.phase is not None:
        raise BadInput("the trace has phases of its own", fix="leave out the assumed ones")
    order = np.lexsort((trace.position, trace.request))
    _, start, length = np.unique(trace.request[order], return_index=True, return_counts=True)
    place = np.empty(trace.tokens, dtype=np.int64)
    place[order] = np.arange(trace.tokens) - np.repeat(start, length)
    tokens = np.empty(trace.tokens, dtype=np.int64)
    tokens[order] = np.repeat(length, length)
    phase = np.where(place < np.rint(think * tokens), _THINK, PHASES.index("answer")).astype(np.int8)
    return replace(trace, phase=phase, source=f"{trace.source}; think phase assumed for {think:g}")


def with_rank_weights(trace: RoutingTrace, ratio: float) -> RoutingTrace:
    """The trace with weights assumed: choice i of a token gets ratio**i, scaled to sum 1.

    A stand-in for recordings without weights whose choices are in the router's order, best first. What is
    kept and dropped then says nothing about the model. Raises UsageError on a ratio outside (0, 1],
    BadInput where the trace has weights of its own, or dropped experts.
    """
    if not 0.0 < ratio <= 1.0:
        raise UsageError(f"the ratio of assumed weights is {ratio!r}", allowed="above 0, at most 1")
    if trace.weights is not None:
        raise BadInput("the trace has router weights of its own", fix="leave out the assumed ones")
    if (trace.experts == DROPPED).any():
        raise BadInput("the trace is pruned: its choices have no whole ranking", fix="take the whole trace")
    falling = ratio ** np.arange(trace.top_k)
    weights = np.broadcast_to((falling / falling.sum()).astype(np.float32), trace.experts.shape)
    return replace(trace, weights=weights, source=f"{trace.source}; weights assumed, {ratio:g}**rank")


def _needed_weights(trace: RoutingTrace) -> NDArray[np.float32]:
    if trace.weights is None:
        raise BadInput(
            "the trace has no router weights, by which experts would be dropped",
            where=trace.source,
            fix="record them, or assume some by rank (with_rank_weights, --assume-weights)",
        )
    return trace.weights


def _check_settings(
    trace: RoutingTrace,
    settings: PruningSettings,
    tier: NDArray[np.int64],
    cognitive: NDArray[np.bool_] | None,
    lives: NDArray[np.bool_] | None,
) -> None:
    largest = max(settings.k_min[t] for t in set(tier.tolist()))
    if largest > trace.top_k:
        raise UsageError(
            f"k_min is {largest}, and a token has only {trace.top_k} experts", allowed=f"1 to {trace.top_k}"
        )
    if settings.phases and trace.phase is None:
        raise BadInput(
            f"the settings speak of the phase {settings.phases[0]!r}, and the trace does not tell phases",
            where=trace.source,
            fix="record them, take a uniform alpha, or assume them (with_phase, --think-share)",
        )
    for name in settings.phases:
        assert trace.phase is not None
        if not (trace.phase == PHASES.index(name)).any():
            seen = [PHASES[p] for p in np.unique(trace.phase)]
            raise BadInput(
                f"the settings speak of the phase {name!r}, which never occurs in the trace",
                allowed=", ".join(seen),
                fix=f"leave {name} out, or take a trace that has it",
            )
    shape = (len(trace.layers), trace.num_experts)
    if settings.cognitive:
        _check_array("cognitive experts", cognitive, shape)
    if settings.congestion:
        _check_array("where experts live", lives, shape)


def _check_array(what: str, values: NDArray[np.bool_] | None, shape: tuple[int, int]) -> None:
    if values is None:
        raise UsageError(f"the settings need to know: {what}", fix="hand it over, or switch that part off")
    if values.shape[:2] != shape or values.dtype != np.bool_:
        raise UsageError(
            f"{what}: an array {values.dtype} of shape {values.shape}",
            allowed=f"bool, with axes of {shape[0]} layers and {shape[1]} experts first",
        )


def _alphas(settings: PruningSettings, tier: NDArray[np.int64]) -> NDArray[np.float32]:
    """Alpha of every phase and layer [P, L]; 0 where nothing is dropped by weight."""
    alpha = np.zeros((len(PHASES), len(tier)), dtype=np.float32)
    if settings.uniform is not None:
        alpha[:] = settings.uniform
    for name in ("think", "answer"):
        tiers = settings.think if name == "think" else settings.answer
        if tiers is not None:
            alpha[PHASES.index(name)] = np.array(tiers)[tier]
    return alpha


def _by_weight(
    experts: NDArray[np.int16],
    weights: NDArray[np.float32],
    phase: NDArray[np.int8],
    alpha: NDArray[np.float32],
    k_min: NDArray[np.int64],
    favoured: NDArray[np.bool_],
    boost: float,
) -> NDArray[np.bool_]:
    """Lines 1 to 5 of algorithm 1: who passes the threshold, or fills up k_min [T, L, K]."""
    present = experts != DROPPED
    if boost > 1.0:
        layer = np.arange(experts.shape[1])[:, None]
        lifted = favoured[layer, experts] & (phase == _THINK)[:, None, None]
        weights = np.where(lifted, weights * np.float32(boost), weights)
    threshold = alpha[phase] * weights.max(axis=-1)
    kept: NDArray[np.bool_] = (weights >= threshold[..., None]) & present
    short = kept.sum(axis=-1) < k_min
    if short.any():
        token, layer = np.nonzero(short)
        order = np.argsort(-np.where(present[short], weights[short], -1.0), axis=-1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(order.shape[-1])[None], axis=-1)
        kept[token, layer] |= (rank < k_min[layer][:, None]) & present[short]
    return kept


def _steps(trace: RoutingTrace, together: NDArray[Any] | None) -> NDArray[np.int64]:
    """Index of the step that decodes each token [T], from 0 without gaps."""
    column = trace.step if together is None else together
    if column is None:
        raise UsageError(
            "congestion is of tokens that are decoded together, and the trace has no decode steps",
            fix="replay it first (pruned_load), or say which tokens run together",
        )
    if column.shape != (trace.tokens,):
        raise UsageError(f"one step per token is needed, shape ({trace.tokens},), not {column.shape}")
    index: NDArray[np.int64] = np.unique(column, return_inverse=True)[1]
    return index


def _relieve(
    kept: NDArray[np.bool_],
    experts: NDArray[np.int16],
    weights: NDArray[np.float32],
    step: NDArray[np.int64],
    lives: NDArray[np.bool_],
    favoured: NDArray[np.bool_],
    k_min: int,
) -> None:
    """Lines 6 to 11 of algorithm 1 in one layer: clear `kept` [T, K] where channels are congested."""
    steps, num_experts = int(step.max()) + 1, len(lives)
    active = np.zeros((steps, num_experts + 1), dtype=np.bool_)
    active[step[:, None], np.where(kept, experts, num_experts)] = True
    eta = active[:, :num_experts].astype(np.float64) @ lives.astype(np.float64)
    congested = eta > eta.mean(axis=1, keepdims=True) + eta.std(axis=1, keepdims=True)
    # An expert with several shards waits for its fullest channel.
    exposed = (congested.astype(np.float64) @ lives.T.astype(np.float64) > 0) & ~favoured
    candidate = kept & exposed[step[:, None], experts]
    rows = np.flatnonzero(candidate.any(axis=1))
    room = kept[rows].sum(axis=1) - k_min
    order = np.argsort(np.where(candidate[rows], weights[rows], np.inf), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    kept[rows] &= ~(candidate[rows] & (rank < room[:, None]))


def _result(
    trace: RoutingTrace,
    weights: NDArray[np.float32],
    kept: NDArray[np.bool_],
    by_weight: int,
    by_congestion: int,
) -> Pruned:
    before = weights.sum(axis=-1, dtype=np.float64)
    left = np.where(kept, weights, np.float32(0.0))
    after = left.sum(axis=-1, dtype=np.float64)
    share = np.divide(after, before, out=kept.mean(axis=-1), where=before > 0)
    scale = np.divide(before, after, out=np.ones_like(before), where=after > 0)
    changed = replace(
        trace,
        experts=np.where(kept, trace.experts, np.int16(DROPPED)),
        weights=(left * scale[..., None]).astype(np.float32),
        source=f"{trace.source}; pruned",
    )
    kept.flags.writeable = False
    return Pruned(
        trace=changed,
        kept=kept,
        kept_mass=share.mean(axis=0),
        experts_per_token=kept.sum(axis=-1).mean(axis=0),
        by_weight=by_weight,
        by_congestion=by_congestion,
    )
