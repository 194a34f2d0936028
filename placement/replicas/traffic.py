"""Traffic for replica problems: counted loads, replayed traces, and what crosses between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from ...common.errors import BadInput
from .cluster import rates_of
from .problem import replica_problem, settings_from
from .ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .document import ReplicaPlan
    from .problem import Decision, ReplicaProblem, Settings
    from .rates import Rates

Sources = Literal["uniform", "slots"]


def problems_of(
    profile: NDArray[np.float64],
    held_out: NDArray[np.float64] | None,
    layers: Sequence[int],
    ranks: Ranks,
    *,
    rates: Rates | None = None,
    settings: Settings | None = None,
    current: ArrayLike | None = None,
) -> list[ReplicaProblem]:
    """Pose one problem a layer for counts `[S, L, E]` (or by source, `[S, P, L, E]`).

    `current` `[L, R]` is the placement that is there. Raises what `replica_problem` raises, and BadInput
    where the current placement has other layers.
    """
    if current is not None and len(np.asarray(current)) != len(layers):
        raise BadInput(
            f"the current placement has {len(np.asarray(current))} layers, {len(layers)} are planned",
            fix="give one row of slots for every planned layer",
        )
    return [
        replica_problem(
            profile[..., row, :],
            ranks,
            layer=layer,
            held_out=None if held_out is None else held_out[..., row, :],
            rates=rates,
            settings=settings,
            current=None if current is None else np.asarray(current)[row],
        )
        for row, layer in enumerate(layers)
    ]


def counts_of(load: Load, layers: Sequence[int], ranks: Ranks, sources: Sources) -> NDArray[np.float64]:
    """Return tokens of replayed steps, `[S, L, E]`, or by source rank `[S, G, L, E]` where slots are known.

    With `slots`, the attention of batch slot b ran on rank b modulo G.
    """
    rows = [load.layers.index(layer) for layer in layers]
    if sources == "uniform":
        return load.counts()[:, rows].astype(np.float64)
    counts = np.zeros((load.steps, ranks.ranks, len(rows), load.num_experts))
    chosen = load.experts[:, :, rows].astype(np.int64)
    step, slot, row, _ = np.nonzero(chosen >= 0)
    np.add.at(counts, (step, slot % ranks.ranks, row, chosen[chosen >= 0]), 1.0)
    return counts


def problems_of_traffic(
    plan: ReplicaPlan, model: MoEModel, platform: Platform, profile: Load, held_out: Load | None
) -> list[ReplicaProblem]:
    """Pose the questions of a plan again on replayed steps."""
    from .cluster import resized

    ranks = Ranks(plan.nodes, plan.slots_per_rank, plan.platform.rank_speed)
    if platform.topology is not None and platform.topology.sites != plan.ranks:
        platform = resized(platform, nodes=plan.nodes, ranks_per_node=plan.ranks // plan.nodes)
    sources: Sources = "slots" if plan.settings.get("sources") == "slots" else "uniform"
    return problems_of(
        counts_of(profile, plan.layer_ids, ranks, sources),
        None if held_out is None else counts_of(held_out, plan.layer_ids, ranks, sources),
        plan.layer_ids,
        ranks,
        rates=rates_of(model, platform),
        settings=settings_from(plan.settings),
        current=plan.current,
    )


def rank_traffic(problem: ReplicaProblem, decision: Decision) -> NDArray[np.float64]:
    """Tokens that every source rank sends to every rank in a mean recorded step, `[G, G]`.

    The diagonal stays on its rank. Where only counts are known, tokens come evenly from all ranks.
    """
    from .cost_kernel import source_shares

    load, has = problem.load(problem.tokens), problem.has(decision)
    ranks = problem.ranks.ranks
    mean = problem.tokens.mean(axis=0)  # [P, E]
    matrix = np.zeros((ranks, ranks))
    share = np.empty(ranks)
    for e in range(problem.experts):
        count = int(has[e].sum())
        for i in range(ranks):
            sent = mean[i, e] if mean.shape[0] > 1 else mean[0, e] / ranks
            if sent > 0.0:
                source_shares(load, has[e], count, i, share)
                matrix[i] += sent * share
    return matrix
