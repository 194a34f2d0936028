"""Loops over tokens of the expert predictor (numba)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.jit import kernel


@kernel
def moments(
    experts: NDArray[np.int16], follows: NDArray[np.bool_], decay: float, frequency: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Normal equations of the marks of every following token on (previous marks, moving average, frequency).

    `experts` [T, L, K] request by request in order, `follows` [T] whether a token follows the row before it.
    Fills `frequency` [L, E]. Returns gram [L, 3, 3] and target [L, 3], means over following tokens and
    experts, and the lag-1 autocorrelation of the marks [L].
    """
    tokens, layers, top_k = experts.shape
    num_experts = frequency.shape[1]
    gram, target = np.zeros((layers, 3, 3)), np.zeros((layers, 3))
    correlation = np.zeros(layers)
    now, before, average = np.zeros(num_experts), np.zeros(num_experts), np.zeros(num_experts)
    for layer in range(layers):
        share = frequency[layer]
        share[:] = 0.0
        for t in range(tokens):
            for k in range(top_k):
                if experts[t, layer, k] >= 0:
                    share[experts[t, layer, k]] += 1.0
        for e in range(num_experts):
            share[e] /= tokens
        pairs, one, two, both = 0, 0.0, 0.0, 0.0
        before[:] = 0.0
        average[:] = share
        for t in range(tokens):
            if not follows[t]:
                average[:] = share
            now[:] = 0.0
            for k in range(top_k):
                if experts[t, layer, k] >= 0:
                    now[experts[t, layer, k]] = 1.0
            if follows[t]:
                pairs += 1
                for e in range(num_experts):
                    m, a, f, y = before[e], average[e], share[e], now[e]
                    gram[layer, 0, 0] += m * m
                    gram[layer, 0, 1] += m * a
                    gram[layer, 0, 2] += m * f
                    gram[layer, 1, 1] += a * a
                    gram[layer, 1, 2] += a * f
                    gram[layer, 2, 2] += f * f
                    target[layer, 0] += m * y
                    target[layer, 1] += a * y
                    target[layer, 2] += f * y
                    one += m
                    two += y
                    both += m * y
            for e in range(num_experts):
                average[e] = decay * average[e] + (1.0 - decay) * now[e]
                before[e] = now[e]
        n = float(pairs * num_experts)
        gram[layer, 1, 0], gram[layer, 2, 0], gram[layer, 2, 1] = (
            gram[layer, 0, 1],
            gram[layer, 0, 2],
            gram[layer, 1, 2],
        )
        gram[layer] /= n
        target[layer] /= n
        p, q = one / n, two / n
        spread = np.sqrt(p * (1.0 - p) * q * (1.0 - q))
        correlation[layer] = (both / n - p * q) / spread if spread > 0.0 else 0.0
    return gram, target, correlation


@kernel
def predict_steps(
    experts: NDArray[np.int16],
    fresh: NDArray[np.bool_],
    weights: NDArray[np.float64],
    decay: NDArray[np.float64],
    frequency: NDArray[np.float64],
    top_k: int,
) -> NDArray[np.int16]:
    """Top-k of equation 5 for every slot and step [S, B, L, K] of `experts` [S, B, L, K], best first.

    Ties go to the lower id. `fresh` [S, B]: the slot has no past there.
    """
    steps, batch, layers, width = experts.shape
    num_experts = frequency.shape[1]
    predicted = np.empty((steps, batch, layers, top_k), dtype=np.int16)
    average, score = np.empty(num_experts), np.empty(num_experts)
    for b in range(batch):
        for layer in range(layers):
            share, keep = frequency[layer], decay[layer]
            last, mean, usual = weights[layer, 0], weights[layer, 1], weights[layer, 2]
            for s in range(steps):
                if s == 0 or fresh[s, b]:
                    average[:] = share
                    score[:] = share
                else:
                    for e in range(num_experts):
                        average[e] *= keep
                    for k in range(width):
                        e = experts[s - 1, b, layer, k]
                        if e >= 0:
                            average[e] += 1.0 - keep
                    for e in range(num_experts):
                        score[e] = mean * average[e] + usual * share[e]
                    for k in range(width):
                        e = experts[s - 1, b, layer, k]
                        if e >= 0:
                            score[e] += last
                _largest(score, predicted[s, b, layer])
    return predicted


@kernel
def _largest(score: NDArray[np.float64], chosen: NDArray[np.int16]) -> None:
    """Write the ids of the largest scores to `chosen` [K], and spoil the scores."""
    for k in range(len(chosen)):
        best = 0
        for e in range(1, len(score)):
            if score[e] > score[best]:
                best = e
        chosen[k] = best
        score[best] = -1.0


@kernel
def hits(
    experts: NDArray[np.int16], predicted: NDArray[np.int16], fresh: NDArray[np.bool_], num_experts: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Hit rates per layer: by token, by active expert of a step, and by choice of a step; each [L]."""
    steps, batch, layers, width = experts.shape
    token, active, choices = np.zeros(layers), np.zeros(layers), np.zeros(layers)
    for layer in range(layers):
        hit, known, found, total, covered, chosen = 0, 0, 0.0, 0, 0, 0
        for s in range(steps):
            count = np.zeros(num_experts, dtype=np.int64)
            foretold = np.zeros(num_experts, dtype=np.bool_)
            for b in range(batch):
                if fresh[s, b]:
                    continue
                for k in range(predicted.shape[3]):
                    foretold[predicted[s, b, layer, k]] = True
                for k in range(width):
                    e = experts[s, b, layer, k]
                    if e < 0:
                        continue
                    count[e] += 1
                    known += 1
                    for q in range(predicted.shape[3]):
                        hit += predicted[s, b, layer, q] == e
            now, right = 0, 0
            for e in range(num_experts):
                if count[e] > 0:
                    now += 1
                    chosen += count[e]
                    if foretold[e]:
                        right += 1
                        covered += count[e]
            if now > 0:
                found += right / now
                total += 1
        token[layer] = hit / known
        active[layer] = found / total
        choices[layer] = covered / chosen
    return token, active, choices
