"""Which experts the next token will choose, before its gate has run (SPIMOE 3.4.2, equation 5).

G = l_prev * M_prev + l_ema * A + l_freq * F, per layer: M_prev marks the experts of the request's last token,
A is the exponential moving average of such marks over the request, F the share of all profiled tokens that
choose the expert. The top-k of G are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..common.errors import BadInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..workload.load import Load
    from ..workload.trace import RoutingTrace
    from .moe_time import MoeTimer

#: Decays of the moving average that calibration tries: from the last two or three tokens to the last fifty.
DECAYS: Final = (0.5, 0.8, 0.9, 0.95, 0.98)
PREDICTED: Final = ("previous", "average", "frequency")


@dataclass(frozen=True, eq=False)
class Predictor:
    """Coefficients and prior of every layer.

    - `weights` [L, 3]: l_prev, l_ema and l_freq, not negative; `decay` [L]: of the moving average, which
      starts at F and becomes decay * A + (1 - decay) * M with every token.
    - `frequency` [L, E]: F, shares of tokens, so that a layer sums to K.
    - `autocorrelation` [L]: lag-1 autocorrelation of the activation marks in the profile, pooled over
      experts; what of it is popularity alone is not subtracted from the coefficients, which see F too.
    - `layers`: absolute ids; `top_k`: K experts that are predicted per token.
    """

    weights: NDArray[np.float64]
    decay: NDArray[np.float64]
    frequency: NDArray[np.float64]
    autocorrelation: NDArray[np.float64]
    layers: tuple[int, ...]
    top_k: int

    def __post_init__(self) -> None:
        for name in ("weights", "decay", "frequency", "autocorrelation"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def predict(self, load: Load, fresh: NDArray[np.bool_] | None = None) -> NDArray[np.int16]:
        """Experts expected of every slot at every step, int16 [S, B, L, K], best first.

        A prediction for step s uses the true choices of steps before s. `fresh` [S, B] marks tokens that do
        not follow the slot's token before (`workload.rows.Replayed`); without it, only the first step's do. A
        fresh token has no past: its past is taken to be F, so that the K most frequent experts are
        predicted. Raises BadInput where the load is not of the predictor's layers and experts.
        """
        from .predictor_kernel import predict_steps

        self._check(load)
        fresh = first_step(load) if fresh is None else fresh
        return predict_steps(load.experts, fresh, self.weights, self.decay, self.frequency, self.top_k)

    def _check(self, load: Load) -> None:
        if load.layers != self.layers or load.num_experts != self.frequency.shape[1]:
            raise BadInput(
                "the predictor was calibrated on other layers or experts than the load has",
                allowed=f"layers {self.layers[0]} to {self.layers[-1]}, {self.frequency.shape[1]} experts",
                fix="calibrate it on a trace of the same model and layers",
            )


@dataclass(frozen=True, eq=False)
class HitRates:
    """How often a prediction came true, per layer [L]; tokens without a past (`fresh`) are left out.

    - `token`: share of a token's experts that were predicted for it, over all tokens.
    - `active`: share of the experts active in a step that were predicted for any of its tokens, over steps;
      `choices`: the same with every expert weighted by its tokens.
    - `chance`: `token` of a predictor that always says the most frequent K experts.
    """

    token: NDArray[np.float64]
    active: NDArray[np.float64]
    choices: NDArray[np.float64]
    chance: NDArray[np.float64]

    def means(self) -> dict[str, float]:
        """Each rate's mean over layers."""
        return {name: float(getattr(self, name).mean()) for name in ("token", "active", "choices", "chance")}


def calibrate_predictor(trace: RoutingTrace, decays: Sequence[float] = DECAYS) -> Predictor:
    """Fit coefficients per layer to a profile by least squares.

    The marks M of a token are regressed on what equation 5 knows before it, pooled over experts and over all
    tokens that follow another of their request. The normal equations hold nothing but products of marks a
    lag apart: E[M_t M_(t-1)] is the lag-1 autocorrelation, E[M_t A] the sum of lags 1, 2, ... weighted by
    (1 - decay) decay^(lag - 1), E[M_t F] the popularity. They are solved for coefficients that are not
    negative, exactly, by trying which are zero; of the `decays` the one with the least residual is taken in
    each layer. Raises BadInput where no token follows another, UsageError on a decay outside [0, 1).
    """
    from .predictor_kernel import moments

    if not decays or not all(0.0 <= decay < 1.0 for decay in decays):
        raise UsageError(f"decays {list(decays)} are not possible", allowed="at least one, from 0 to below 1")
    order = np.lexsort((trace.position, trace.request))
    request, position = trace.request[order], trace.position[order]
    follows = np.zeros(trace.tokens, dtype=np.bool_)
    follows[1:] = (request[1:] == request[:-1]) & (position[1:] == position[:-1] + 1)
    if not follows.any():
        raise BadInput(
            "no token of the trace follows another of its request",
            where=trace.source,
            fix="record whole requests: a prediction starts from the token before",
        )
    experts = trace.experts[order]
    frequency = np.zeros((len(trace.layers), trace.num_experts))
    found = [moments(experts, follows, float(decay), frequency) for decay in decays]
    weights = np.zeros((len(trace.layers), len(PREDICTED)))
    chosen = np.zeros(len(trace.layers))
    for layer in range(len(trace.layers)):
        fits = [_not_negative(gram[layer], target[layer]) for gram, target, _ in found]
        best = min(range(len(decays)), key=lambda i: fits[i][1])
        weights[layer], chosen[layer] = fits[best][0], decays[best]
    return Predictor(
        weights=weights,
        decay=chosen,
        frequency=frequency,
        autocorrelation=found[0][2],
        layers=trace.layers,
        top_k=trace.top_k,
    )


def hit_rates(
    predictor: Predictor, load: Load, predicted: NDArray[np.int16], fresh: NDArray[np.bool_] | None = None
) -> HitRates:
    """Compare a prediction [S, B, L, K] with what the load did.

    Raises BadInput where nothing was foretold.
    """
    from .predictor_kernel import hits

    fresh = first_step(load) if fresh is None else fresh
    if fresh.all():
        raise BadInput("every token of the load is fresh: nothing was foretold", fix="replay more steps")
    token, active, choices = hits(load.experts, predicted, fresh, load.num_experts)
    usual = np.argsort(-predictor.frequency, axis=1, kind="stable")[:, : predictor.top_k].astype(np.int16)
    always = np.ascontiguousarray(np.broadcast_to(usual, (*fresh.shape, *usual.shape)))
    chance, _, _ = hits(load.experts, always, fresh, load.num_experts)
    return HitRates(token, active, choices, chance)


def step_zero_table(
    timers: Sequence[MoeTimer], load: Load, *, steps: int = 8, seed: int = 0
) -> NDArray[np.float64]:
    """Seconds of the experts of n tokens, all layers together, [B + 1]: what is known before any token ran.

    The mean over `steps` profiled decode steps, each with its slots in a seeded random order. `timers` are in
    the order of the load's layers. At the first step it stands for the prediction: `attention_table` of
    `schedule.pipeline` makes a table of sub-batches of it.
    """
    rng = np.random.default_rng(seed)
    chosen = (
        np.unique(np.arange(steps) * load.steps // steps) if steps < load.steps else np.arange(load.steps)
    )
    total = np.zeros(load.batch + 1)
    for step in chosen:
        order = rng.permutation(load.batch)
        for index, timer in enumerate(timers):
            tokens, home = load.experts[step, order, index], timer.homes(load.batch)[order]
            total[1:] += timer.growing_s(tokens, home)
    return total / len(chosen)


def cost_bias(timers: Sequence[MoeTimer], load: Load, predicted: NDArray[np.int16]) -> NDArray[np.float64]:
    """True over predicted J of whole decode steps of a profile, per layer [L]; the first step is left out.

    Predictions crowd on the experts that are likely, where real tokens scatter, so that a predicted batch
    looks slower than it is. Tables of predicted sub-batches may be multiplied by it. SPIMOE does not.
    Raises BadInput on a single step.
    """
    if load.steps < 2:
        raise BadInput("one step has no prediction from the step before", fix="replay more steps")
    ratios = [
        timer.steps_s(load.experts[1:, :, index]).sum() / timer.steps_s(predicted[1:, :, index]).sum()
        for index, timer in enumerate(timers)
    ]
    return np.array(ratios)


def first_step(load: Load) -> NDArray[np.bool_]:
    """Marks [S, B] of tokens without a past where nothing is known of requests: those of the first step."""
    fresh = np.zeros((load.steps, load.batch), dtype=np.bool_)
    fresh[0] = True
    return fresh


def _not_negative(
    gram: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Least squares with coefficients that are not negative: x, and the residual less E[y y]."""
    best, least = np.zeros(len(target)), 0.0
    for used in product((True, False), repeat=len(target)):
        at = np.flatnonzero(used)
        if not at.size:
            continue
        x: NDArray[Any] = np.linalg.lstsq(gram[np.ix_(at, at)], target[at], rcond=None)[0]
        if (x < 0.0).any():
            continue
        residual = float(x @ gram[np.ix_(at, at)] @ x - 2.0 * x @ target[at])
        if residual < least - 1e-12 * abs(least):
            best, least = np.zeros(len(target)), residual
            best[at] = x
    return best, least
