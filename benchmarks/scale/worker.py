"""One point in a process of its own: `python -m moeplan.benchmarks.scale.worker '{"family": ...}' [TRACE]`.

Prints what it took as one JSON line, the last of stdout. With `--write` before the point, it writes the trace
that a count reads, and prints nothing: a process that has written one holds memory that a count would be
charged with.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...common.errors import MoeplanError
from ...common.memory import peak_bytes, reset_peak, resident_bytes
from .jobs import Job, prepare, tiny, write_tokens
from .point import Failed, Measured, Point

#: Runs of a point whose time is short: the least time of up to so many, until they add up to some seconds.
_RUNS, _ENOUGH_S = 5, 1.0


def main(arguments: list[str]) -> None:
    """Run the point that the arguments describe."""
    if arguments[0] == "--write":
        write_tokens(Point(**json.loads(arguments[1])), Path(arguments[2]))
        return
    trace = Path(arguments[1]) if len(arguments) > 1 else None
    print("\n" + json.dumps(asdict(_outcome(Point(**json.loads(arguments[0])), trace)), allow_nan=False))


def _outcome(point: Point, trace: Path | None) -> Measured | Failed:
    try:
        return run(point, trace)
    except MemoryError:
        return Failed("it does not fit into memory")
    except MoeplanError as error:
        return Failed(str(error).splitlines()[0])
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def run(point: Point, trace: Path | None = None) -> Measured:
    """Measure a point. Memory is that of the first run: later ones find the allocator's leavings."""
    with tempfile.TemporaryDirectory(prefix="moeplan-scale-") as folder:
        small, path = tiny(point), Path(folder) / "trace.parquet"
        if point.family == "count":
            write_tokens(small, path)
        _measure(prepare(small, path))
    job = prepare(point, trace)
    first = _measure(job)
    best, runs, spent_s = first, 1, first.cpu_s
    # A kernel that the tiny point did not reach was compiled or loaded in the first run.
    while runs < 2 or (runs < _RUNS and spent_s < _ENOUGH_S):
        again = _measure(job)
        runs, spent_s = runs + 1, spent_s + again.cpu_s
        best = min(best, again, key=lambda measured: measured.cpu_s)
    return Measured(best.cpu_s, best.elapsed_s, best.phases_s, first.held_bytes, first.peak_bytes, runs)


def _measure(job: Job) -> Measured:
    gc.collect()
    reset_peak()
    held = resident_bytes()
    begun_s, phases_s, made = time.perf_counter(), {}, list[Any]()
    for name, call in job.phases:
        before_s = time.process_time()
        call(made)
        phases_s[name] = time.process_time() - before_s
    return Measured(sum(phases_s.values()), time.perf_counter() - begun_s, phases_s, held, peak_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
