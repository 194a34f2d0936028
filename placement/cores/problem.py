"""The question of the `cores` family: the core of every expert of one MoE layer.

A decode step takes as many rounds as its busiest core needs for the jobs of its experts, rounded up
(ReXpert sections III-A and IV-C); a round is one pass over a resident shard. The objective is the mean step
time, over the recorded steps and as many bootstrapped ones as asked for, plus `risk` standard deviations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import BadInput, UsageError
from ...common.files import fingerprint
from ..problem import Bound, Cost
from .rounds import Cascade, cascade, check_width, jobs_of, least_rounds, queued

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...workload.load import Load
    from ...workload.model import MoEModel
    from ..control import Control
    from .layout import Layout, Mode

_LARGEST_RESAMPLE = 100


@dataclass(frozen=True)
class Settings:
    """What may be chosen about the question itself.

    `mode`: whether idle groups take jobs of their core's other units (`broadcast`), or every unit works off
    its own queue (`direct`). `width`: tokens of a job (None: the tile's). `side`: of a core (None: the
    platform's). `risk`: standard deviations over steps added to the mean. `resample`: bootstrapped steps per
    recorded one that the objective also counts, so that a placement is not fitted to the chance of who met
    whom; `resample_seed` draws them.
    """

    mode: Mode = "broadcast"
    width: int | None = None
    side: int | None = None
    risk: float = 0.0
    resample: int = 7
    resample_seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in ("direct", "broadcast"):
            raise UsageError(f"unknown mode {self.mode!r}", allowed="direct, broadcast")
        if self.width is not None:
            check_width(self.width)
        if not 0.0 <= self.risk < float("inf"):
            raise UsageError(
                f"risk must be at least 0 standard deviations, not {self.risk!r}", fix="for example 1.0"
            )
        if not isinstance(self.resample, int) or not 0 <= self.resample <= _LARGEST_RESAMPLE:
            raise UsageError(
                f"resample {self.resample!r} is not possible",
                allowed=f"a whole number from 0 to {_LARGEST_RESAMPLE}",
            )
        if not isinstance(self.resample_seed, int) or self.resample_seed < 0:
            raise UsageError(f"resample_seed must be at least 0, not {self.resample_seed!r}")


@dataclass(frozen=True, eq=False)
class Decision:
    """Place of every expert: `place_of` [E], int32 ids of cores, or of units where nothing is pooled.

    Unit u of core c has the id c * G + u.
    """

    place_of: NDArray[np.int32]

    def __post_init__(self) -> None:
        fixed = np.array(self.place_of, dtype=np.int32)
        fixed.flags.writeable = False
        object.__setattr__(self, "place_of", fixed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and np.array_equal(self.place_of, other.place_of)

    def __hash__(self) -> int:
        return hash(self.place_of.tobytes())


@dataclass(frozen=True, eq=False)
class CoreProblem:
    """One MoE layer on one load. Build it with `core_problem`.

    `jobs` [S', E] are those of the S recorded steps, followed by the bootstrapped ones.
    """

    layer: int
    layout: Layout
    tokens: NDArray[np.int16]  # [S, B, K] logical experts of every slot's token; -1: dropped by the router
    counts: NDArray[np.int32]  # [S, E] tokens of every expert in the recorded steps
    jobs: NDArray[np.int32]
    risk: float
    fingerprint: str
    held_out: CoreProblem | None = None
    family: str = "cores"
    baselines: tuple[str, ...] = ("coactivation", "lpt", "contiguous")

    @property
    def experts(self) -> int:
        """Number of routed experts."""
        return int(self.counts.shape[1])

    @property
    def steps(self) -> int:
        """Recorded steps."""
        return int(self.counts.shape[0])

    def rounds(self, decision: Decision) -> NDArray[np.int32]:
        """Rounds of every recorded step, `[S]`."""
        return self.all_rounds(decision)[: self.steps]

    def evaluate(self, decision: Decision) -> Cost:
        """Mean time of the recorded steps, and the objective over all.

        `busy_s` is the time that the jobs would take if every group always had one, `wait_s` the rest. Of
        equal objectives the one is better whose busiest place has fewer jobs: steps that nobody has seen need
        another round the later.
        """
        largest, round_s = self._largest(decision), self.layout.round_s
        rounds = -(-largest // self.layout.servers)
        total_s = float(rounds[: self.steps].mean()) * round_s
        busy_s = float(self.jobs[: self.steps].sum(axis=1).mean()) / self.layout.units * round_s
        objective_s = float(rounds.mean() + self.risk * rounds.std()) if self.risk else float(rounds.mean())
        return Cost(
            total_s=total_s,
            objective_s=objective_s * round_s,
            parts={"busy_s": busy_s, "wait_s": total_s - busy_s},
            tie=float(largest.mean()),
        )

    def cascade(self, decision: Decision) -> Cascade:
        """Equation 2 of ReXpert on the recorded steps."""
        layout = self.layout
        return cascade(self.counts, self.rounds(decision), layout.units, layout.width, layout.cap)

    def lower_bound(self) -> Bound:
        """Jobs over all groups, the largest expert, and experts that must share a place, of every step."""
        return Bound(
            float(self.least.mean()) * self.layout.round_s,
            "all jobs over all groups, largest and shared experts per step",
        )

    @cached_property
    def least(self) -> NDArray[np.int32]:
        """Rounds `[S']` below which no placement gets a step."""
        # Every solve of a layer asks for it, the baselines too.
        return least_rounds(self.jobs, self.layout.places, self.layout.servers)

    def check(self, decision: Decision) -> str | None:
        """Every expert has a place, and no place holds more than it has room for."""
        place_of, places = decision.place_of, self.layout.places
        if place_of.shape != (self.experts,):
            return f"{len(place_of)} experts are placed, the layer has {self.experts}"
        if place_of.min() < 0 or place_of.max() >= places:
            expert = int(np.flatnonzero((place_of < 0) | (place_of >= places))[0])
            return f"expert {expert} is on {self.what} {place_of[expert]}, allowed are 0..{places - 1}"
        held = np.bincount(place_of, minlength=places)
        fullest = int(held.argmax())
        if held[fullest] > self.layout.room:
            return (
                f"{self.what} {fullest} would hold {held[fullest]} experts of layer {self.layer}, "
                f"it has room for {self.layout.room}"
            )
        return None

    def infeasible(self) -> str | None:
        """All experts do not fit."""
        room = self.layout.places * self.layout.room
        if self.experts > room:
            return f"{self.experts} experts do not fit on {self.layout.places} {self.what}s for {room}"
        return None

    @property
    def what(self) -> str:
        """What a place is, for people."""
        return "core" if self.layout.mode == "broadcast" else "unit"

    def core_of(self, decision: Decision) -> NDArray[np.int32]:
        """Core of every expert, `[E]`."""
        if self.layout.mode == "broadcast":
            return decision.place_of
        cores: NDArray[np.int32] = decision.place_of // self.layout.groups
        return cores

    def load(self, decision: Decision) -> NDArray[np.float64]:
        """Mean jobs of every core in a recorded step, `[N]`."""
        at = queued(self.jobs[: self.steps], self.core_of(decision), self.layout.cores)
        mean: NDArray[np.float64] = at.mean(axis=0)
        return mean

    def all_rounds(self, decision: Decision) -> NDArray[np.int32]:
        """Rounds of every step, the bootstrapped ones last, `[S']`."""
        rounds: NDArray[np.int32] = -(-self._largest(decision) // self.layout.servers)
        return rounds

    def _largest(self, decision: Decision) -> NDArray[np.int32]:
        """Jobs of the busiest place in every step, the bootstrapped ones last, `[S']`."""
        largest: NDArray[np.int32] = queued(self.jobs, decision.place_of, self.layout.places).max(axis=1)
        return largest


def problem_of(control: Control[Decision]) -> CoreProblem:
    """The problem under solution, as what it is for solvers of this family."""
    problem = control.problem
    assert isinstance(problem, CoreProblem)
    return problem


def core_problem(
    model: MoEModel,
    layout: Layout,
    load: Load,
    layer: int,
    *,
    held_out: Load | None = None,
    settings: Settings | None = None,
) -> CoreProblem:
    """Pose the question for one MoE layer (absolute id) of a model on the die of `layout`.

    Raises BadInput where model and load do not belong together.
    """
    settings = settings or Settings()

    def pose(part: Load, beside: CoreProblem | None, resample: int) -> CoreProblem:
        _check(model, part, layer)
        tokens = np.ascontiguousarray(part.experts[:, :, part.layers.index(layer), :])
        key = fingerprint(part.fingerprint, model.fingerprint, vars(layout), layer, vars(settings), resample)
        seed = settings.resample_seed
        return pose_core_problem(
            tokens, model.experts, layout, layer=layer, risk=settings.risk, resample=resample,
            seed=seed, key=key, held_out=beside,
        )  # fmt: skip

    return pose(load, pose(held_out, None, 0) if held_out is not None else None, settings.resample)


def pose_core_problem(
    tokens: NDArray[np.int16],
    experts: int,
    layout: Layout,
    *,
    layer: int = 0,
    risk: float = 0.0,
    resample: int = 0,
    seed: int = 0,
    key: str = "",
    held_out: CoreProblem | None = None,
) -> CoreProblem:
    """Pose the question on routed tokens `[S, B, K]` of one layer; see `Settings` for the rest."""
    counts = _counts(tokens, experts)
    drawn = _counts(bootstrap(tokens, resample, seed), experts)
    jobs = jobs_of(np.concatenate([counts, drawn]), layout.width)
    for array in (counts, jobs):
        array.flags.writeable = False
    return CoreProblem(layer, layout, tokens, counts, jobs, risk, key, held_out)


def bootstrap(tokens: NDArray[np.int16], times: int, seed: int) -> NDArray[np.int16]:
    """Draw `times` as many steps `[times * S, B, K]` as recorded, from the batch slots of `tokens` [S, B, K].

    A drawn batch takes slots with replacement and starts each at a random step: consecutive tokens of a
    request stay together, as in the moving-block bootstrap for dependent data (Kuensch 1989, doi
    10.1214/aos/1176347265), and so do the experts that a token chose.
    """
    steps, batch, _ = tokens.shape
    rng = np.random.default_rng(seed)
    parts = [tokens[:0]]
    for _ in range(times):
        when = (np.arange(steps)[:, None] + rng.integers(steps, size=batch)) % steps
        parts.append(tokens[when, rng.integers(batch, size=batch)])
    return np.concatenate(parts)


def _counts(tokens: NDArray[np.int16], experts: int) -> NDArray[np.int32]:
    """Tokens of every expert in every step, `[S, E]`; a choice of -1 is in none."""
    steps = len(tokens)
    flat = tokens.reshape(steps, math.prod(tokens.shape[1:])).astype(np.int64)
    key = np.where(flat >= 0, flat, experts) + np.arange(steps)[:, None] * (experts + 1)
    counts = np.bincount(key.ravel(), minlength=steps * (experts + 1))
    return np.ascontiguousarray(counts.reshape(steps, experts + 1)[:, :experts], dtype=np.int32)


def _check(model: MoEModel, part: Load, layer: int) -> None:
    if part.num_experts != model.experts:
        raise BadInput(
            f"the trace has {part.num_experts} experts a layer, {model.name} has {model.experts}",
            fix=f"take a trace of {model.name}, or name the model of the trace ({part.model})",
        )
    if layer not in part.layers:
        raise BadInput(
            f"layer {layer} is not in the trace", allowed=f"layers {part.layers[0]}..{part.layers[-1]}"
        )
