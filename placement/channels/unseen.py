"""Decode steps that did not happen but might: what a placement should be good at.

A profile is one outcome. Which requests met in a step is chance, and so is which requests came at all: an
expert that none of them liked is not one that nobody will like. A search that sees the recorded steps alone
fits both. The steps drawn here shuffle the first away and allow for the second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Shares of unforeseen choices that are told apart.
_SHARES = np.concatenate([[0.0], np.geomspace(0.005, 0.9, 40)])


def unseen_steps(tokens: NDArray[np.int16], experts: int, times: int, seed: int) -> NDArray[np.int16]:
    """Draw `times` as many steps as `tokens` [S, B, K] has: `[times * S, B, K]`.

    Every drawn set of S steps holds each recorded token once, in a random step and slot, so that expert
    loads keep their recorded means. J is a mean over steps, hence what ties consecutive steps together does
    not matter to it. Then a share `novelty` of the choices is replaced by a uniformly drawn expert that the
    token has not chosen: the shrinkage of popularities that the profile's own requests ask for.
    """
    steps, batch, top_k = tokens.shape
    rng = np.random.default_rng(seed)
    share = novelty(tokens, experts)
    flat = tokens.reshape(steps * batch, top_k)
    drawn = np.concatenate([flat[rng.permutation(len(flat))] for _ in range(times)])
    other = rng.integers(0, experts, drawn.shape).astype(drawn.dtype)
    known = (other[:, :, None] == drawn[:, None, :]).any(axis=2)
    for choice in range(1, top_k):  # two choices of a token may have drawn the same expert
        known[:, choice] |= (other[:, :choice] == other[:, choice : choice + 1]).any(axis=1)
    replace = (rng.random(drawn.shape) < share) & ~known & (drawn >= 0)
    drawn[replace] = other[replace]
    return drawn.reshape(times * steps, batch, top_k)


def novelty(tokens: NDArray[np.int16], experts: int) -> float:
    """Estimate the share of an unseen request's choices that the profile does not foretell, 0.0 to 0.9.

    Every slot in turn is left out and foretold by the others, as (1 - x) * their shares + x / E; the x of
    the largest likelihood over all slots is returned (leave-one-out maximum likelihood of a linear
    smoothing, Jelinek and Mercer 1980). A slot runs one request after the other, which is what is exchanged
    between a profile and what comes after it. With a single slot nothing can be left out: its halves in
    time take turns.
    """
    steps, batch, _ = tokens.shape
    parts = np.moveaxis(tokens, 1, 0).reshape(batch, -1)
    if batch == 1:
        parts = parts[:, : steps // 2 * 2 * tokens.shape[2]].reshape(2, -1)
    counts = np.stack([np.bincount(part[part >= 0], minlength=experts) for part in parts]).astype(np.float64)
    rest = counts.sum(axis=0) - counts
    foretold = rest / np.maximum(rest.sum(axis=1, keepdims=True), 1.0)
    used = counts > 0
    with np.errstate(divide="ignore"):
        likelihood = [
            float((counts[used] * np.log((1.0 - x) * foretold[used] + x / experts)).sum()) for x in _SHARES
        ]
    return float(_SHARES[int(np.argmax(likelihood))])
