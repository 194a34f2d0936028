"""Policies side by side on the same layers and steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..problem import SAME_COST
from ..result import Budget
from ..solve import solve
from .layer import LayoutName, partition_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...hardware.platform import Platform
    from ...workload.load import Load
    from ...workload.model import MoEModel
    from .problem import PartitionProblem

#: What "all" stands for: as published, and ours. The other solvers find what `exact` proves, slowly.
COMPARED = ("no_exp", "all_exp", "pimoe", "sieve", "fast", "exact")


@dataclass(frozen=True)
class PolicyMeans:
    """One policy's means over instances, in seconds; `bound_s` is the mean of what no policy can beat."""

    policy: str
    total_s: float
    t_gpu_s: float
    t_pim_s: float
    t_comm_s: float
    bound_s: float
    gpu_experts: float

    @property
    def gap(self) -> float:
        """(total - bound) / total."""
        gap = 1.0 - self.bound_s / self.total_s if self.total_s > 0.0 else 0.0
        return gap if gap > SAME_COST else 0.0


def compare(
    problems: Iterable[PartitionProblem],
    policies: Sequence[str] = COMPARED,
    *,
    budget: Budget | None = None,
    seed: int = 0,
) -> list[PolicyMeans]:
    """Solve every problem by every policy. A bound that one of them proves holds for all."""
    sums = {policy: [0.0] * 5 for policy in policies}
    bound_s, count = 0.0, 0
    for problem in problems:
        proven_s = 0.0
        for policy in policies:
            result = solve(problem, policy, budget=budget, seed=seed)
            assert result.decision is not None
            t = problem.times(result.decision)
            values = (t.total_s, t.gpu_s, t.pim_s, t.comm_s, float(t.gpu_experts))
            sums[policy] = [total + value for total, value in zip(sums[policy], values, strict=True)]
            proven_s = max(proven_s, result.bound.value_s)
        bound_s += proven_s
        count += 1
    rows = []
    for policy, totals in sums.items():
        total_s, gpu_s, pim_s, comm_s, experts = (value / max(count, 1) for value in totals)
        rows.append(PolicyMeans(policy, total_s, gpu_s, pim_s, comm_s, bound_s / max(count, 1), experts))
    return rows


def load_problems(
    model: MoEModel,
    platform: Platform,
    load: Load,
    *,
    layout: LayoutName = "tp",
    layers: Sequence[int] | None = None,
    context: int = 1024,
    comm_s: float = 0.0,
) -> Iterator[PartitionProblem]:
    """Pose every layer of every step of a load; all requests attend to `context` tokens (0: no attention)."""
    counts = load.counts()
    for layer in load.layers if layers is None else layers:
        posed = partition_layer(model, platform, layer=layer, layout=layout)
        attention_s = posed.attention_s([context] * load.batch) if context else 0.0
        for step in counts[:, load.layers.index(layer)]:
            yield posed.problem(step, attention_s=attention_s, comm_s=comm_s, batch=load.batch)
