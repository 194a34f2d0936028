"""Run the cells that are missing, each in a process of its own, and read the grid back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from ...placement.registry import solvers_of
from .cell import Cell, Finished, Outcome
from .instances import Instance, find

if TYPE_CHECKING:
    from ...placement.result import Budget
    from .store import Store

#: What a process may take beyond twice the solver's budget: start, posing, compiling.
_GRACE_S = 240.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Limits:
    """`memory_bytes`: address space of a cell's process, 0 for no limit; `jobs`: processes side by side."""

    memory_bytes: int
    jobs: int


def grid(
    instances: Iterable[Instance], solvers: Sequence[str], seeds: Sequence[int], budget: Budget
) -> list[Cell]:
    """Return the cells of every instance with the solvers of its family (all where `solvers` is empty).

    Solvers that end the same way whatever the seed run with the first seed only.
    """
    cells = []
    for instance in instances:
        known = solvers_of(instance.family)
        for name in known:
            if solvers and name not in solvers:
                continue
            by_seed = known[name].anytime or known[name].seeded
            for seed in seeds if by_seed else seeds[:1]:
                cells.append(Cell(instance.name, name, seed, budget.time_s, budget.iterations))
    return cells


def run(
    cells: Sequence[Cell],
    store: Store,
    limits: Limits,
    *,
    interrupt: threading.Event,
    on_cell: Callable[[Finished], None],
) -> list[Finished]:
    """Run what is missing or damaged in the store, and return all cells that are there, in their order.

    `on_cell` is called for each that ended now. When `interrupt` is set, running cells are stopped and not
    kept; a later run begins with them.
    """
    waiting = store.missing(cells)
    running: list[_Process] = []
    try:
        while (waiting or running) and not interrupt.is_set():
            while waiting and len(running) < limits.jobs:
                cell = waiting.pop(0)
                reason = _skip(cell)
                if reason is None:
                    running.append(_Process(cell, limits.memory_bytes))
                else:
                    _keep(store, cell, Outcome("skipped", reason), on_cell)
            for process in [process for process in running if process.ended()]:
                running.remove(process)
                _keep(store, process.cell, process.outcome(), on_cell)
            time.sleep(_POLL_S)
    finally:
        for process in running:
            process.kill()
    return store.finished(cells)


def _keep(store: Store, cell: Cell, outcome: Outcome, on_cell: Callable[[Finished], None]) -> None:
    finished = Finished(cell, outcome, metadata.version("moeplan"))
    store.write(finished)
    on_cell(finished)


def _skip(cell: Cell) -> str | None:
    instance = find(cell.instance)
    return instance.unavailable() or instance.skips.get(cell.solver)


class _Process:
    """A cell under way."""

    def __init__(self, cell: Cell, memory_bytes: int) -> None:
        self.cell = cell
        self._begun = time.monotonic()
        self._limit_s = _GRACE_S + 2.0 * (cell.budget_s or 0.0)
        self._late = False
        command = [sys.executable, "-m", "moeplan.benchmarks.compare.worker", json.dumps(asdict(cell))]
        self._process = subprocess.Popen(
            [*command, str(memory_bytes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the comparison; it stops its cells itself
        )
        # Pipes are drained while the process runs: one that fills up would wait for ever.
        self._said: tuple[str, str] = ("", "")
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def ended(self) -> bool:
        """Tell whether it ended; stops one that is far over its budget."""
        if self._reader.is_alive() and time.monotonic() - self._begun > self._limit_s:
            self._late = True
            self.kill()
        return not self._reader.is_alive()

    def outcome(self) -> Outcome:
        """Return what it reported, or how it died."""
        if self._late:
            return Outcome("timeout", f"still running after {self._limit_s:.0f} s, stopped")
        out, err = self._said
        if self._process.returncode == 0 and out.strip():
            row = json.loads(out.strip().splitlines()[-1])
            row["anytime"] = tuple(tuple(point) for point in row["anytime"])
            return Outcome(**row)
        last = err.strip().splitlines()[-1] if err.strip() else "no message"
        out_of_memory = "MemoryError" in err or "Cannot allocate memory" in err
        return Outcome(
            "memory" if out_of_memory else "failed",
            f"the process ended with {self._process.returncode}: {last}",
        )

    def kill(self) -> None:
        """Stop it and what it started."""
        import os
        import signal
        from contextlib import suppress

        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join()

    def _listen(self) -> None:
        self._said = self._process.communicate()
