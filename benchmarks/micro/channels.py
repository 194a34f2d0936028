"""Rates of the channel annealing: proposed moves a second, and what an increment saves."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hardware.platform import load_platform
from ...placement.channels.kernels import empty_state, evaluate_steps
from ...placement.channels.problem import ChannelProblem, Decision, Settings, channel_problem
from ...placement.result import Budget
from ...placement.search.random import seeded
from ...placement.solve import solve
from ...workload.model import load_model
from ...workload.replay import replay
from ...workload.synthetic import synthesize

if TYPE_CHECKING:
    from ...workload.load import Load

_RUNS = 5
_MOVES = 200_000
_UPDATES = 5_000


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield what, figure, and what it was measured on."""
    yield from _annealing_rates()
    yield _evaluation_ratio()
    yield from _update_ratios()


def _annealing_rates() -> Iterator[tuple[str, str, str]]:
    """Proposed moves a second at 64 experts, 32 sites, 64 steps: J_dram alone, then all of J."""
    posed = _instance()
    dram_only = dataclasses.replace(posed, tables=posed.tables._replace(noc=False))
    where = "64 experts, 32 sites, 64 steps, batch 32, from LPT, whole cooling"
    for name, problem in (("J_dram", dram_only), ("J_dram + J_noc", posed)):
        start = solve(problem, "lpt").decision
        rates = []
        for run in range(_RUNS + 1):
            budget = Budget(time_s=None, iterations=_MOVES)
            begun = time.process_time()  # what one core spent, whatever else the machine does
            result = solve(problem, "annealing", budget=budget, seed=run, start=start)
            rates.append(result.iterations / (time.process_time() - begun))
        yield f"proposed moves, {name}", f"{statistics.median(rates[1:]) / 1e6:.2f} M/s", where


def _evaluation_ratio() -> tuple[str, str, str]:
    """How many moves a full evaluation is worth."""
    posed = _instance()
    decision = solve(posed, "lpt").decision
    assert decision is not None
    full_s = statistics.median(_timed(posed, decision) for _ in range(50))
    budget = Budget(time_s=None, iterations=_MOVES)
    result = solve(posed, "annealing", budget=budget, start=decision)
    ratio = full_s / (result.elapsed_s / result.iterations)
    return "full evaluation / proposed move", f"{ratio:.0f} x", "J_dram + J_noc, same instance"


def _update_ratios() -> Iterator[tuple[str, str, str]]:
    """How many incremental updates of J_noc a full evaluation is worth: small and large layer.

    An update brings J_noc up to date after a proposed move or its reverse, whether or not J_dram would have
    let it through. Both are timed inside compiled code, on the same placement.
    """
    from .channels_kernel import fills, updates

    for posed, where in (
        (_instance(), "64 experts, 64 steps, batch 32"),
        (_instance("qwen3-30b-a3b"), "128 experts, 64 steps, batch 32"),
    ):
        decision = solve(posed, "lpt").decision
        assert decision is not None
        tables, ratios = posed.tables, []
        for run in range(_RUNS + 1):
            state = evaluate_steps(tables, decision.group_of)
            empty = [empty_state(tables) for _ in range(20)]
            begun = time.perf_counter()
            for each in empty:
                fills(tables, each, decision.group_of)
            full_s = (time.perf_counter() - begun) / len(empty)
            begun = time.perf_counter()
            done = updates(tables, state, seeded(run), _UPDATES)
            ratios.append(full_s / ((time.perf_counter() - begun) / done))
        ratio = statistics.median(ratios[1:])
        yield "full evaluation / incremental update of J_noc", f"{ratio:.0f} x", where


def _timed(problem: ChannelProblem, decision: Decision) -> float:
    begun = time.perf_counter()
    problem.evaluate(decision)
    return time.perf_counter() - begun


def _instance(name: str = "deepseek-v2-lite") -> ChannelProblem:
    whole = load_model(name)
    model = dataclasses.replace(whole, moe_layers=whole.moe_layers[:1])
    trace = synthesize(model, tokens=4096, seed=0)
    load: Load = replay(trace, batch=32, steps=64, seed=0)
    recorded_only = Settings(resample=0)
    return channel_problem(whole, load_platform("spimoe-4x8"), load, load.layers[0], settings=recorded_only)
