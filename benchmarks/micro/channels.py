"""Rates of the channel annealing: proposed moves a second, and what an increment saves."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.platform import load_platform
from ...placement.channels.problem import ChannelProblem, Decision, channel_problem
from ...placement.result import Budget
from ...placement.solve import solve
from ...workload.model import load_model
from ...workload.replay import replay
from ...workload.synthetic import synthesize

if TYPE_CHECKING:
    from ...workload.load import Load

_RUNS = 5
_MOVES = 200_000
_PROFILE_ONLY = {"resample": 0}


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield what, figure, and what it was measured on."""
    yield from _annealing_rates()
    yield _evaluation_ratio()


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
            result = solve(problem, "annealing", budget=budget, seed=run, start=start, options=_PROFILE_ONLY)
            rates.append(result.iterations / (time.process_time() - begun))
        yield f"proposed moves, {name}", f"{statistics.median(rates[1:]) / 1e6:.2f} M/s", where


def _evaluation_ratio() -> tuple[str, str, str]:
    """How many moves a full evaluation is worth."""
    posed = _instance()
    decision = solve(posed, "lpt").decision
    assert decision is not None
    full_s = statistics.median(_timed(posed, decision) for _ in range(50))
    budget = Budget(time_s=None, iterations=_MOVES)
    result = solve(posed, "annealing", budget=budget, start=decision, options=_PROFILE_ONLY)
    ratio = full_s / (result.elapsed_s / result.iterations)
    return "full evaluation / proposed move", f"{ratio:.0f} x", "J_dram + J_noc, same instance"


def _timed(problem: ChannelProblem, decision: Decision) -> float:
    begun = time.perf_counter()
    problem.evaluate(decision)
    return time.perf_counter() - begun


def _instance() -> ChannelProblem:
    model = load_model("deepseek-v2-lite")
    trace = synthesize(model, tokens=4096, seed=0)
    load: Load = replay(trace, batch=32, steps=64, seed=0)
    layer = int(np.array(load.layers)[0])
    return channel_problem(model, load_platform("spimoe-4x8"), load, layer)
