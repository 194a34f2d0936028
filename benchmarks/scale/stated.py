"""Sizes that planning is promised to finish in stated minutes, and what a second worker is worth.

`python -m moeplan.benchmarks.scale.stated NAME JOBS LAYERS` runs one of them in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from ...common.errors import UsageError, did_you_mean
from ...common.memory import peak_bytes
from .jobs import load_of, model_of, pim_machine
from .point import Point

#: Layers that the worth of a second worker is measured on.
SPEEDUP_LAYERS: Final = 8
_LIMIT_S: Final = 3600.0
_SEED: Final = 0


@dataclass(frozen=True)
class Stated:
    """A size and its promised minutes: `point` as in a study; for replicas `steps` are windows of counts."""

    name: str
    point: Point
    slots: int
    minutes: float

    @property
    def title(self) -> str:
        """The size for people."""
        p = self.point
        base = f"{p.layers} layers x {p.experts} experts"
        if p.family == "replicas":
            return f"{base} x {self.slots} slots on {p.sites} ranks, {p.steps} windows"
        sites = "channels" if p.family == "channels" else "cores"
        return f"{base} x {p.sites} {sites}, {p.steps} steps of {p.batch}"


#: With the default budget of a plan, as many jobs as cores, on two cores.
STATED: Final = (
    Stated("replicas", Point("replicas", "sites", 384, 61, 32, 64, 64, 8), 448, 5.0),
    Stated("channels", Point("channels", "sites", 512, 60, 128, 64, 64, 8), 0, 15.0),
    Stated("cores", Point("cores", "sites", 512, 60, 20, 64, 64, 8), 0, 5.0),
)


@dataclass(frozen=True)
class Run:
    """One plan of a stated size: seconds by the wall clock and of the processor, and its largest memory."""

    elapsed_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Kept:
    """A stated size as measured.

    `whole`: all layers with two jobs. `speedup`: elapsed time of some layers with one job over that with two,
    the same work in both. `waiting`: runnable processes a core before the runs, this one aside: above 0 the
    machine was not calm, and wall clocks say little.
    """

    stated: Stated
    whole: Run
    speedup: float
    waiting: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.stated.name, "size": self.stated.title, "stated_minutes": self.stated.minutes,
            "kept": self.whole.elapsed_s <= 60.0 * self.stated.minutes,
            **asdict(self.whole), "speedup": self.speedup, "waiting": self.waiting,
        }  # fmt: skip


def measure(on_size: Callable[[Kept], None], sizes: Sequence[Stated] = STATED) -> list[Kept]:
    """Plan every stated size in processes of its own."""
    kept = []
    for stated in sizes:
        waiting = _waiting()
        whole = _call(stated.name, 2, stated.point.layers, fixed=False)
        one, two = (_call(stated.name, jobs, SPEEDUP_LAYERS, fixed=True) for jobs in (1, 2))
        kept.append(Kept(stated, whole, one.elapsed_s / two.elapsed_s, waiting))
        on_size(kept[-1])
    return kept


def plan(stated: Stated, jobs: int, layers: int, *, fixed: bool) -> None:
    """Plan so many layers: with the default budget, or with a fixed number of moves."""
    from ...placement.planning import Search
    from ...placement.result import Budget

    point = replace(stated.point, layers=layers)
    budget = Budget(time_s=None, iterations=20 * 100 * point.experts) if fixed else Budget(time_s=2.0)
    search = Search(solver="annealing" if fixed else "auto", budget=budget, seed=_SEED)
    _PLANS[point.family](point, stated.slots, search, jobs)


def _replicas(point: Point, slots: int, search: Any, jobs: int) -> None:
    from ...placement.replicas.planning import plan_replicas
    from ...placement.replicas.ranks import Ranks
    from ...placement.replicas.traffic import problems_of

    counts = load_of(point).counts().astype(np.float64)
    ranks = Ranks(max(1, point.sites // 8), (slots // point.sites,) * point.sites)
    plan_replicas(problems_of(counts, None, range(point.layers), ranks), search=search, jobs=jobs)


def _channels(point: Point, _: int, search: Any, jobs: int) -> None:
    from ...placement.channels.planning import plan_channels

    plan_channels(model_of(point), pim_machine(point), load_of(point), search=search, jobs=jobs)


def _cores(point: Point, _: int, search: Any, jobs: int) -> None:
    from ...hardware.platform import load_platform
    from ...placement.cores.planning import plan_cores

    machine = load_platform("rexpert-die")
    plan_cores(model_of(point), machine, load_of(point), search=search, jobs=jobs)


_PLANS: Final = {"replicas": _replicas, "channels": _channels, "cores": _cores}


def _call(name: str, jobs: int, layers: int, *, fixed: bool) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", __name__, name, str(jobs), str(layers), str(int(fixed))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_LIMIT_S,
    )
    return Run(**json.loads(done.stdout.strip().splitlines()[-1]))


def _waiting() -> float:
    import os

    from joblib import cpu_count

    return os.getloadavg()[0] / int(cpu_count())


def main(arguments: list[str]) -> None:
    """Run what the arguments describe, and print what it took."""
    name, jobs, layers, fixed = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3] == "1"
    known = {stated.name: stated for stated in STATED}
    if name not in known:
        raise UsageError(f"unknown size {name!r}", fix=did_you_mean(name, known))
    stated = known[name]
    plan(
        replace(stated, point=replace(stated.point, steps=4, batch=8)), 1, 1, fixed=fixed
    )  # load the kernels
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    plan(stated, jobs, layers, fixed=fixed)
    taken = Run(time.perf_counter() - begun_s, time.process_time() - cpu_s, peak_bytes())
    print("\n" + json.dumps(asdict(taken)))


if __name__ == "__main__":
    main(sys.argv[1:])
