"""Tables on replicas: published heuristics beside ours, against the bound and on traffic that none saw.

`python -m moeplan.benchmarks.replicas_table --traces DIR` prints them; DIR holds recorded traces (.npz), and
without it only synthetic loads are compared.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..placement.planning import Search
from ..placement.replicas.planning import PUBLISHED, baseline, plan_replicas
from ..placement.replicas.problem import Decision, ReplicaProblem, Settings, replica_problem
from ..placement.replicas.ranks import even_ranks
from ..placement.result import Budget
from ..placement.solve import solve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..workload.trace import RoutingTrace

    Counts = NDArray[np.float64]

OTHERS = ("linear", "round_robin", "eplb", "snake", "flash_like", "replicate_everywhere")
#: What `moeplan plan` does where nothing else is asked.
OURS = "auto"
#: What the last column of the first table counts, for whoever quotes it.
CPU_NOTE = "CPU ms: processor time of the search for all layers, without baselines."
_SIGMAS = (0.2, 0.5)
_EXPERTS, _SLOTS, _RANKS, _LAYERS, _TOKENS, _TOP_K, _SKEW = 256, 288, 32, 8, 400_000, 8, 1.0
#: Windows of a recorded part that is profiled, and that is held out.
_WINDOWS, _HELD_OUT = 16, 32
_TRACES = {
    "deepseek-v2-lite-law": "deepseek-v2-lite",
    "deepseek-v2-lite-summary": "deepseek-v2-lite",
    "gpt-oss-20b-decode": "gpt-oss-20b",
}
_TRACE_RANKS = 8


@dataclass(frozen=True)
class Cell:
    """Held-out balancedness of every solver by layer, `[L]`, in one situation; auto with default settings."""

    name: str
    balancedness: dict[str, NDArray[np.float64]]

    def lead(self, other: str) -> tuple[float, float]:
        """Return by how much ours is better in the mean over layers, and two standard errors of that."""
        apart = self.balancedness[OURS] - self.balancedness[other]
        error = float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
        return float(apart.mean()), float(2.0 * error)


def zipf_loads(layers: int, experts: int, skew: float, seed: int, tokens: int = 1_000_000) -> Counts:
    """Tokens `[L, E]`: in every layer a random order of Zipf(skew), top-8 choices drawn independently."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, experts + 1) ** skew
    share /= share.sum()
    drawn = [rng.multinomial(tokens * _TOP_K, rng.permutation(share)) for _ in range(layers)]
    return np.array(drawn, dtype=np.float64)


def bound_table(seed: int = 17) -> str:
    """Markdown table: largest load over its bound, of eplb and of auto, and its processor time."""
    lines = [
        "| layers x experts, slots | s | eplb mean (worst) | auto mean (worst) | duplicates | auto CPU ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for layers, experts, slots, groups, skews in (
        (58, 256, 288, 8, (0.5, 0.8, 1.0, 1.2)),
        (58, 256, 288, 1, (0.5, 0.8, 1.0, 1.2)),
        (61, 384, 448, 8, (0.5, 0.8, 1.0, 1.2)),
        (61, 384, 416, 1, (0.5, 0.8, 1.0, 1.2)),
        (61, 384, 384, 1, (0.3, 0.5)),
    ):
        for skew in skews:
            loads = zipf_loads(layers, experts, skew, seed)
            ranks, settings = even_ranks(4, _RANKS, slots), Settings(groups=groups)
            problems = [replica_problem(load, ranks, settings=settings) for load in loads]
            plan_replicas(problems[:1])  # compiles, or loads what was compiled
            begun = time.process_time()
            ours = [solve(problem, "auto") for problem in problems]
            took_s = time.process_time() - begun
            theirs = [baseline(problem, "eplb") for problem in problems]
            mine = np.array([r.cost.objective_s / r.bound.value_s for r in ours])
            # Both against the bound of the question in which duplicates are forbidden, which is ours.
            eplb = np.array([t.cost.objective_s / r.bound.value_s for t, r in zip(theirs, ours, strict=True)])
            repeated = [
                sum(p.duplicates(r.decision) for p, r in zip(problems, results, strict=True) if r.decision)
                for results in (theirs, ours)
            ]
            lines.append(
                f"| {layers} x {experts}, {slots}{', 4 nodes of 2 groups' if groups > 1 else ''} | {skew} "
                f"| {eplb.mean():.4f} ({eplb.max():.4f}) | {mine.mean():.4f} ({mine.max():.4f}) "
                f"| {repeated[0]} / {repeated[1]} | {took_s * 1e3:.0f} |"
            )
    return "\n".join([*lines, "", CPU_NOTE])


def drift_cells(budget: Budget, layers: int = _LAYERS, seed: int = 3) -> Iterator[Cell]:
    """One window of 400,000 tokens; the next ones have every expert's load times exp(sigma * normal)."""
    for sigma in _SIGMAS:
        rng = np.random.default_rng([seed, int(sigma * 10)])
        profile = zipf_loads(layers, _EXPERTS, _SKEW, seed, _TOKENS)[:, None]
        moved = profile * np.exp(sigma * rng.standard_normal((layers, 200, _EXPERTS)))
        yield _cell(f"drift {sigma}", profile, moved, _SLOTS, _RANKS, budget)


def trace_cells(folder: Path, budget: Budget, layers: int | None = None) -> Iterator[Cell]:
    """Recorded traces: held out by request, by time, and by domain."""
    from ..workload.replay import split

    traces = dict(_read_traces(folder))
    for name, trace in traces.items():
        for by in ("request", "time"):
            seen, unseen = split(trace, 0.5, by=by, seed=0)
            yield _trace_cell(f"{name}, by {by}", seen, unseen, budget, layers)
    law, summary = "deepseek-v2-lite-law", "deepseek-v2-lite-summary"
    if law in traces and summary in traces:
        for here, there in ((law, summary), (summary, law)):
            yield _trace_cell(
                f"profile {here}, held out {there}", traces[here], traces[there], budget, layers
            )


def held_out_table(cells: Sequence[Cell]) -> str:
    """Markdown table: balancedness (mean / max rank load) on held-out windows, means over layers."""
    names = [OURS, *OTHERS]
    lines = [
        "| held out | " + " | ".join(names) + f" | {OURS} - eplb | behind the best by |",
        "|---|" + "---:|" * (len(names) + 2),
    ]
    for cell in cells:
        means = [f"{cell.balancedness[name].mean():.4f}" for name in names]
        lead, noise = cell.lead("eplb")
        lines.append(
            f"| {cell.name} | " + " | ".join(means) + f" | {lead:+.4f} +- {noise:.4f} | {_behind(cell)} |"
        )
    overall = float(np.mean([cell.lead("eplb")[0] for cell in cells]))
    lines.append(f"\nauto is better than eplb by {overall:+.4f} on average over {len(cells)} cells.")
    return "\n".join(lines)


def _behind(cell: Cell) -> str:
    """By how much ours is behind the best other solver, where that is more than the noise."""
    best = min(OTHERS, key=lambda other: cell.lead(other)[0])
    lead, noise = cell.lead(best)
    if lead >= 0.0:
        return "-"
    return f"{-lead:.4f} ({best}{', within noise' if -lead <= noise else ''})"


def _trace_cell(
    name: str, seen: RoutingTrace, unseen: RoutingTrace, budget: Budget, layers: int | None
) -> Cell:
    slots = seen.num_experts + _TRACE_RANKS
    profile, held_out = (
        _windows(trace, number)[:layers] for trace, number in ((seen, _WINDOWS), (unseen, _HELD_OUT))
    )
    return _cell(name, profile, held_out, slots, _TRACE_RANKS, budget)


def _windows(trace: RoutingTrace, number: int) -> Counts:
    """Tokens `[L, S, E]` of windows of consecutive rows."""
    parts = np.array_split(trace.experts, number)
    counts = [
        [np.bincount(part[:, row].ravel(), minlength=trace.num_experts) for part in parts]
        for row in range(len(trace.layers))
    ]
    return np.array(counts, dtype=np.float64)


def _cell(name: str, profile: Counts, held_out: Counts, slots: int, ranks: int, budget: Budget) -> Cell:
    shape = even_ranks(1, ranks, slots)
    found: dict[str, list[float]] = {solver: [] for solver in (OURS, *OTHERS)}
    for seen, unseen in zip(profile, held_out, strict=True):
        problem = replica_problem(seen, shape, held_out=unseen)
        for solver, values in found.items():
            values.append(_score(problem, solver, budget))
    return Cell(name, {solver: np.array(values) for solver, values in found.items()})


def _score(problem: ReplicaProblem, solver: str, budget: Budget) -> float:
    decision: Decision | None
    if solver == OURS:
        decision = plan_replicas([problem], search=Search(solver, budget)).layers[0].decision
    elif solver in PUBLISHED:
        decision = baseline(problem, solver).decision
    else:
        decision = solve(problem, solver, budget=budget).decision
    assert decision is not None
    assert problem.held_out is not None
    return problem.held_out.balancedness(decision)


def _read_traces(folder: Path) -> Iterator[tuple[str, RoutingTrace]]:
    from ..workload.model import load_model
    from ..workload.readers.arrays import read_arrays

    for name, model in _TRACES.items():
        path = folder / f"{name}.npz"
        if path.exists():
            yield name, read_arrays(path, load_model(model))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder of recorded traces (.npz)")
    parser.add_argument("--layers", type=int, help="at most so many layers of every trace")
    parser.add_argument("--iterations", type=int, default=40_000, help="moves of auto on every layer")
    given = parser.parse_args()
    budget = Budget(time_s=None, iterations=given.iterations)
    print(bound_table())
    cells = list(drift_cells(budget))
    if given.traces is not None:
        cells += trace_cells(given.traces, budget, given.layers)
    print()
    print(held_out_table(cells))


if __name__ == "__main__":
    main()
