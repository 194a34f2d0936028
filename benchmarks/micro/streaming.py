"""Streamed traces: seconds, memory and bytes of counting, statistics, one layer, replay and splits.

`python -m moeplan.benchmarks.micro.streaming [FOLDER] [TOKENS]` writes a trace of 58 layers and top-8 of 256
experts into FOLDER (default: a temporary one; 10 million tokens take 4.4 GB), measures, and deletes it. The
trace is made of drawn row groups whose experts change their names from group to group: as incompressible as a
drawn trace, and written in the time that the disk takes.
"""

from __future__ import annotations

import argparse
import math
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from ...workload.model import MoEModel, load_model
from ...workload.scan import cores, count_stream, scan, stream_statistics
from ...workload.stream import TraceStream, open_trace
from ...workload.stream_replay import replay_stream, split_stream
from ...workload.synthetic import SyntheticRouting, synthesize
from ...workload.trace import RoutingTrace
from ...workload.trace_format import ROW_GROUP_ROWS
from ...workload.trace_writer import write_blocks

_MODEL: Final = "deepseek-v3"
_SIDE_BY_SIDE: Final = 512
_LENGTH: Final = 256
_WINDOWS: Final = 64
_BATCH, _STEPS = 128, 128
_FEW_TOKENS = 131_072
#: What a token takes on disk at most: a byte for each of 8 choices in 58 layers; the rest hardly counts.
_DISK_BYTES: Final = 8 * 58


@dataclass(frozen=True)
class Measured:
    """What a piece of work took: wall and processor seconds, bytes read, and the process's peak so far."""

    what: str
    wall_s: float
    cpu_s: float
    read_bytes: int
    peak_bytes: int

    def cells(self, tokens: int) -> tuple[str, str, str]:
        """What, figure, and what it was measured on."""
        figure = (
            f"{self.wall_s:.2f} s, {self.cpu_s:.2f} s of processor, {self.read_bytes / 1e6:,.0f} MB read, "
            f"{tokens / self.wall_s / 1e6:.2f} M tokens/s, peak {self.peak_bytes / 2**30:.2f} GiB"
        )
        return self.what, figure, f"{tokens:,} tokens, {cores()} cores"


def blocks(model: MoEModel, tokens: int) -> Iterator[RoutingTrace]:
    """Row groups of a trace: one that is drawn, and again and again with other names for its experts."""
    routing = SyntheticRouting(
        concurrency=_SIDE_BY_SIDE, tokens_per_request=ROW_GROUP_ROWS // _SIDE_BY_SIDE, sampler="draws"
    )
    drawn = synthesize(model, tokens=min(tokens, ROW_GROUP_ROWS), seed=0, routing=routing)
    assert drawn.step is not None
    rng = np.random.default_rng(0)
    for first in range(0, tokens, ROW_GROUP_ROWS):
        rows = np.arange(min(drawn.tokens, tokens - first))
        names = rng.permuted(np.tile(np.arange(model.experts), (len(model.moe_layers), 1)), axis=1)
        experts = np.empty((rows.size, *drawn.experts.shape[1:]), dtype=np.int16)
        for layer, name in enumerate(names.astype(np.int16)):
            experts[:, layer] = name[drawn.experts[rows, layer]]
        step = (first + rows) // _SIDE_BY_SIDE
        request = step // _LENGTH * _SIDE_BY_SIDE + rows % _SIDE_BY_SIDE
        yield replace(
            drawn.take(rows), experts=experts, step=step.astype(np.int32),
            request=request.astype(np.int32), position=(step % _LENGTH).astype(np.int32),
        )  # fmt: skip


def measure(what: str, work: Callable[[], object]) -> Measured:
    """Run once."""
    read, cpu, begun = _read_bytes(), time.process_time(), time.perf_counter()
    work()
    wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    return Measured(what, wall_s, cpu_s, _read_bytes() - read, peak_bytes())


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read_bytes() -> int:
    """Bytes that this process asked files for; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def readings(stream: TraceStream) -> Iterator[Measured]:
    """The pieces of work, cheapest in memory first, so that the peak tells them apart."""
    layer = stream.with_layers(stream.layers[:1])
    scan(layer)  # compiles the kernel where that was not done before
    yield measure("one layer: counts [S, 1, E]", lambda: count_stream(layer, windows=_WINDOWS))
    yield measure(f"counts [S, L, E], S = {_WINDOWS}", lambda: count_stream(stream, windows=_WINDOWS))
    yield measure("counts [S, L, E] and pairs and overlap", lambda: scan(stream, windows=_WINDOWS))
    yield measure("statistics", lambda: stream_statistics(stream))
    yield measure(
        f"split by request, replay of {_STEPS} x {_BATCH} tokens",
        lambda: replay_stream(split_stream(stream, 0.5, seed=0)[0], batch=_BATCH, steps=_STEPS, seed=0),
    )


def run(folder: Path, tokens: int) -> Iterator[Measured]:
    """Write in a process of its own, so that this one's peak is that of reading; measure, and delete."""
    path = folder / "streaming.parquet"
    try:
        child = get_context("spawn").Process(target=write, args=(path, tokens))
        begun = time.perf_counter()
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(child.exitcode)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        unit = 1 if sys.platform == "darwin" else 1024
        wall_s, cpu_s = time.perf_counter() - begun, used.ru_utime + used.ru_stime
        yield Measured("writing (peak of its own process)", wall_s, cpu_s, 0, used.ru_maxrss * unit)
        yield from readings(open_trace(path))
    finally:
        path.unlink(missing_ok=True)


def write(path: Path, tokens: int) -> None:
    """Write the trace."""
    write_blocks(blocks(load_model(_MODEL), tokens), path)


def rows(folder: Path | None = None, tokens: int = _FEW_TOKENS) -> Iterator[tuple[str, str, str]]:
    """Yield what, figure, and what it was measured on; without a folder, in a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield from rows(Path(temporary), tokens)
        return
    for measured in run(folder, tokens):
        yield measured.cells(tokens)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of one run. Raises SystemExit where arguments are wrong, or the disk too full."""
    parser = argparse.ArgumentParser(
        prog="python -m moeplan.benchmarks.micro.streaming",
        description="Write a trace, count and replay it as a stream, delete it: seconds, memory, bytes.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help="where to write it (default: a temporary folder)"
    )
    parser.add_argument(
        "tokens",
        nargs="?",
        type=_tokens,
        default=_FEW_TOKENS,
        help=f"of the trace, {_DISK_BYTES} bytes each on disk: 1e7 take {1e7 * _DISK_BYTES / 1e9:.1f} GB "
        f"(default: {_FEW_TOKENS:,}, {_FEW_TOKENS * _DISK_BYTES / 1e6:.0f} MB)",
    )
    asked = parser.parse_args(arguments)
    folder = Path(tempfile.gettempdir()) if asked.folder is None else asked.folder
    if not folder.is_dir():
        parser.error(f"there is no folder {str(folder)!r}")
    needed, free = asked.tokens * _DISK_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        parser.error(
            f"{asked.tokens:,} tokens take {needed / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} are free"
        )
    print(f"writing {asked.tokens:,} tokens, {needed / 1e9:.2f} GB in {folder}, until the end", flush=True)
    for what, figure, where in rows(asked.folder, asked.tokens):
        print(f"{what:45} {figure}  ({where})", flush=True)


def _tokens(text: str) -> int:
    """Read "131072" or "1e7". Raises ArgumentTypeError on what is no number of tokens."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1.0 <= value < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 131072 or 1e7")
    return int(value)


if __name__ == "__main__":
    main()
