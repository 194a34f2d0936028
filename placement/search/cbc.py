"""How the families run CBC: one worker, a seed, limits, and a log that says what PuLP does not hand on."""

from __future__ import annotations

import math
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...common.errors import MissingLibrary, NothingFound
from ..control import Control


@dataclass(frozen=True)
class CbcRun:
    """How a run ended: `solved` to optimality, `answered` by any solution, `bound` as CBC proved it."""

    solved: bool
    answered: bool
    bound: float


def run_cbc(model: Any, control: Control[Any], *, warm: bool, gap: float | None = None) -> CbcRun | None:
    """Solve a PuLP model within the budget; None where an interruption ended it without an answer.

    An iteration budget counts nodes of the tree, which are added to `control.iterations`. Raises what
    `call_cbc` raises.
    """
    import pulp

    log = call_cbc(model, control, warm=warm, gap=gap, nodes=control.iterations_left())
    if log is None:
        return None
    found = re.search(r"Enumerated nodes:\s+(\d+)", log)
    control.iterations += max(1, int(found.group(1))) if found else 1
    solved = model.sol_status == pulp.LpSolutionOptimal and "Optimal solution found" in log
    return CbcRun(
        solved=solved,
        answered=model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible),
        bound=float(pulp.value(model.objective)) if solved else dual_bound(log),
    )


def call_cbc(
    model: Any,
    control: Control[Any],
    *,
    warm: bool = False,
    gap: float | None = None,
    nodes: int | None = None,
    instead: str = "cpsat",
) -> str | None:
    """Run CBC on a PuLP model within the time that is left; return its log, None where it was interrupted.

    CBC is a process of its own: an interruption waits for its time limit, unless it comes from the terminal,
    which CBC hears too. Raises MissingLibrary where the bundled CBC does not run on this machine, and
    NothingFound where it dies; `instead` names the solver to take then.
    """
    import pulp

    seconds = control.seconds_left()
    with tempfile.TemporaryDirectory(prefix="moeplan-") as folder:
        path = Path(folder) / "cbc.log"
        cbc = pulp.PULP_CBC_CMD(
            msg=False,
            threads=1,
            gapRel=gap,
            timeLimit=None if seconds is None else max(seconds, 0.01),
            maxNodes=nodes,
            warmStart=warm,
            logPath=str(path),
            options=[f"randomCbcSeed {control.seed % 2**31}", "timeMode elapsed"],
        )
        cbc.tmpDir = folder
        if not cbc.available():
            raise MissingLibrary(
                "the CBC solver that PuLP bundles does not run here", fix=f"use the solver {instead}"
            )
        try:
            model.solve(cbc)
        except pulp.PulpError as error:
            if control.interrupt.is_set():  # CBC heard the same Ctrl-C, and ended without an answer
                return None
            raise NothingFound(
                "CBC ended without an answer",
                where=str(error),
                fix=f"give it more memory, or use the solver {instead}",
            ) from error
        return path.read_text() if path.exists() else ""


def dual_bound(log: str) -> float:
    """Return CBC's proven bound when it stopped early; 0.0 where the log has none.

    What a log prints is rounded to the nearest, so that the true value may be half a last digit lower:
    `Lower bound` has three decimals, `Continuous objective value` six significant digits without trailing
    zeros.
    """
    found = re.search(r"^Lower bound:\s+([-+.\deE]+)", log, re.M)
    if found is not None:
        return float(found.group(1)) - 0.5e-3
    found = re.search(r"Continuous objective value is ([-+.\deE]+)", log)
    if found is None:
        return 0.0
    value = float(found.group(1))
    digit = 10.0 ** (math.floor(math.log10(abs(value))) - 5) if value else 0.0
    return value - 0.5 * digit
