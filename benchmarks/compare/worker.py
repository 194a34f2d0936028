"""One cell in a process of its own: `python -m moeplan.benchmarks.compare.worker '{"instance": ...}'`.

Prints the outcome as one JSON line, the last of stdout. A memory limit is set before anything is imported
that could use it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...common.errors import MoeplanError, ProvenInfeasible
from ...common.execution import end_with_parent
from ...common.memory import peak_bytes
from .cell import Cell, Outcome

if TYPE_CHECKING:
    from ...placement.result import Result


def main(arguments: list[str]) -> None:
    """Run the cell that the first argument describes, within the bytes of the second (0: no limit)."""
    end_with_parent(os.getppid())
    memory_bytes = int(arguments[1])
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    outcome = _outcome(Cell(**json.loads(arguments[0])), limited=memory_bytes > 0)
    print("\n" + json.dumps(asdict(outcome), allow_nan=False))


def _outcome(cell: Cell, *, limited: bool) -> Outcome:
    try:
        return run(cell)
    except MemoryError:
        return Outcome("memory", "the memory limit was reached")
    except ProvenInfeasible as error:
        return Outcome("infeasible", str(error))
    except MoeplanError as error:
        return Outcome("failed", str(error))
    except Exception as error:
        if limited and isinstance(error, ImportError | OSError):
            return Outcome("memory", f"a library does not load within the memory limit: {error}")
        return Outcome("failed", f"{type(error).__name__}: {error}")


def run(cell: Cell) -> Outcome:
    """Pose the instance, compile on it if needed, solve it, and return what was measured.

    A solver that uses a start begins with the best published heuristic, as it does in a plan. Raises
    whatever posing and solving raise.
    """
    from ...placement.planning import best_baseline
    from ...placement.registry import find as solver_of
    from ...placement.result import Budget, Stop
    from ...placement.solve import solve
    from .instances import find

    instance = find(cell.instance)
    problem = instance.pose()
    budget = Budget(time_s=cell.budget_s, iterations=cell.budget_iterations)
    # The first call of a kernel loads or compiles it; no solver is timed with that.
    solve(problem, cell.solver, budget=Budget(time_s=cell.budget_s, iterations=1), seed=cell.seed)
    start = best_baseline(problem, cell.seed) if solver_of(problem.family, cell.solver).uses_start else None
    result = solve(problem, cell.solver, budget=budget, seed=cell.seed, start=start)
    if result.stop is Stop.INFEASIBLE:
        return Outcome("infeasible", problem.infeasible() or "proven by the solver")
    if result.decision is None:
        return Outcome("nothing_found", f"stopped with {result.stop.value}", problem=result.problem)
    return _measured(result)


def _measured(result: Result[Any]) -> Outcome:
    from ...placement.summary import thinned

    return Outcome(
        "ok",
        objective_s=result.cost.objective_s,
        total_s=result.cost.total_s,
        held_out_s=result.held_out.total_s if result.held_out else None,
        bound_s=result.bound.value_s,
        bound_by=result.bound.by,
        stop=result.stop.value,
        iterations=result.iterations,
        elapsed_s=result.elapsed_s,
        peak_bytes=peak_bytes(),
        problem=result.problem,
        anytime=tuple((p.iterations, p.elapsed_s, p.best_s) for p in thinned(result.anytime)),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
