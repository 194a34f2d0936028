"""How the families run CP-SAT: one worker, a seed, limits, and an ear for interruptions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

_LOOK_S = 0.1


def new_solver(seed: int, *, seconds: float | None, units: float | None) -> Any:
    """Return a CP-SAT solver that ends after so many seconds, or units of deterministic time.

    Repeatable by units alone. Ctrl-C is left to whoever sets the interruption: CP-SAT's own handler would
    keep it to itself.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.catch_sigint_signal = False
    if seconds is not None:
        solver.parameters.max_time_in_seconds = max(seconds, 1e-3)
    if units is not None:
        solver.parameters.max_deterministic_time = units
    return solver


def run_solver(solver: Any, model: Any, interrupt: threading.Event) -> Any:
    """Solve in a second thread, so that this one stays free to see an interruption; return the status."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(solver.solve, model)
        try:
            while not wait([answer], timeout=_LOOK_S).done:
                if interrupt.is_set():
                    solver.stop_search()
        except BaseException:  # a signal that ends the program must not wait for the solver's limit
            solver.stop_search()
            raise
        return answer.result()
