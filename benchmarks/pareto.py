"""Interactivity against throughput per GPU: over batch sizes (Sieve figure 9), with prompts (figure 11).

Routing is synthetic unless a load is given: requests with preferences of their own, skewed and drifting
(`workload.synthetic`), the same steps for every policy. Nothing is fitted to the published ratios.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import atomic_path
from ..hardware.platform import load_platform
from ..schedule.decode import POLICIES, Decoded, Policy, Prefill, Setup, decode
from ..workload.model import load_model
from ..workload.replay import replay
from ..workload.synthetic import synthesize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..schedule.decode import Timing
    from ..schedule.gpu_memory import GpuMemory
    from ..workload.load import Load

PLATFORM = "b200-hbmpim"
#: Models and GPUs of Sieve figure 9.
SYSTEMS = (("qwen3-30b-a3b", 1), ("gpt-oss-120b", 4), ("qwen3.5-397b-a17b", 8))
BATCHES = (8, 16, 32, 64, 128, 256, 512)
_STEPS, _RECORDED = 4, 2

_STYLES = {
    "no_exp": ("NoExp", "#8c959f", "s"),
    "all_exp": ("AllExp", "#bf8700", "^"),
    "pimoe": ("PIMoE", "#8250df", "D"),
    "sieve": ("Sieve", "#0969da", "o"),
    "exact": ("proven optimum", "#1a7f37", "x"),
}


@dataclass(frozen=True)
class Point:
    """One policy at one batch size of one system; `prefill`: prompts in the batch."""

    model: str
    gpus: int
    policy: str
    layout: str
    timing: str
    context: int
    batch: int
    prefill: int
    tpot_s: float
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    comm_s: float
    gpu_s: float
    pim_s: float
    memory: GpuMemory


def synthetic_load(model: str, batch: int, seed: int = 0) -> Load:
    """Return decode steps of the first MoE layers of a model; they stand for all."""
    whole = load_model(model)
    shapes = dataclasses.replace(whole, moe_layers=whole.moe_layers[:_RECORDED])
    trace = synthesize(shapes, tokens=max(batch, 64) * _STEPS, seed=seed)
    return replay(trace, batch=batch, steps=_STEPS, seed=seed)


def sweep(
    setup: Setup,
    batches: Sequence[int],
    load: Callable[[int], Load],
    policies: Iterable[Policy] = POLICIES,
) -> Iterator[Point]:
    """Run every policy at every batch size on the same steps, `load(batch)`.

    Raises what `schedule.decode.decode` raises.
    """
    chosen = tuple(policies)
    for batch in batches:
        steps = load(batch)
        for policy in chosen:
            yield _point(setup, policy, decode(setup, steps, policy))


def _point(setup: Setup, policy: Policy, done: Decoded) -> Point:
    return Point(
        model=setup.model.name,
        gpus=setup.gpus,
        policy=policy.solver,
        layout=policy.layout,
        timing=setup.timing,
        context=setup.context,
        batch=done.batch,
        prefill=setup.prefill.requests,
        tpot_s=done.tpot_s,
        tokens_per_s_per_user=done.tokens_per_s_per_user,
        tokens_per_s_per_gpu=done.tokens_per_s_per_gpu,
        comm_s=done.parts["comm_s"],
        gpu_s=done.parts["gpu_s"],
        pim_s=done.parts["pim_s"],
        memory=done.memory,
    )


def figure_9(batches: Sequence[int] = BATCHES, timing: Timing = "estimate") -> list[Point]:
    """Return the points of Sieve figure 9: three systems, every batch size, every policy."""
    platform = load_platform(PLATFORM)
    points: list[Point] = []
    for name, gpus in SYSTEMS:
        setup = Setup(load_model(name), platform, gpus=gpus, timing=timing)
        fitting = [batch for batch in batches if batch % gpus == 0]
        points += sweep(setup, fitting, partial(synthetic_load, name))
    return points


def figure_11(batches: Sequence[int] = (16, 32, 64, 128), timing: Timing = "estimate") -> list[Point]:
    """Return the points of Sieve figure 11: Qwen3-30B on one GPU, two prompts of 1024 tokens and eight."""
    name, gpus = SYSTEMS[0]
    points: list[Point] = []
    for requests in (2, 8):
        setup = Setup(
            load_model(name),
            load_platform(PLATFORM),
            gpus=gpus,
            timing=timing,
            prefill=Prefill(requests, 1024),
        )
        points += sweep(setup, batches, partial(synthetic_load, name))
    return points


def ratio(points: Iterable[Point], policy: str, over: str) -> dict[tuple[str, int, int], float]:
    """Return how many times the throughput of `over` a policy has, by (model, batch, prompts)."""
    known = {(p.model, p.batch, p.prefill, p.policy): p.tpot_s for p in points}
    return {
        key[:3]: known[*key[:3], over] / tpot_s
        for key, tpot_s in known.items()
        if key[3] == policy and (*key[:3], over) in known
    }


def draw(points: Sequence[Point], path: Path) -> None:
    """Write interactivity against throughput per GPU as SVG, one panel a system; the same bytes always.

    Points that need more memory than the GPUs have are circled.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    systems = list(dict.fromkeys((p.model, p.gpus, p.prefill) for p in points))
    with mpl.rc_context({"svg.hashsalt": "moeplan", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(4.2 * len(systems), 3.8), layout="constrained")
        panels = figure.subplots(1, len(systems), squeeze=False)[0]
        for axes, (model, gpus, prefill) in zip(panels, systems, strict=True):
            for policy in dict.fromkeys(p.policy for p in points):
                mine = [
                    p
                    for p in points
                    if (p.model, p.gpus, p.prefill, p.policy) == (model, gpus, prefill, policy)
                ]
                label, colour, marker = _STYLES.get(policy, (policy, "#57606a", "v"))
                axes.plot(
                    [p.tokens_per_s_per_user for p in mine],
                    [p.tokens_per_s_per_gpu for p in mine],
                    color=colour, marker=marker, markersize=4, linewidth=1.2, label=label,
                )  # fmt: skip
                unfit = [p for p in mine if not p.memory.fits]
                if unfit:
                    _circle(axes, unfit, colour)
            many = f"{gpus} GPU{'s' if gpus > 1 else ''}"
            axes.set_title(f"{model}, {many}{f', {prefill} prompts' if prefill else ''}", fontsize=10)
            axes.set_xlabel("tokens/s per user")
            axes.grid(color="#d0d7de", linewidth=0.5)
        panels[0].set_ylabel("tokens/s per GPU")
        if not all(p.memory.fits for p in points):
            _circle(panels[0], [], "#57606a", "circled: more than the memory")
        panels[0].legend(frameon=False, fontsize=8)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _circle(axes: Axes, points: Sequence[Point], colour: str, label: str | None = None) -> None:
    axes.plot(
        [p.tokens_per_s_per_user for p in points],
        [p.tokens_per_s_per_gpu for p in points],
        linestyle="none", marker="o", markersize=9, markerfacecolor="none", color=colour, label=label,
    )  # fmt: skip
