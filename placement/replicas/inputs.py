"""What a replica problem is made from: counts, groups and a current placement, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import BadInput, UsageError
from ...workload.counts import MOST_TOKENS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .ranks import Ranks


def largest_of_normals(number: int) -> float:
    """Mean of the largest of so many independent standard normal draws, by quadrature of its distribution."""
    from scipy.special import ndtr

    x = np.linspace(-9.0, 9.0, 3601)
    return float(np.trapezoid(np.heaviside(x, 0.5) - ndtr(x) ** number, x))


def tokens_of(counts: ArrayLike, ranks: Ranks, where: str) -> NDArray[np.float64]:
    """Return counts as float64 `[S, P, E]`, read-only. Raises BadInput as `replica_problem` says."""
    tokens = np.array(counts, dtype=np.float64)
    if tokens.ndim == 1:
        tokens = tokens[None, None]
    elif tokens.ndim == 2:
        tokens = tokens[:, None]
    if tokens.ndim != 3 or 0 in tokens.shape or tokens.shape[1] not in (1, ranks.ranks):
        raise BadInput(
            f"counts of shape {np.shape(counts)} do not fit",
            where=where,
            allowed="[E], [S, E] or [S, ranks, E]",
        )
    if not np.isfinite(tokens).all() or tokens.max() > MOST_TOKENS:
        raise BadInput(
            f"a count is NaN, infinite or above {MOST_TOKENS:g}", where=where, fix="record the load again"
        )
    if tokens.min() < 0.0:
        raise BadInput("a count is negative", where=where, fix="give numbers of tokens")
    if tokens.max() == 0.0:
        raise BadInput(
            "all counts are zero",
            where=where,
            fix="leave the layer out: it is dense, or nothing was recorded there",
        )
    tokens.flags.writeable = False
    return tokens


def check_groups(groups: int, nodes: int, experts: int) -> None:
    """Raise UsageError where the groups divide neither the experts nor over the nodes."""
    if experts % groups:
        divisors = ", ".join(str(n) for n in range(1, experts + 1) if experts % n == 0)
        raise UsageError(
            f"{experts} experts do not divide into {groups} groups",
            where="groups",
            fix=f"a number of groups that divides: {divisors}",
        )
    if groups > 1 and groups % nodes:
        raise UsageError(
            f"{groups} groups do not divide over {nodes} nodes",
            where="groups",
            fix="leave the groups out (1): nothing then ties an expert to a node",
        )


def current_of(current: ArrayLike, ranks: Ranks, experts: int) -> NDArray[np.int32]:
    """Return slots `[R]` that are there, read-only. Raises BadInput where they do not fit."""
    slots = np.array(current)
    fits = slots.shape == (ranks.slots,) and slots.dtype.kind in "iu"
    if not fits or slots.min() < 0 or slots.max() >= experts:
        raise BadInput(
            f"the current placement does not fit {ranks.slots} slots and {experts} experts",
            allowed=f"{ranks.slots} expert ids from 0 to {experts - 1} a layer",
            fix="give the placement of the same ranks and slots, or plan without it",
        )
    now = slots.astype(np.int32)
    now.flags.writeable = False
    return now
