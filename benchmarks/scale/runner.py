"""Run points, one after the other, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .point import Failed, Finished, Measured, Point

if TYPE_CHECKING:
    from .store import Store

#: What a point may take before it is given up.
LIMIT_S = 900.0
_WORKER = "moeplan.benchmarks.scale.worker"


def run(
    points: Sequence[Point],
    on_point: Callable[[Finished], None],
    *,
    store: Store | None = None,
    limit_s: float = LIMIT_S,
) -> list[Finished]:
    """Measure every point that the store lacks, and return all, in order; `on_point` is called as they end.

    Points do not run side by side: they would take each other's caches and memory bandwidth.
    """
    finished = []
    for point in points:
        known = store.read(point) if store is not None else None
        if known is None:
            known = Finished(point, _measured(point, limit_s))
            if store is not None:
                store.write(known)
        finished.append(known)
        on_point(known)
    return finished


def _measured(point: Point, limit_s: float) -> Measured | Failed:
    try:
        with _trace_of(point, limit_s) as trace:
            said = _call(json.dumps(asdict(point)), *trace, limit_s=limit_s)
    except subprocess.TimeoutExpired:
        return Failed(f"still running after {limit_s:.0f} s, stopped")
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["no message"]
        return Failed(f"the process ended with {error.returncode}: {last[0]}")
    row = json.loads(said.strip().splitlines()[-1])
    return Failed(**row) if "reason" in row else Measured(**row)


@contextmanager
def _trace_of(point: Point, limit_s: float) -> Iterator[tuple[str, ...]]:
    """Write what a count reads, and delete it again; nothing for other families."""
    if point.family != "count":
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="moeplan-scale-") as folder:
        path = str(Path(folder) / "trace.parquet")
        _call("--write", json.dumps(asdict(point)), path, limit_s=limit_s)
        yield (path,)


def _call(*arguments: str, limit_s: float) -> str:
    done = subprocess.run(
        [sys.executable, "-m", _WORKER, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=limit_s,
    )
    return done.stdout
