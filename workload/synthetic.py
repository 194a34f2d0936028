"""Synthetic routing: seeded choices whose skew, drift, persistence and co-activation are dialled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError, did_you_mean
from .load import Load
from .model import MoEModel
from .synthetic_layer import Clock, LayerStream
from .trace import RoutingTrace

SAMPLERS: Final = ("race", "draws")


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
    - `head`: the likelier half of the experts has its log popularity scaled by this, so that above 1
      few experts are very hot, and below 1 many are about equally warm.
    - `ceiling`: no expert's log popularity is more than so many standard deviations above the middle of its
      layer, so that the hottest are about equally hot (0: no ceiling).
    - `cold_spread`: how far the layers' own shares of cold experts scatter about `cold_tail` (log-normal; a
      share stays below 0.9).
    - `even`: log popularities, and what scatters over the layers, are evenly spaced quantiles in random
      order instead of random numbers, so that two seeds differ in who is hot, but hardly in how hot.
    - `sampler`: "race" gives every expert a random arrival time and takes the first k; "draws" draws k
      times from what is left. The distribution is the same, the numbers are not; "draws" is several
      times faster, "race" is the default so that earlier traces can be made again.

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
    head: float = 1.0
    cold_spread: float = 0.0
    ceiling: float = 0.0
    even: bool = False
    sampler: Literal["race", "draws"] = "race"

    def __post_init__(self) -> None:
        for name in ("tokens_per_request", "concurrency", "group_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        strengths = ("skew", "skew_spread", "cold_depth", "drift", "persistence", "coactivation")
        for name in (*strengths, "head", "cold_spread", "ceiling"):
            if not 0 <= getattr(self, name) <= 20:
                raise UsageError(f"{name} must lie between 0 and 20, not {getattr(self, name)}")
        for name in ("cold_tail", "drift_memory"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 0 and less than 1, not {getattr(self, name)}")
        if self.sampler not in SAMPLERS:
            raise UsageError(
                f"there is no sampler {self.sampler!r}", fix=did_you_mean(str(self.sampler), SAMPLERS)
            )


def synthesize(
    model: MoEModel, *, tokens: int, seed: int, routing: SyntheticRouting | None = None
) -> RoutingTrace:
    """Draw a trace of `tokens` tokens through all MoE layers of `model`.

    Every token draws its top-k without replacement, with probabilities proportional to exp(logit):
    adding Gumbel noise to the logits and taking the k largest does just that, and so do taking the
    k smallest of exponential variates divided by exp(logit) and drawing k times from what is left,
    which is what the two samplers do. Choices are in the order of the perturbed logits, as a router
    gives them; there are no router weights. Layers are drawn independently of each other.

    Rows are in the order of recording: all requests that run side by side, step after step. Raises
    UsageError on fewer than one token.
    """
    routing = routing or SyntheticRouting()
    clock = Clock(tokens, routing.concurrency, routing.tokens_per_request)
    experts = np.empty((tokens, len(model.moe_layers), model.top_k), dtype=np.int16)
    for index in range(len(model.moe_layers)):
        layer = LayerStream(model, routing, clock, seed=seed, index=index)
        for rows in clock.blocks(model.experts):
            experts[rows, index] = layer.draw(rows)
    return _trace(model, routing, clock, slice(0, tokens), experts, seed)


def synthesize_blocks(
    model: MoEModel, *, tokens: int, seed: int, routing: SyntheticRouting | None = None
) -> Iterator[RoutingTrace]:
    """Yield the trace that `synthesize` draws as consecutive traces of a few ten thousand rows each.

    Memory stays at one block and, per layer, the preferences of the requests that run side by side. Raises
    UsageError on fewer than one token.
    """
    routing = routing or SyntheticRouting()
    clock = Clock(tokens, routing.concurrency, routing.tokens_per_request)
    count = len(model.moe_layers)
    streams = [LayerStream(model, routing, clock, seed=seed, index=index) for index in range(count)]
    for rows in clock.blocks(model.experts):
        experts = np.stack([stream.draw(rows) for stream in streams], axis=1)
        yield _trace(model, routing, clock, rows, experts, seed)


def synthesize_load(
    model: MoEModel, *, batch: int, steps: int, seed: int, routing: SyntheticRouting | None = None
) -> Load:
    """Draw `steps` decode steps of `batch` requests as they were recorded, side by side.

    `routing.concurrency` is replaced by `batch`. Unlike a replay of the trace, which starts its slots at
    staggered positions, this keeps what happens at one step together: drift stays drift. Raises UsageError
    on a batch or step count below 1.
    """
    for name, value in (("batch", batch), ("steps", steps)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    routing = replace(routing or SyntheticRouting(), concurrency=batch)
    trace = synthesize(model, tokens=batch * steps, seed=seed, routing=routing)
    return Load(
        experts=trace.experts.reshape(steps, batch, len(trace.layers), trace.top_k),
        layers=trace.layers,
        num_experts=trace.num_experts,
        model=trace.model,
        requests=int(trace.request[-1]) + 1,
        repeated=False,
        note=f"{batch} synthetic requests side by side, as drawn (seed {seed}).",
    )


def _trace(
    model: MoEModel,
    routing: SyntheticRouting,
    clock: Clock,
    rows: slice,
    experts: NDArray[np.int16],
    seed: int,
) -> RoutingTrace:
    step, request = clock.times(rows)
    return RoutingTrace(
        experts=experts,
        request=request.astype(np.int32),
        position=(step % routing.tokens_per_request).astype(np.int32),
        step=step.astype(np.int32),
        model=model.name,
        layers=model.moe_layers,
        num_experts=model.experts,
        top_k=model.top_k,
        source=f"synthetic (seed {seed}, {_knobs(routing)})",
    )


def _knobs(routing: SyntheticRouting) -> str:
    """The parameters in words; those of later versions only where they are not at their default."""
    later = ("head", "cold_spread", "ceiling", "even", "sampler")
    shown = [
        (field.name, getattr(routing, field.name))
        for field in fields(routing)
        if field.name not in later or getattr(routing, field.name) != field.default
    ]
    return ", ".join(f"{name} {value if isinstance(value, str) else f'{value:g}'}" for name, value in shown)
