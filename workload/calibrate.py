"""Fit synthetic routing to published moments.

The loss is the mean cube of the misses, each in units of its tolerance, so that a missed target matters more
than several that are met with room to spare: a non-linear least-squares problem in a handful of parameters.
A seeded coarse search over their ranges finds where to start; damped Gauss-Newton steps (Levenberg 1944,
Marquardt 1963) with secant updates of the Jacobian (Broyden 1965) end it. All draws of a fit share their
random numbers, so that two parameter sets differ by the parameters alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import UsageError, did_you_mean
from .model import MoEModel
from .moments import Target, measure
from .synthetic import SyntheticRouting

#: Ranges that parameters are searched in.
RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "skew": (0.1, 2.0),
        "skew_spread": (0.0, 0.8),
        "head": (0.4, 2.5),
        "ceiling": (0.8, 4.0),
        "cold_tail": (0.0, 0.6),
        "cold_depth": (0.0, 5.0),
        "cold_spread": (0.0, 1.5),
        "drift": (0.0, 1.2),
        "drift_memory": (0.0, 0.99),
        "persistence": (0.0, 2.0),
        "coactivation": (0.0, 5.0),
    }
)
#: Where a fit starts, and what is kept of parameters that are not free.
START: Final = SyntheticRouting(
    skew=0.9,
    skew_spread=0.15,
    head=1.4,
    ceiling=2.0,
    cold_tail=0.1,
    cold_depth=1.5,
    cold_spread=0.4,
    drift=0.5,
    drift_memory=0.95,
    persistence=1.3,
    coactivation=3.5,
    group_size=16,
    even=True,
    sampler="draws",
)
_STEP: Final = 0.04  # of a parameter's range, for difference quotients: above the noise of one draw
_COARSE: Final = 0.15  # of a parameter's range: how far the coarse search strays
_POWER: Final = 1.5  # of a miss, so that its square is the cube
_PRIOR: Final = 0.1  # weight of the distance from the start, for directions that no moment sees


@dataclass(frozen=True)
class Comparison:
    """A target, its moment with the fitted parameters in several draws, and whether all of these meet it."""

    target: Target
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the draws."""
        return float(np.mean(self.values))

    @property
    def miss(self) -> float:
        """Relative miss of the mean, with its sign."""
        return self.mean / self.target.value - 1.0

    @property
    def worst(self) -> float:
        """The largest relative miss of any draw, without sign."""
        return max(abs(value / self.target.value - 1.0) for value in self.values)

    @property
    def met(self) -> bool:
        """Whether every draw lies within the tolerance."""
        return self.worst <= self.target.tolerance

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "moment": self.target.name,
            "batch": self.target.batch,
            "tokens": self.target.tokens,
            "target": self.target.value,
            "tolerance": self.target.tolerance,
            "fitted": self.mean,
            "values": list(self.values),
            "miss": self.miss,
            "worst": self.worst,
            "met": self.met,
            "source": self.target.source,
        }


@dataclass(frozen=True)
class Calibration:
    """The outcome of a fit.

    `loss`: mean cube of the misses in units of the tolerances, on the seeds of the fit; `evaluations`:
    parameter sets that were tried; `fit_seeds`, and the `check_seeds` of `comparisons`, are disjoint.
    """

    routing: SyntheticRouting
    loss: float
    evaluations: int
    fit_seeds: tuple[int, ...]
    check_seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]


def calibrate(
    model: MoEModel,
    targets: Sequence[Target],
    *,
    steps: int = 64,
    evaluations: int = 150,
    seed: int = 0,
    start: SyntheticRouting = START,
    free: Sequence[str] = tuple(RANGES),
    draws: int = 1,
    checks: int = 3,
    on_progress: Callable[[int, float], None] = lambda done, loss: None,
) -> Calibration:
    """Fit the parameters `free` to `targets` in `evaluations` trials, and measure the result on other seeds.

    Every trial is drawn with the `draws` seeds from `seed` on; the comparisons use the `checks` seeds
    thereafter. `on_progress` is told the trials so far and the lowest loss. Raises UsageError on no
    targets, an unknown parameter, one that starts outside its range, or fewer than one trial, draw or check.
    """
    _check_request(
        targets, start, free, {"evaluations": evaluations, "draws": draws, "checks": checks, "steps": steps}
    )
    fit_seeds = tuple(range(seed, seed + draws))
    check_seeds = tuple(range(seed + draws, seed + draws + checks))
    low, high = np.array([RANGES[name] for name in free]).T
    origin = (np.array([getattr(start, name) for name in free]) - low) / (high - low)

    def routing_at(point: NDArray[np.float64]) -> SyntheticRouting:
        values = np.round(low + point * (high - low), 4).tolist()  # as files hold them
        return replace(start, **dict(zip(free, values, strict=True)))

    def misses(point: NDArray[np.float64]) -> NDArray[np.float64]:
        routing = routing_at(point)
        drawn = [measure(model, routing, targets, steps=steps, seed=drawn) for drawn in fit_seeds]
        relative = np.mean(drawn, axis=0) / [target.value for target in targets] - 1.0
        missed = relative / [target.tolerance for target in targets]
        return np.concatenate([np.sign(missed) * np.abs(missed) ** _POWER, _PRIOR * (point - origin)])

    search = _Search(misses, len(targets), evaluations, np.random.default_rng([seed, 7]), on_progress)
    search.run(origin)
    routing = routing_at(search.best)
    return Calibration(
        routing=routing,
        loss=float(np.mean(search.best_misses[: len(targets)] ** 2)),
        evaluations=search.done,
        fit_seeds=fit_seeds,
        check_seeds=check_seeds,
        comparisons=compare(model, routing, targets, steps=steps, seeds=check_seeds),
    )


def compare(
    model: MoEModel,
    routing: SyntheticRouting,
    targets: Sequence[Target],
    *,
    steps: int = 64,
    seeds: Sequence[int],
) -> tuple[Comparison, ...]:
    """Measure the targets' moments in draws with these seeds."""
    drawn = [measure(model, routing, targets, steps=steps, seed=seed) for seed in seeds]
    return tuple(
        Comparison(target, values) for target, values in zip(targets, zip(*drawn, strict=True), strict=True)
    )


def _check_request(
    targets: Sequence[Target], start: SyntheticRouting, free: Sequence[str], counts: Mapping[str, int]
) -> None:
    if not targets:
        raise UsageError("there are no moments to fit to")
    if not free:
        raise UsageError("no parameter is free to be fitted", allowed=", ".join(RANGES))
    for name in free:
        if name not in RANGES:
            raise UsageError(f"{name!r} is no parameter that can be fitted", fix=did_you_mean(name, RANGES))
        low, high = RANGES[name]
        if not low <= getattr(start, name) <= high:
            raise UsageError(
                f"the fit cannot start from {name} {getattr(start, name):g}",
                allowed=f"{low:g} to {high:g}",
                fix="start from another routing, or keep this parameter as it is",
            )
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be at least 1, not {count}")


class _OutOfTrials(Exception):
    """The budget is spent."""


class _Search:
    """Least squares in the unit cube within a number of trials."""

    def __init__(
        self,
        misses: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        targets: int,
        trials: int,
        rng: np.random.Generator,
        on_progress: Callable[[int, float], None],
    ) -> None:
        self._misses, self._targets, self._trials, self._rng = misses, targets, trials, rng
        self._on_progress = on_progress
        self.done = 0
        self.best = np.empty(0)
        self.best_misses = np.full(targets, np.inf)

    def run(self, origin: NDArray[np.float64]) -> None:
        """Search from `origin` until the trials are spent or steps no longer help."""
        try:
            self._try(origin)
            for _ in range(self._trials // 8):
                self._try(np.clip(origin + _COARSE * self._rng.standard_normal(origin.size), 0.0, 1.0))
            self._descend()
        except _OutOfTrials:
            pass

    def _try(self, point: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.done >= self._trials:
            raise _OutOfTrials
        misses = self._misses(point)
        self.done += 1
        if misses @ misses < self.best_misses @ self.best_misses:
            self.best, self.best_misses = point, misses
        self._on_progress(self.done, float(np.mean(self.best_misses[: self._targets] ** 2)))
        return misses

    def _descend(self) -> None:
        """Descend until fresh slopes twice in a row lead nowhere."""
        idle = 0
        while idle < 2:
            before = self.best_misses
            self._follow(self._slopes())
            idle = 0 if self.best_misses is not before else idle + 1

    def _follow(self, slope: NDArray[np.float64]) -> None:
        """Damped steps with these slopes, corrected by what every step shows, until four in a row fail."""
        damping, failures = 0.1, 0
        while failures < 4:
            here, misses = self.best, self.best_misses
            point = np.clip(here + _damped_step(slope, misses, damping, here), 0.0, 1.0)
            move = point - here
            if np.abs(move).max() < 1e-4:
                return
            found = self._try(point)
            slope = slope + np.outer(found - misses - slope @ move, move) / (move @ move)
            better = found @ found < misses @ misses
            damping = max(damping / 3.0, 1e-4) if better else damping * 4.0
            failures = 0 if better else failures + 1

    def _slopes(self) -> NDArray[np.float64]:
        """Jacobian at the best point, by differences towards the inside of the cube."""
        here, misses = self.best.copy(), self.best_misses.copy()
        columns = []
        for axis in range(here.size):
            moved = here.copy()
            moved[axis] += _STEP if here[axis] < 0.5 else -_STEP
            columns.append((self._try(moved) - misses) / (moved[axis] - here[axis]))
        return np.stack(columns, axis=1)


def _damped_step(
    slope: NDArray[np.float64], misses: NDArray[np.float64], damping: float, here: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The Levenberg-Marquardt step; a parameter at a bound that it would cross is left where it is."""
    free = np.ones(here.size, dtype=np.bool_)
    step = np.zeros(here.size)
    for _ in range(here.size):
        part = slope[:, free]
        normal = part.T @ part
        step[:] = 0.0
        step[free] = -np.linalg.solve(
            normal + damping * np.eye(len(normal)) * max(np.diag(normal).mean(), 1e-9), part.T @ misses
        )
        crossing = free & (((here <= 0.0) & (step < 0.0)) | ((here >= 1.0) & (step > 0.0)))
        if not crossing.any() or crossing.sum() == free.sum():
            break
        free &= ~crossing
    return step
