"""Answers kept on disk: one small file for a question, a solver and a seed.

A file is written whole or not at all, so any number of processes may share a folder. What cannot be read, or
does not carry the checksum of its content, counts as not there and is written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import BadInput
from ...common.files import fingerprint, write_text
from ..problem import Bound
from ..result import Budget, Result, Stop
from .problem import RingOrder, RingProblem

#: Changes whenever solvers may answer otherwise.
_VERSION = 1


def user_cache_folder() -> Path:
    """Return where this user's caches belong: $MOEPLAN_CACHE, or the platform's own place."""
    own = os.environ.get("MOEPLAN_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "moeplan" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "moeplan"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moeplan"


@dataclass(frozen=True)
class Request:
    """What makes two answers the same: the question and how it was to be answered."""

    problem: RingProblem
    solver: str
    budget: Budget
    seed: int

    @property
    def name(self) -> str:
        """File name. A limit on time is left out: what is kept of such answers is proven."""
        iterations = self.budget.iterations if self.budget.time_s is None else None
        key = fingerprint(
            _VERSION, self.problem.question, self.solver, self.seed, iterations, self.budget.gap
        )
        return key.removeprefix("sha256:") + ".json"


class RingCache:
    """A folder of answers. Without one, the user's cache is used, if there is a place to write."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = user_cache_folder() / "rings" if folder is None else folder
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if folder is not None:
                raise BadInput(
                    f"cannot make the cache folder {str(folder)!r}: {error.strerror or error}",
                    fix="name a folder that you may write to",
                ) from error

    def read(self, request: Request) -> Result[RingOrder] | None:
        """Return the kept answer, scored afresh; None where there is none that can be trusted."""
        try:
            entry = json.loads((self.folder / request.name).read_text(encoding="utf-8"))
            ring, bound = RingOrder(tuple(entry["order"])), Bound(float(entry["bound"]), str(entry["by"]))
            stop = Stop(entry["stop"])
            sound = entry["sum"] == _checksum(request, ring, bound, stop)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if not sound or request.problem.check(ring) is not None:
            return None
        return Result(
            decision=ring,
            cost=request.problem.evaluate(ring),
            held_out=None,
            bound=bound,
            stop=stop,
            solver=request.solver,
            seed=request.seed,
            iterations=0,
            elapsed_s=0.0,
            anytime=(),
            problem=request.problem.fingerprint,
        )

    def write(self, request: Request, result: Result[RingOrder]) -> None:
        """Keep an answer that would come out the same again: a proven one, or one that no clock has ended.

        A folder that cannot be written to keeps nothing: that costs time, not answers.
        """
        repeatable = request.budget.time_s is None and result.stop is not Stop.INTERRUPTED
        if result.decision is None or not (repeatable or result.stop is Stop.OPTIMAL):
            return
        entry = {
            "order": result.decision.order,
            "bound": result.bound.value_s,
            "by": result.bound.by,
            "stop": result.stop,
            "sum": _checksum(request, result.decision, result.bound, result.stop),
        }
        with contextlib.suppress(BadInput):
            write_text(self.folder / request.name, json.dumps(entry) + "\n")


def _checksum(request: Request, ring: RingOrder, bound: Bound, stop: Stop) -> str:
    return fingerprint(request.name, ring.order, bound.value_s, bound.by, stop)
