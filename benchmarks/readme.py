"""`python -m moeplan.benchmarks.readme [README.md]`: remake the README's outputs, tables and figures.

Text between `<!-- begin: NAME -->` and `<!-- end: NAME -->` is replaced by what the block NAME gives now.
Blocks on real traces and reference timings are left as they are where MOEPLAN_TRACES and
MOEPLAN_REFERENCE are not set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import read_text, write_text
from ..hardware.platform import load_platform
from ..hardware.units import format_bytes
from ..placement.channels.document import ChannelPlan
from ..placement.channels.planning import plan_channels
from ..placement.plan import read_plan
from ..placement.planning import Search
from ..placement.result import Budget
from ..workload.model import load_model
from ..workload.readers.arrays import read_arrays
from ..workload.replay import replay, split
from ..workload.trace import read_trace
from . import pareto, pooling, replicas_table
from .blocks import read_block, replace_block
from .partition_table import policy_table
from .reproduce.collect import SOURCES
from .reproduce.collect import collect as collect_rows
from .ring_figure import draw
from .validation.figure import render
from .validation.report import collect, summarize

if TYPE_CHECKING:
    from ..placement.channels.problem import Decision
    from ..placement.cores.pooling import Placement
    from ..placement.result import Result

_FIGURES = Path("benchmarks/figures")
_CORES = "0,1,2,5,9,14,15,20,27"
_SOLVERS = ("ilp", "cpsat", "annealing")
_TRACES = (
    ("deepseek-v2-lite-law", "deepseek-v2-lite", 32),
    ("deepseek-v2-lite-summary", "deepseek-v2-lite", 32),
    ("gpt-oss-20b-decode", "gpt-oss-20b", 128),
)
_RULES: tuple[Placement, ...] = ("contiguous", "lpt")
_SHOWN = (16, 64, 256)
_EXAMPLE = """\
from moeplan.hardware import load_platform
from moeplan.placement import Budget
from moeplan.placement.channels import Search, plan_channels
from moeplan.workload import load_model, read_trace, replay, split

model, platform = load_model("deepseek-v2-lite"), load_platform("spimoe-4x8")
seen, unseen = split(read_trace("moeplan-demo/trace.parquet"), 0.5, seed=0)
plans = plan_channels(
    model,
    platform,
    replay(seen, batch=32, steps=128, seed=0),
    replay(unseen, batch=32, steps=128, seed=0),
    search=Search("annealing", Budget(time_s=None, iterations=40_000)),
)
for plan in plans:
    lpt = plan.baselines["lpt"]
    print(
        f"layer {plan.problem.layer:2}: {plan.result.held_out.total_s * 1e6:.1f} us held out, "
        f"lpt {lpt.held_out.total_s * 1e6:.1f} us, gap to the bound {plan.result.gap:.1%}"
    )
"""


def main() -> None:
    """Refresh the README in the current folder, or the one named."""
    readme = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md").resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        blocks: dict[str, Callable[[], str]] = {
            "demo": lambda: _fenced(_run(["demo"], work)),
            "python": lambda: _python(work),
            "solvers": lambda: _solvers(work),
            "ring": lambda: _fenced(_run(["ring", "--mesh", "4x8", "--cores", _CORES, "--no-cache"], work)),
            "cores": _cores,
            "replicas": lambda: _replicas(readme.parent / "benchmarks" / "RESULTS.md"),
            "pareto": lambda: _pareto(readme.parent / _FIGURES / "pareto.svg"),
            "reproduced": _reproduced,
            "mapping": lambda: _mapping(readme.parent / "benchmarks" / "RESULTS.md"),
            "beyond": lambda: _beyond(work),
        }
        if "MOEPLAN_TRACES" in os.environ:
            traces = Path(os.environ["MOEPLAN_TRACES"])
            blocks["traces"] = lambda: _traces(traces, work)
            blocks["partition"] = lambda: _partition(traces)
            blocks["unseen"] = lambda: _unseen(traces)
        if "MOEPLAN_REFERENCE" in os.environ:
            figure = readme.parent / _FIGURES / "validation.svg"
            blocks["validation"] = lambda: _validation(Path(os.environ["MOEPLAN_REFERENCE"]), figure)
        text = read_text(readme)
        for name, make in blocks.items():
            print(f"making {name}", file=sys.stderr)
            text = replace_block(text, name, make())
        write_text(readme, text)
        draw(readme.parent / _FIGURES / "ring.svg")
        _picture(_read(work / "moeplan-demo" / "plan.json"), readme.parent / _FIGURES / "plan.svg")


def _read(path: Path) -> ChannelPlan:
    plan = read_plan(path)
    assert isinstance(plan, ChannelPlan)
    return plan


def _run(arguments: list[str], work: Path) -> str:
    return _python_output(["-m", "moeplan.cli", *arguments], work)


def _python_output(arguments: list[str], work: Path) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "90"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _fenced(text: str, language: str = "") -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join([f"```{language}", *lines, "```"])


def _python(work: Path) -> str:
    return "\n\n".join([_fenced(_EXAMPLE, "python"), _fenced(_python_output(["-c", _EXAMPLE], work))])


def _solvers(work: Path) -> str:
    """Every solver on the demo's trace with two seconds a layer."""
    model, platform = load_model("deepseek-v2-lite"), load_platform("spimoe-4x8")
    seen, unseen = split(read_trace(work / "moeplan-demo" / "trace.parquet"), 0.5, by="request", seed=0)
    loads = [replay(part, batch=32, steps=128, seed=0) for part in (seen, unseen)]
    rows: list[tuple[str, float, float, float]] = []
    bounds: list[float] = []
    for solver in _SOLVERS:
        search = Search(solver, Budget(time_s=2.0))
        plans = plan_channels(model, platform, loads[0], loads[1], search=search)
        if not rows:
            rows += [_row(name, [plan.baselines[name] for plan in plans]) for name in plans[0].baselines]
        rows.append(_row(f"**{solver}**", [plan.result for plan in plans]))
        bounds.append(sum(plan.result.bound.value_s for plan in plans))
    lines = ["| solver | profile us | held-out us | objective us | gap |", "|---|---:|---:|---:|---:|"]
    for name, *times_s in rows:
        cells = " | ".join(f"{value * 1e6:,.0f}" for value in times_s)
        lines.append(f"| {name} | {cells} | {1.0 - max(bounds) / times_s[-1]:.1%} |")
    note = (
        "Sums over the planned layers, two seconds a layer; gaps are of the objective, to the strongest "
        f"bound that any solver proves, {max(bounds) * 1e6:,.0f} us. Bold solvers start from the best "
        "baseline; `ilp` and `cpsat` prove bounds on small instances, and rarely improve on it at this size."
    )
    return "\n".join([*lines, "", note])


def _row(label: str, results: list[Result[Decision]]) -> tuple[str, float, float, float]:
    """Name; times on profile and held-out steps, and the objective, in seconds."""
    held_out_s = sum(result.held_out.total_s for result in results if result.held_out)
    costs = [result.cost for result in results]
    return label, sum(c.total_s for c in costs), held_out_s, sum(c.objective_s for c in costs)


def _traces(folder: Path, work: Path) -> str:
    head = [
        "trace",
        "batch",
        "ep us",
        "lpt us",
        "plan us",
        "plan / lpt",
        "ep / plan",
        "profile: plan / lpt",
        "gap",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|---:" + "|---:" * (len(head) - 2) + "|"]
    for name, model, batch in _TRACES:
        trace, plan = work / f"{name}.parquet", work / f"{name}.json"
        _run(["trace", "import", str(folder / f"{name}.npz"), "--model", model, "-o", str(trace)], work)
        inputs = ["--model", model, "--platform", "spimoe-4x8", "--trace", str(trace), "--batch", str(batch)]
        _run(["plan", *inputs, "--steps", "128", "--budget", "2s", "-o", str(plan), "--quiet"], work)
        lines.append(_trace_row(name, batch, _read(plan)))
    return "\n".join(lines)


def _trace_row(name: str, batch: int, plan: ChannelPlan) -> str:
    ep, lpt, ours = plan.totals.baselines["ep"], plan.totals.baselines["lpt"], plan.totals
    assert ep.held_out and lpt.held_out and lpt.profile and ours.held_out  # noqa: PT018 - a run of our own
    cells = [
        name, str(batch),
        *(f"{s.total_s * 1e6:,.0f}" for s in (ep.held_out, lpt.held_out, ours.held_out)),
        f"{ours.held_out.total_s / lpt.held_out.total_s:.3f}",
        f"{ep.held_out.total_s / ours.held_out.total_s:.2f}",
        f"{ours.profile.total_s / lpt.profile.total_s:.3f}",
        f"{ours.gap:.1%}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _partition(folder: Path) -> str:
    loads = []
    for name, model, batch in (_TRACES[0], _TRACES[2]):
        trace = read_arrays(folder / f"{name}.npz", load_model(model))
        loads.append((name, model, replay(trace, batch=batch, steps=16, seed=0)))
    return policy_table(loads)


def _cores() -> str:
    loads = {
        name: pooling.drawn_steps(load_model(name), batch=batch, steps=pooling.STEPS, seed=pooling.SEED)
        for name, batch in pooling.SYSTEMS
    }
    said = [
        pooling.tally(
            f"Table X under {rule} placement",
            [e for e in pooling.table_x(rule, loads) if not e.name.endswith("stretch")],
        )
        for rule in _RULES
    ]
    return "\n".join([pooling.placements_table(loads), "", *(f"- {sentence}" for sentence in said)])


def _replicas(results: Path) -> str:
    """The loads of DeepSeek-V3's shape from the long table, whose times are measured once for both."""
    head, ruler, *rows = read_block(read_text(results), "replicas").splitlines()
    shown = [head, ruler, *(row for row in rows if row.startswith("| 58 x 256"))]
    return "\n".join([*shown, "", replicas_table.CPU_NOTE])


def _unseen(folder: Path) -> str:
    budget = Budget(time_s=None, iterations=40_000)
    cells = [*replicas_table.drift_cells(budget), *replicas_table.trace_cells(folder, budget)]
    return replicas_table.held_out_table(cells)


def _pareto(figure: Path) -> str:
    points = pareto.figure_9()
    pareto.draw(points, figure)
    executed = pareto.figure_9(timing="timeline")
    lines = ["| system | batch | over PIMoE | over NoExp | over AllExp | executed, over PIMoE |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    ratios = [pareto.ratio(points, "sieve", other) for other in ("pimoe", "no_exp", "all_exp")]
    ratios.append(pareto.ratio(executed, "sieve", "pimoe"))
    for model, gpus in pareto.SYSTEMS:
        for batch in _SHOWN:
            cells = [f"{found[model, batch, 0]:.2f}" for found in ratios]
            lines.append(
                f"| {model}, {gpus} GPU{'s' if gpus > 1 else ''} | {batch} | " + " | ".join(cells) + " |"
            )
    return "\n".join(lines)


def _mapping(results: Path) -> str:
    """What the long table says in all."""
    _, _, summary = read_block(read_text(results), "mapping").partition("\n\n")
    return "\n".join(f"- {sentence}" for sentence in summary.splitlines())


def _beyond(work: Path) -> str:
    """Extrapolations, and a measured point that they can be held against."""
    lines: list[str] = []
    for axis in ("tokens", "sites"):
        shown = _run(["bench", "scale", "--what", axis, "--extrapolate"], work).splitlines()
        lines += [line for line in shown if line.endswith(":") or line.startswith(("  time", "  memory"))]
    point = json.dumps(
        {"family": "replicas", "axis": "sites", "experts": 512, "sites": 10_000, "moves": 51_200}
    )
    said = _python_output(["-m", "moeplan.benchmarks.scale.worker", point], work)
    found = json.loads(said.strip().splitlines()[-1])
    taken = format_bytes(found["peak_bytes"] - found["held_bytes"])
    lines.append(f"  measured at 10^4 ranks: {found['cpu_s']:.3g} s, {taken}")
    return _fenced("\n".join(lines))


def _reproduced() -> str:
    lines = [
        "| source | figures | with ours beside | within 10 % | within 25 % |",
        "|---|---:|---:|---:|---:|",
    ]
    for source in SOURCES:
        rows = collect_rows(source)
        apart = [abs(row.difference) for row in rows if row.difference is not None]
        within = [sum(value <= most for value in apart) for most in (0.1, 0.25)]
        lines.append(f"| {source} | {len(rows)} | {len(apart)} | {within[0]} | {within[1]} |")
    return "\n".join(lines)


def _validation(reference: Path, figure: Path) -> str:
    cases = collect(reference)
    write_text(figure, render(cases))
    lines = ["| model | cases | median | p95 | worst |", "|---|---:|---:|---:|---:|"]
    for summary in summarize(cases):
        errors = (summary.median_abs_error, summary.p95_abs_error, summary.worst_abs_error)
        cells = [summary.name, str(summary.cases), *(f"{error:.2%}" for error in errors)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _picture(plan: ChannelPlan, path: Path) -> None:
    """Held-out load of every site in the first layer, under ep and under the plan."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

    entry, shape = plan.layers[0], (plan.platform.rows, plan.platform.cols)
    loads_us = {
        "expert parallelism": np.array(entry.baselines["ep"].held_out_site_load_s).reshape(shape) * 1e6,
        "moeplan": np.array(entry.held_out_site_load_s).reshape(shape) * 1e6,
    }
    most = max(load.max() for load in loads_us.values())
    with mpl.rc_context({"svg.hashsalt": "moeplan", "font.size": 9}):
        figure = Figure(figsize=(8, 2.5), layout="constrained")
        axes = figure.subplots(1, 2)
        for axis, (name, load) in zip(axes, loads_us.items(), strict=True):
            image = axis.imshow(load, cmap="YlOrRd", vmin=0.0, vmax=most)
            axis.set_title(f"{name}: busiest site {load.max():.0f} us on average", fontsize=9)
            axis.set_xticks(np.arange(0.5, shape[1] - 1), labels=[])
            axis.set_yticks(np.arange(0.5, shape[0] - 1), labels=[])
            axis.grid(color="white", linewidth=1.5)
            axis.tick_params(length=0)
        label = "PIM time of a decode step, us"
        figure.colorbar(image, ax=axes, label=label, shrink=0.9)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
