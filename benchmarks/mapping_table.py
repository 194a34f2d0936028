"""`python -m moeplan.benchmarks.mapping_table`: expert-to-channel mappings on steps that no planner saw.

SPIMOE's published procedure and its parts beside ours, cell by cell: a model's routing and a batch size.
Every instance is one layer of one seed. A seed draws the layers, splits the requests into profile and
held-out ones, and orders them; across domains a placement planned on one task is measured on another. The
published procedures run in the layout of their paper (whole outputs per bank, names with `_rows`) and in the
best one; ours chooses its layout, and gets no more time than the published procedure took on the same
instance.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import MoeplanError, UsageError
from ..hardware.platform import load_platform
from ..placement.channels.problem import ChannelProblem, Decision, Settings, channel_problem
from ..placement.channels.relaxation import fixed_bound
from ..placement.planning import BASELINE_BUDGET, ROWS
from ..placement.result import Budget
from ..placement.solve import solve
from ..workload.model import load_model
from ..workload.readers.arrays import read_arrays
from ..workload.replay import replay, split
from ..workload.synthetic import synthesize

if TYPE_CHECKING:
    from ..placement.result import Result
    from ..workload.trace import RoutingTrace

PLATFORM, TRACES = "spimoe-4x8", "MOEPLAN_TRACES"
PUBLISHED, OURS = "spimoe", "auto"
POLICIES = ("ep", "lpt", "mixed_tp", "spimoe_cliques", PUBLISHED)
BATCHES = (8, 32, 128)
#: Name of a cell: model, file of its trace or "", file of the held-out trace or "" (split by request).
SOURCES = {
    "law": ("deepseek-v2-lite", "deepseek-v2-lite-law.npz", ""),
    "summary": ("deepseek-v2-lite", "deepseek-v2-lite-summary.npz", ""),
    "law-summary": ("deepseek-v2-lite", "deepseek-v2-lite-law.npz", "deepseek-v2-lite-summary.npz"),
    "summary-law": ("deepseek-v2-lite", "deepseek-v2-lite-summary.npz", "deepseek-v2-lite-law.npz"),
    "gpt-oss-20b": ("gpt-oss-20b", "gpt-oss-20b-decode.npz", ""),
    "qwen3-30b-a3b": ("qwen3-30b-a3b", "", ""),
    "phi-mini-moe": ("phi-mini-moe", "", ""),
    "switch-large-128": ("switch-large-128", "", ""),
}
#: Layers that are drawn for synthetic models: they are alike in law and differ by chance.
_SYNTHETIC_LAYERS = 8
#: Moves with which the unavoidable is estimated: on all held-out steps, and on each alone.
_HINDSIGHT, _ALONE = 20_000, 2_000
_WARM_UP = 64
#: Share of the published procedure's time that ours may search: it still has to be measured afterwards.
_SEARCHING = 0.9


@dataclass(frozen=True)
class Sizes:
    """How much is measured: seeds, layers of each, steps of profile and held-out part.

    `oracle_steps`: held-out steps of each cell's first instance that an oracle plans anew.
    """

    seeds: int = 2
    layers: int = 1
    steps: int = 64
    oracle_steps: int = 4


@dataclass(frozen=True)
class Score:
    """One policy on one instance: seconds of a decode step on profile and held-out steps, and of planning."""

    profile_s: float
    held_out_s: float
    planning_s: float


@dataclass(frozen=True)
class Row:
    """One cell: `scores` by policy, one for every instance, in the same order; what nothing can beat.

    `bound_s`: mean proven bound on the held-out steps, over instances. Of the first instance alone:
    `unavoidable`, the share of ours's held-out time that is left to a placement annealed on the held-out
    steps themselves (`hindsight`), to an oracle that plans every step anew (`oracle`), and that is proven
    necessary for any one placement (`fixed_bound`).
    """

    source: str
    batch: int
    scores: dict[str, list[Score]]
    bound_s: float
    unavoidable: dict[str, float]

    def mean_us(self, policy: str, field: str = "held_out_s") -> float:
        """Mean over instances, in microseconds."""
        return float(np.mean([getattr(score, field) for score in self.scores[policy]]) * 1e6)

    def ratio(self, policy: str, other: str = PUBLISHED) -> tuple[float, float]:
        """Mean over instances of held-out time over another policy's, and its standard error."""
        pairs = zip(self.scores[policy], self.scores[other], strict=True)
        ratios = [mine.held_out_s / theirs.held_out_s for mine, theirs in pairs]
        error = float(np.std(ratios, ddof=1) / np.sqrt(len(ratios))) if len(ratios) > 1 else float("nan")
        return float(np.mean(ratios)), error


def table(sources: Sequence[str], batches: Sequence[int], sizes: Sizes, traces: Path | None) -> Iterator[Row]:
    """Measure every cell; cells whose trace is not at hand are left out. Raises BadInput on broken traces."""
    for source in sources:
        if traces is None and any(SOURCES[source][1:]):
            continue
        warm = _pose(source, batches[0], 0, 0, sizes, traces)[0]
        for solver in (PUBLISHED, OURS):
            solve(warm, solver, budget=Budget(time_s=None, iterations=_WARM_UP))
        for batch in batches:
            yield _row(source, batch, sizes, traces)


def _row(source: str, batch: int, sizes: Sizes, traces: Path | None) -> Row:
    scores: dict[str, list[Score]] = {}
    bounds: list[float] = []
    unavoidable: dict[str, float] = {}
    for seed in range(sizes.seeds):
        for index in range(sizes.layers):
            best, rows = _pose(source, batch, seed, index, sizes, traces)
            for problem, suffix in ((rows, ROWS), (best, "")):
                for policy in POLICIES:
                    result = solve(problem, policy, budget=BASELINE_BUDGET, seed=seed)
                    scores.setdefault(policy + suffix, []).append(_score(result))
            limit = Budget(time_s=_SEARCHING * scores[PUBLISHED][-1].planning_s)
            ours = solve(best, OURS, budget=limit, seed=seed)
            scores.setdefault(OURS, []).append(_score(ours))
            held_out = best.held_out
            assert held_out is not None
            bounds.append(held_out.lower_bound().value_s)
            if not unavoidable:
                assert ours.decision is not None
                unavoidable = _unavoidable(held_out, ours.decision, seed, sizes.oracle_steps)
    return Row(source, batch, scores, float(np.mean(bounds)), unavoidable)


def _score(result: Result[Decision]) -> Score:
    assert result.held_out is not None
    return Score(result.cost.total_s, result.held_out.total_s, result.elapsed_s)


def _unavoidable(held_out: ChannelProblem, ours: Decision, seed: int, steps: int) -> dict[str, float]:
    """Shares of ours's time on held-out steps that would remain; see `Row`."""
    budget = Budget(time_s=None, iterations=_HINDSIGHT)
    hindsight = solve(held_out, "annealing", budget=budget, seed=seed, start=ours)
    mine_s = held_out.evaluate(ours).total_s
    shares = {
        "hindsight": hindsight.cost.total_s / mine_s,
        "fixed_bound": fixed_bound(held_out).value_s / mine_s,
    }
    if steps > 0:
        every = held_out.step_parts(ours).sum(axis=1)
        chosen = np.linspace(0, len(every) - 1, min(steps, len(every))).round().astype(int)
        alone_s = [_planned_alone(held_out, int(step), ours, seed) for step in chosen]
        shares["oracle"] = float(np.sum(alone_s) / every[chosen].sum())
    return shares


def _planned_alone(held_out: ChannelProblem, step: int, ours: Decision, seed: int) -> float:
    """Seconds of one step under a placement that is planned for it alone."""
    from ..placement.channels.tables import slot_tables

    tokens = held_out.tokens[step : step + 1]
    tables = held_out.tables._replace(**slot_tables(tokens, held_out.experts)._asdict())
    alone = dataclasses.replace(held_out, tokens=tokens, tables=tables)
    budget = Budget(time_s=None, iterations=_ALONE)
    return solve(alone, "annealing", budget=budget, seed=seed, start=ours).cost.total_s


def _pose(
    source: str, batch: int, seed: int, index: int, sizes: Sizes, traces: Path | None
) -> tuple[ChannelProblem, ChannelProblem]:
    """The question of one layer in the best layout, and in that of whole outputs per bank."""
    name, file, other = SOURCES[source]
    model = load_model(name)
    if not file:
        trace = _synthetic(name, max(BATCHES) * sizes.steps * 2, seed)
        profile, held_out = split(trace, 0.5, by="request", seed=seed)
    else:
        assert traces is not None
        trace = _recorded(name, traces / file)
        profile, held_out = (
            (trace, _recorded(name, traces / other)) if other else split(trace, 0.5, by="request", seed=seed)
        )
    layers = trace.layers
    layer = layers[int(np.random.default_rng(seed).permutation(len(layers))[index % len(layers)])]
    loads = [replay(part, batch=batch, steps=sizes.steps, seed=seed) for part in (profile, held_out)]
    best, rows = (
        channel_problem(
            model,
            load_platform(PLATFORM),
            loads[0],
            layer,
            held_out=loads[1],
            settings=Settings(layout=layout, resample_seed=seed),
        )
        for layout in ("best", "rows")
    )
    return best, rows


@cache
def _recorded(model: str, path: Path) -> RoutingTrace:
    return read_arrays(path, load_model(model))


@cache
def _synthetic(model: str, tokens: int, seed: int) -> RoutingTrace:
    whole = load_model(model)
    few = dataclasses.replace(whole, moe_layers=whole.moe_layers[:_SYNTHETIC_LAYERS])
    return synthesize(few, tokens=tokens, seed=seed)


def markdown(rows: Sequence[Row]) -> str:
    """Held-out time of every policy as a share of `spimoe`'s, ours with its standard error; then means."""
    names = [policy + suffix for suffix in (ROWS, "") for policy in POLICIES]
    lines = [
        "| routing | batch | spimoe us | "
        + " | ".join(name for name in names if name != PUBLISHED)
        + " | ours | of spimoe_rows | bound | hindsight | oracle | fixed | profile | s spimoe | s ours |",
        "|---|---:|---:|" + "---:|" * (len(names) - 1) + "---:|" * 9,
    ]
    for row in rows:
        mean, error = row.ratio(OURS)
        profile = row.mean_us(OURS, "profile_s") / row.mean_us(PUBLISHED, "profile_s")
        shares = [row.unavoidable.get(name, float("nan")) for name in ("hindsight", "oracle", "fixed_bound")]
        cells = [row.source, str(row.batch), f"{row.mean_us(PUBLISHED):.1f}"]
        cells += [f"{row.ratio(name)[0]:.3f}" for name in names if name != PUBLISHED]
        cells += [f"{mean:.3f} +- {error:.3f}", f"{row.ratio(OURS, PUBLISHED + ROWS)[0]:.3f}"]
        cells += [f"{row.bound_s * 1e6 / row.mean_us(OURS):.3f}", *(f"{share:.3f}" for share in shares)]
        cells += [f"{profile:.3f}"]
        cells += [f"{row.mean_us(policy, 'planning_s') / 1e6:.2f}" for policy in (PUBLISHED, OURS)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_summary(rows)])


def _summary(rows: Sequence[Row]) -> list[str]:
    """What the table says in all."""
    if not rows:
        return ["No cell could be measured: the traces are missing."]
    best, published = ([row.ratio(OURS, PUBLISHED + suffix) for row in rows] for suffix in ("", ROWS))
    said = []
    for title, ratios in (("in the best layout too", best), ("as published", published)):
        lost = [
            f"{row.source} at {row.batch}"
            for row, (mean, error) in zip(rows, ratios, strict=True)
            if mean > 1.0 + 2.0 * (error if np.isfinite(error) else 0.0)
        ]
        said.append(
            f"Ours takes {np.mean([mean for mean, _ in ratios]):.3f} of the held-out time of spimoe {title}, "
            f"mean over {len(rows)} cells; it loses beyond two standard errors in: "
            f"{', '.join(lost) or 'none'}."
        )
    lpt = np.mean([row.ratio(OURS)[0] / row.ratio("lpt")[0] for row in rows])
    said.append(f"Ours takes {lpt:.3f} of the held-out time of lpt in the best layout too.")
    return said


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that was measured, in seconds."""
    return {"cells": [dataclasses.asdict(row) for row in rows], "summary": _summary(rows)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; cells of recorded traces need --traces or the environment variable MOEPLAN_TRACES."""
    sizes = Sizes()
    parser = argparse.ArgumentParser(prog="mapping_table", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=sizes.seeds)
    parser.add_argument("--layers", type=int, default=sizes.layers, help="layers per seed")
    parser.add_argument("--steps", type=int, default=sizes.steps)
    parser.add_argument("--oracle-steps", type=int, default=sizes.oracle_steps)
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--traces", type=Path, default=os.environ.get(TRACES))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        sizes = Sizes(given.seeds, given.layers, given.steps, given.oracle_steps)
        if min(sizes.seeds, sizes.layers, sizes.steps, *given.batches) < 1 or sizes.oracle_steps < 0:
            raise UsageError("seeds, layers, steps and batches must be at least 1, oracle steps at least 0")
        traces = None if given.traces is None else Path(given.traces)
        rows = []
        for row in table(given.sources, given.batches, sizes, traces):
            rows.append(row)
            print(f"{row.source} at {row.batch}: {row.ratio(OURS)[0]:.3f} of spimoe", file=sys.stderr)
    except MoeplanError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(as_json(rows), indent=1) if given.json else markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
