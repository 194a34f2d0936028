"""Synthetic routing: seeded choices whose skew, drift, persistence and co-activation are dialled in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError
from .model import MoEModel
from .trace import RoutingTrace

_CHUNK_ELEMENTS: Final = 1 << 22  # tokens x experts that are sampled at a time


@dataclass(frozen=True)
class SyntheticRouting:
    """How synthetic tokens choose; all strengths are in log space, 0 switches a part off.

    - `tokens_per_request`, `concurrency`: requests are of this length, and so many run side by side;
      together they make the decode steps of the recording.
    - `skew`: standard deviation of an expert's log popularity; `skew_spread`: how far the layers' own
      skews scatter about it (log-normal).
    - `cold_tail`: share of experts in every layer whose log popularity is lower by `cold_depth`.
    - `drift`: standard deviation of an autoregressive walk of every expert's log popularity over the
      steps; `drift_memory`: its correlation from one step to the next.
    - `persistence`: standard deviation of a request's own log preference for every expert, constant
      along the request; it makes consecutive tokens overlap.
    - `coactivation`: by how much a token prefers the experts of one group of `group_size`; which
      group, it draws by the groups' popularity.

    Raises UsageError on a value out of range.
    """

    tokens_per_request: int = 256
    concurrency: int = 64
    skew: float = 0.9
    skew_spread: float = 0.2
    cold_tail: float = 0.1
    cold_depth: float = 2.0
    drift: float = 0.3
    drift_memory: float = 0.98
    persistence: float = 1.5
    coactivation: float = 3.0
    group_size: int = 8

    def __post_init__(self) -> None:
        for name in ("tokens_per_request", "concurrency", "group_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("skew", "skew_spread", "cold_depth", "drift", "persistence", "coactivation"):
            if not 0 <= getattr(self, name) <= 20:
                raise UsageError(f"{name} must lie between 0 and 20, not {getattr(self, name)}")
        for name in ("cold_tail", "drift_memory"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 0 and less than 1, not {getattr(self, name)}")


def synthesize(
    model: MoEModel, *, tokens: int, seed: int, routing: SyntheticRouting | None = None
) -> RoutingTrace:
    """Draw a trace of `tokens` tokens through all MoE layers of `model`.

    Every token draws its top-k without replacement, with probabilities proportional to exp(logit):
    adding Gumbel noise to the logits and taking the k largest does just that, and so does taking the
    k smallest of exponential variates divided by exp(logit), which is what is computed. Choices are
    in the order of the perturbed logits, as a router gives them; there are no router weights. Layers
    are drawn independently of each other.

    Rows are in the order of recording: all requests that run side by side, step after step. Raises
    UsageError on fewer than one token.
    """
    if tokens < 1:
        raise UsageError(f"a trace needs at least one token, not {tokens}")
    routing = routing or SyntheticRouting()
    row = np.arange(tokens, dtype=np.int32)
    step = row // routing.concurrency
    wave = step // routing.tokens_per_request
    request = wave * routing.concurrency + row % routing.concurrency
    experts = np.empty((tokens, len(model.moe_layers), model.top_k), dtype=np.int16)
    for index in range(len(model.moe_layers)):
        rng = np.random.default_rng([seed, index])
        experts[:, index] = _draw_layer(rng, model, routing, step, request)
    knobs = ", ".join(f"{name} {value:g}" for name, value in asdict(routing).items())
    return RoutingTrace(
        experts=experts,
        request=request,
        position=step % routing.tokens_per_request,
        step=step,
        model=model.name,
        layers=model.moe_layers,
        num_experts=model.experts,
        top_k=model.top_k,
        source=f"synthetic (seed {seed}, {knobs})",
    )


def _draw_layer(
    rng: np.random.Generator,
    model: MoEModel,
    routing: SyntheticRouting,
    step: NDArray[np.int32],
    request: NDArray[np.int32],
) -> NDArray[np.int16]:
    """Choices [T, K] of one layer."""
    popularity = _popularity(rng, model.experts, routing)
    drift = _drift(rng, int(step[-1]) + 1, model.experts, routing)
    by_step = np.exp(popularity + drift, dtype=np.float32)
    taste = rng.standard_normal((int(request.max()) + 1, model.experts), dtype=np.float32)
    by_request = np.exp(routing.persistence * taste)
    by_group, group_share = _groups(rng, popularity, routing)
    choices = np.empty((step.size, model.top_k), dtype=np.int16)
    chunk = max(1, _CHUNK_ELEMENTS // model.experts)
    for first in range(0, step.size, chunk):
        rows = slice(first, first + chunk)
        group = rng.choice(group_share.size, size=step[rows].size, p=group_share)
        odds = by_step[step[rows]]
        odds *= by_request[request[rows]]
        odds *= by_group[group]
        keys = np.divide(rng.standard_exponential(odds.shape, dtype=np.float32), odds, dtype=np.float32)
        choices[rows] = _smallest(keys, model.top_k)
    return choices


def _popularity(rng: np.random.Generator, experts: int, routing: SyntheticRouting) -> NDArray[np.float64]:
    """Log popularity [E] of one layer."""
    skew = routing.skew * np.exp(routing.skew_spread * rng.standard_normal())
    popularity: NDArray[np.float64] = skew * rng.standard_normal(experts)
    cold = rng.permutation(experts)[: round(routing.cold_tail * experts)]
    popularity[cold] -= routing.cold_depth
    return popularity


def _drift(
    rng: np.random.Generator, steps: int, experts: int, routing: SyntheticRouting
) -> NDArray[np.float32]:
    """Stationary autoregressive walk [S, E] with standard deviation `drift`."""
    walk = rng.standard_normal((steps, experts), dtype=np.float32)
    memory = np.float32(routing.drift_memory)
    fresh = np.sqrt(1 - memory**2)
    for now in range(1, steps):
        walk[now] = memory * walk[now - 1] + fresh * walk[now]
    walk *= np.float32(routing.drift)
    return walk


def _groups(
    rng: np.random.Generator, popularity: NDArray[np.float64], routing: SyntheticRouting
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Random groups of experts: odds factors [G, E] of a token of group g, and the groups' shares [G]."""
    member = rng.permutation(popularity.size) // routing.group_size
    share = np.bincount(member, weights=np.exp(popularity))
    inside = member == np.arange(share.size)[:, None]
    factors = np.where(inside, np.float32(np.exp(routing.coactivation)), np.float32(1))
    return factors, share / share.sum()


def _smallest(keys: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Indices of the `count` smallest keys of every row, in ascending order of the keys."""
    found = np.argpartition(keys, count - 1, axis=-1)[:, :count]
    order = np.take_along_axis(keys, found, axis=-1).argsort(axis=-1)
    return np.take_along_axis(found, order, axis=-1)
