"""Published placements: contiguous, by load alone, and by co-activation (ReXpert section IV-D)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..control import Claim, Control
from ..result import Stop
from .problem import CoreProblem, Decision, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def contiguous(control: Control[Decision]) -> Claim:
    """Expert e of E on place floor(e P / E)."""
    problem = problem_of(control)
    places = problem.layout.places
    return _offer(control, np.arange(problem.experts) * places // problem.experts)


def lpt(control: Control[Decision]) -> Claim:
    """Longest processing time first: heaviest expert first, to the place with the least load."""
    return _offer(control, lpt_placement(problem_of(control)))


def lpt_placement(problem: CoreProblem) -> NDArray[np.int64]:
    """Places `[E]` by the experts' tokens in the recorded steps; ties go to the lower id."""
    total = problem.counts.sum(axis=0, dtype=np.int64)
    load = np.zeros(problem.layout.places, dtype=np.int64)
    held = np.zeros(problem.layout.places, dtype=np.int64)
    place_of = np.zeros(problem.experts, dtype=np.int64)
    for expert in np.argsort(-total, kind="stable"):
        free = np.flatnonzero(held < problem.layout.room)
        place = free[load[free].argmin()]
        place_of[expert] = place
        load[place] += total[expert]
        held[place] += 1
    return place_of


def coactivation(control: Control[Decision]) -> Claim:
    """Spread experts that fire together, and so pair hot experts with cold ones (ReXpert section IV-D).

    The heaviest expert first, each goes to the place with whose experts its tokens have fired least: the
    number of tokens that chose both, summed over the place, which under independence is in proportion to
    the product of their loads. Ties go to the place with the least load, then to the lower id. The text
    gives no more than the two aims and that loads and pairs come from a profiling window.
    """
    problem = problem_of(control)
    pairs = token_pairs(problem.tokens, problem.experts)
    total = np.diagonal(pairs).copy()
    places = problem.layout.places
    together = np.zeros((places, problem.experts), dtype=np.int64)  # of every place with every expert
    load = np.zeros(places, dtype=np.int64)
    held = np.zeros(places, dtype=np.int64)
    place_of = np.zeros(problem.experts, dtype=np.int64)
    for expert in np.argsort(-total, kind="stable"):
        free = np.flatnonzero(held < problem.layout.room)
        place = free[np.lexsort((load[free], together[free, expert]))[0]]
        place_of[expert] = place
        together[place] += pairs[expert]
        load[place] += total[expert]
        held[place] += 1
    return _offer(control, place_of)


def token_pairs(tokens: NDArray[np.int16], experts: int) -> NDArray[np.int64]:
    """Tokens that chose experts i and j together, `[E, E]`; the diagonal holds the experts' own tokens."""
    flat = tokens.reshape(-1, tokens.shape[-1]).astype(np.int64)
    chosen = np.where(flat >= 0, flat, experts)  # what the router dropped goes to a row of its own
    key = chosen[:, :, None] * (experts + 1) + chosen[:, None, :]
    pairs = np.bincount(key.ravel(), minlength=(experts + 1) ** 2).reshape(experts + 1, experts + 1)
    kept: NDArray[np.int64] = pairs[:experts, :experts]
    return kept


def _offer(control: Control[Decision], place_of: NDArray[np.int64]) -> Claim:
    control.offer(Decision(place_of.astype(np.int32)))
    control.iterations += 1
    return Claim(Stop.CONVERGED)
