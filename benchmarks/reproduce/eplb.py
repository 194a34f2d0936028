"""EPLB: balancedness and duplicates of the published algorithm on Zipf loads, beside the joint search.

The published side are runs of the published code on loads of the same law (58 or 61 layers, 8 million
choices each); ours are runs of the solver `eplb`, whose replica counts and sorted loads equal that code's
wherever the two have been compared. The loads are drawn anew, so that means over layers agree only as far as
draws do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...placement.replicas.planning import baseline
from ...placement.replicas.problem import Decision, Settings, replica_problem
from ...placement.replicas.ranks import even_ranks
from ...placement.result import Result
from ...placement.solve import solve
from ..replicas_table import zipf_loads
from .rows import Row

_SEED, _RANKS, _NODES = 17, 32, 4


@dataclass(frozen=True)
class _Case:
    """A setting, and what the published code gets there: mean balancedness, mean of max load over bound."""

    layers: int
    experts: int
    slots: int
    groups: int
    skew: float
    balancedness: float
    over_bound: float
    duplicates: int


_CASES = (
    _Case(58, 256, 288, 8, 0.5, 0.958, 1.002, 100),
    _Case(58, 256, 288, 8, 0.8, 0.833, 1.018, 173),
    _Case(58, 256, 288, 8, 1.0, 0.719, 1.086, 186),
    _Case(58, 256, 288, 8, 1.2, 0.512, 1.287, 201),
    _Case(58, 256, 288, 1, 0.5, 0.998, 1.002, 32),
    _Case(58, 256, 288, 1, 0.8, 0.999, 1.001, 58),
    _Case(58, 256, 288, 1, 1.0, 0.995, 1.005, 41),
    _Case(58, 256, 288, 1, 1.2, 0.981, 1.020, 115),
    _Case(61, 384, 416, 1, 1.0, 0.997, 1.004, 49),
    _Case(61, 384, 416, 1, 1.2, 0.988, 1.012, 120),
    _Case(61, 384, 448, 8, 0.8, 0.885, 1.001, 614),
    _Case(61, 384, 448, 8, 1.0, 0.772, 1.011, 850),
    _Case(61, 384, 448, 8, 1.2, 0.640, 1.055, 1085),
    _Case(61, 384, 384, 1, 0.3, 0.906, 1.103, 0),
    _Case(61, 384, 384, 1, 0.5, 0.749, 1.008, 0),
)


def collect() -> Iterator[Row]:
    """Yield the rows, setting by setting."""
    for case in _CASES:
        yield from _rows(case)
    for item, why in (
        ("balance 0.66 and 540 ms of the ADRS report", "its loads are not public"),
        ("throughput gains of serving engines", "need the engines, their models and GPUs"),
    ):
        yield Row("eplb", item, None, None, why)


def _rows(case: _Case) -> Iterator[Row]:
    ranks, settings = even_ranks(_NODES, _RANKS, case.slots), Settings(groups=case.groups)
    loads = zipf_loads(case.layers, case.experts, case.skew, _SEED)
    problems = [replica_problem(load, ranks, settings=settings) for load in loads]
    theirs = [_decision(baseline(problem, "eplb")) for problem in problems]
    results = [solve(problem, "auto") for problem in problems]
    ours = [_decision(result) for result in results]
    bounds = np.array([result.bound.value_s for result in results])

    def over_bound(decisions: list[Decision]) -> float:
        costs = [p.evaluate(d).objective_s for p, d in zip(problems, decisions, strict=True)]
        return float((np.array(costs) / bounds).mean())

    def balancedness(decisions: list[Decision]) -> float:
        return float(np.mean([p.balancedness(d) for p, d in zip(problems, decisions, strict=True)]))

    nodes = "4 nodes of 2 groups" if case.groups > 1 else "global"
    where = f"{case.layers} x {case.experts}, {case.slots} slots, {nodes}, Zipf {case.skew}"
    yield Row(
        "eplb", f"{where}: balancedness of EPLB", case.balancedness, balancedness(theirs),
        f"other draws of the same law; the joint search has {balancedness(ours):.3f}",
    )  # fmt: skip
    yield Row(
        "eplb", f"{where}: largest load of EPLB over its bound", case.over_bound, over_bound(theirs),
        f"our bound forbids duplicates; the joint search has {over_bound(ours):.4f}, and none",
    )  # fmt: skip
    repeated = sum(p.duplicates(d) for p, d in zip(problems, theirs, strict=True))
    yield Row(
        "eplb", f"{where}: duplicate replicas of EPLB", float(case.duplicates), float(repeated),
        "ties and draws decide which slots meet; the joint search has none",
    )  # fmt: skip


def _decision(result: Result[Decision]) -> Decision:
    assert result.decision is not None
    return result.decision
