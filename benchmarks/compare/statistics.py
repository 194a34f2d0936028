"""What a grid of cells says: gaps, ranks on held-out traffic, performance profiles, and how sure that is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .best_known import BestKnown
    from .cell import Finished

OURS = "auto"
#: Two scores closer than this are the same: less than any trace can tell apart.
TIED = 1e-3
_RESAMPLES = 1000
#: Ratios to the best at which a performance profile is read.
PROFILE_AT = (1.0, 1.001, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)


@dataclass(frozen=True)
class Row:
    """A solver on an instance, over its seeds.

    `objective`, `total_s`, `held_out_s`, `elapsed_s`: means; `score_s` is the held-out mean where there is
    one, else the total. `gap`: (objective - bound) / objective against the strongest bound that anyone
    proved; `over_best`: objective over the best known, less one; `over_first`: score over the smallest score
    of the instance, less one. Objectives are seconds, but of rings, which rank by several measures at once.
    """

    instance: str
    solver: str
    seeds: int
    objective: float
    total_s: float
    held_out_s: float | None
    score_s: float
    bound_s: float
    gap: float
    over_best: float
    over_first: float
    elapsed_s: float


@dataclass(frozen=True)
class Standing:
    """A solver over the instances of a family: geometric mean of score over the instance's best score.

    `low`, `high`: 95 % bootstrap interval over seeds. `instances`: how many it has scores on.
    """

    family: str
    solver: str
    instances: int
    ratio: float
    low: float
    high: float


def rows(cells: Sequence[Finished], known: Mapping[str, BestKnown]) -> list[Row]:
    """Return one row for every solver that has a score on an instance, best score first in each instance."""
    found: list[Row] = []
    for instance, of_instance in _by_instance(cells).items():
        bound_s = max(_bound(cell) for many in of_instance.values() for cell in many)
        best_s = min(_objective(cell) for many in of_instance.values() for cell in many)
        entry = known.get(instance)
        if entry is not None and entry.problem == next(iter(of_instance.values()))[0].outcome.problem:
            bound_s, best_s = max(bound_s, entry.bound_s), min(best_s, entry.objective_s)
        first_s = min(_mean(_score(cell) for cell in many) for many in of_instance.values())
        rows_here = [_row(instance, many, bound_s, best_s, first_s) for many in of_instance.values()]
        found += sorted(rows_here, key=lambda row: (row.score_s, row.solver))
    return found


def standings(cells: Sequence[Finished], seed: int = 0) -> list[Standing]:
    """Return every solver's standing in its family, best first. Solvers with fewer instances come last."""
    by_instance = _by_instance(cells)
    rng = np.random.default_rng(seed)
    families: dict[str, list[str]] = defaultdict(list)
    for instance in by_instance:
        families[instance.partition("/")[0]].append(instance)
    found = []
    for family, names in families.items():
        for solver in dict.fromkeys(s for name in names for s in by_instance[name]):
            there = [name for name in names if solver in by_instance[name]]
            scores = [np.array([_score(c) for c in by_instance[name][solver]]) for name in there]
            best = [_best_score(by_instance[name]) for name in there]
            low, high = _interval(scores, best, rng)
            found.append(Standing(family, solver, len(there), _geometric(scores, best), low, high))
    most = {family: len(names) for family, names in families.items()}
    order = list(families)
    return sorted(
        found, key=lambda s: (order.index(s.family), s.instances < most[s.family], s.ratio, s.solver)
    )


def profiles(cells: Sequence[Finished]) -> dict[str, dict[str, list[float]]]:
    """Return, by family and solver, the share of instances on which its score is within each of PROFILE_AT.

    A performance profile (Dolan and Moré 2002, doi 10.1007/s101070100263); an instance without a score of the
    solver counts as never within.
    """
    by_instance = _by_instance(cells)
    found: dict[str, dict[str, list[float]]] = {}
    for family in dict.fromkeys(name.partition("/")[0] for name in by_instance):
        names = [name for name in by_instance if name.partition("/")[0] == family]
        solvers = dict.fromkeys(s for name in names for s in by_instance[name])
        ratios = {s: [_ratio(by_instance[name], s) for name in names] for s in solvers}
        found[family] = {
            s: [sum(r <= at * (1 + 1e-9) for r in many) / len(names) for at in PROFILE_AT]
            for s, many in ratios.items()
        }
    return found


def shown(instance: str, score: float, *, mu: bool = False) -> str:
    """Write a score of an instance with its unit: microseconds, or tokens of replicas without a model."""
    if instance.startswith("replicas/"):
        return f"{score:,.0f} tokens"
    return f"{score * 1e6:,.2f} {'µs' if mu else 'us'}"


def behind(ranked: Sequence[Row], solver: str = OURS) -> list[str]:
    """Say on which instances `solver` is neither first nor tied on the score, and by how much."""
    return [
        f"{row.instance}: {solver} is {row.over_first:.2%} behind"
        for row in ranked
        if row.solver == solver and row.over_first > TIED
    ]


def _by_instance(cells: Sequence[Finished]) -> dict[str, dict[str, list[Finished]]]:
    found: dict[str, dict[str, list[Finished]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.outcome.status == "ok":
            found[cell.cell.instance][cell.cell.solver].append(cell)
    return {instance: dict(solvers) for instance, solvers in found.items()}


def _row(instance: str, many: Sequence[Finished], bound_s: float, best_s: float, first_s: float) -> Row:
    held_out = [c.outcome.held_out_s for c in many if c.outcome.held_out_s is not None]
    objective, score_s = _mean(map(_objective, many)), _mean(map(_score, many))
    return Row(
        instance=instance,
        solver=many[0].cell.solver,
        seeds=len(many),
        objective=objective,
        total_s=_mean(map(_total, many)),
        held_out_s=_mean(held_out) if held_out else None,
        score_s=score_s,
        bound_s=bound_s,
        gap=max(0.0, 1.0 - bound_s / objective) if objective else 0.0,
        over_best=objective / best_s - 1.0 if best_s else 0.0,
        over_first=score_s / first_s - 1.0 if first_s else 0.0,
        elapsed_s=_mean(cell.outcome.elapsed_s for cell in many),
    )


def _objective(cell: Finished) -> float:
    value = cell.outcome.objective_s
    assert value is not None
    return value


def _total(cell: Finished) -> float:
    value = cell.outcome.total_s
    assert value is not None
    return value


def _bound(cell: Finished) -> float:
    return cell.outcome.bound_s or 0.0


def _score(cell: Finished) -> float:
    held_out = cell.outcome.held_out_s
    return _total(cell) if held_out is None else held_out


def _best_score(solvers: Mapping[str, Sequence[Finished]]) -> float:
    return min(_mean(map(_score, many)) for many in solvers.values())


def _ratio(solvers: Mapping[str, Sequence[Finished]], solver: str) -> float:
    if solver not in solvers:
        return math.inf
    best = _best_score(solvers)
    return _mean(map(_score, solvers[solver])) / best if best else 1.0


def _geometric(scores: Sequence[NDArray[np.float64]], best: Sequence[float]) -> float:
    logs = [math.log(many.mean() / at) if at else 0.0 for many, at in zip(scores, best, strict=True)]
    return math.exp(math.fsum(logs) / len(logs))


def _interval(
    scores: Sequence[NDArray[np.float64]], best: Sequence[float], rng: np.random.Generator
) -> tuple[float, float]:
    """Percentiles over resampled seeds; the best scores stay fixed (they are what is compared with)."""
    drawn = [
        _geometric([many[rng.integers(len(many), size=len(many))] for many in scores], best)
        for _ in range(_RESAMPLES if any(len(many) > 1 for many in scores) else 1)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return math.fsum(every) / len(every)
