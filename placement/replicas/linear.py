"""Counts and packing as one linear model: what the ILP and the CP-SAT solver write down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from .layout import slots_of
from .problem import Decision, ReplicaProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Steps up to which each has its own maximum; variables up to which a model is written.
_MOST_STEPS, _MOST_VARIABLES = 6, 40_000


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Minimise the mean of `steps` maxima, each at least `base[k]` plus the work of every rank.

    z[e, g, c] says how many of the c replicas of expert e are on rank g; y[e, c] that e has c replicas.
    Work of z[e, g, c] in step k is `work[d, k, e, c - 1] / speed[g]` seconds, in each of D kinds of work
    (memory and computing), of which the larger counts.
    """

    experts: int
    counts: int
    room: tuple[int, ...]
    speed: tuple[float, ...]
    most: int
    base: NDArray[np.float64]  # [K]
    work: NDArray[np.float64]  # [D, K, E, C]
    node_of: tuple[int, ...]
    groups: int
    nodes: int
    before: NDArray[np.int16] | None
    moves: int
    proves: bool
    """Whether the optimum of the model is a bound of the problem."""

    @property
    def steps(self) -> int:
        """K, the number of maxima."""
        return len(self.base)


def linear_model(problem: ReplicaProblem) -> LinearModel:
    """Write down the compute part of the objective for an equal split.

    Few planned steps have a maximum each, which is exact. Of many only the mean load is modelled, which for
    plain load is a bound, since a mean of maxima is at least the maximum of means. Raises UsageError where
    the model would have more than 40,000 variables.
    """
    from .cost_kernel import HASH, SPLITS

    ranks, rates = problem.ranks, problem.rates
    spare = ranks.slots - problem.experts
    counts = min(problem.most * ranks.ranks // problem.nodes, spare + 1)
    variables = problem.experts * ranks.ranks * counts
    if variables > _MOST_VARIABLES:
        raise UsageError(
            f"the integer program would have {variables} variables",
            allowed=f"up to {_MOST_VARIABLES}",
            fix="take the solver auto, or fewer slots",
        )
    tokens = problem.planned.sum(axis=1)
    exact = len(tokens) <= _MOST_STEPS
    steps = tokens if exact else tokens.mean(axis=0, keepdims=True)
    c = np.arange(1, counts + 1)
    each = steps[:, :, None] / c
    hashed = SPLITS[problem.settings.split] == HASH
    active = 1.0 - (1.0 - 1.0 / c) ** steps[:, :, None] if hashed else np.minimum(1.0, each)
    padded = np.ceil(each / rates.tile - 1e-9) * rates.tile if rates.tile > 1 else each
    work = [active * rates.expert_s + each * rates.token_memory_s]
    if rates.token_compute_s > 0.0:
        work.append(padded * rates.token_compute_s)
    equal = problem.settings.split in ("equal", "hash")
    limit = problem.settings.max_moves
    return LinearModel(
        experts=problem.experts,
        counts=counts,
        room=ranks.room,
        speed=ranks.speed,
        most=problem.most,
        base=np.where(steps.sum(axis=1) > 0.0, rates.kernel_s, 0.0),
        work=np.stack(work),
        node_of=tuple(g // ranks.per_node for g in range(ranks.ranks)),
        groups=problem.settings.groups if problem.nodes > 1 else 0,
        nodes=problem.nodes,
        before=problem.has(Decision(problem.current))
        if limit is not None and problem.current is not None
        else None,
        moves=limit if limit is not None else ranks.slots,
        proves=equal and (exact or (rates.expert_s == rates.kernel_s == 0.0 and rates.tile == 1)),
    )


def decision_of(problem: ReplicaProblem, held: NDArray[np.int64]) -> Decision:
    """Return the slots for replicas by expert and rank `[E, G]`."""
    return Decision(slots_of(held.astype(np.int16), problem.ranks, problem.current))
