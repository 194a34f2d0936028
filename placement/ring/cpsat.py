"""One cell as a CP-SAT model: a circuit over the allowed hops, with at most so many transfers on a link."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..control import Control
from ..search.cpsat import new_solver, run_solver
from .bounds import colours
from .problem import RingOrder, RingProblem, problem_of
from .thresholds import Answer, Limits, Shortest, crowded_links

_ROUNDING = 1e-6
#: Iterations to a unit of CP-SAT's deterministic time, which is about a second.
_ITERATIONS = 1_000_000
#: Units of a first run, which is not interrupted.
_SHORT = 0.02


class CpSat:
    """CP-SAT with one worker; an iteration budget is spent as deterministic time, a million to a unit."""

    name = "CP-SAT"

    def __init__(self, control: Control[RingOrder]) -> None:
        self.control = control
        self.problem = problem_of(control)

    def find(self, limits: Limits) -> Answer:
        """Decide the cell. Presolve costs more than it saves here."""
        from ortools.sat.python import cp_model

        circuit = _Circuit(self.problem, limits)
        status, solver = self._solve(circuit.model, cp_model_presolve=False)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer(self.problem.at(circuit.order(solver)), proven=True)
        return Answer(None, proven=status == cp_model.INFEASIBLE)

    def shorten(self, limits: Limits, ring: RingOrder, least: int) -> Shortest:
        """Minimise the total inside the cell, from `ring`. Here cuts from the relaxation pay off."""
        from ortools.sat.python import cp_model

        circuit = _Circuit(self.problem, limits)
        step = circuit.minimise_total(least, self.problem.measure(ring).total_hops)
        circuit.hint(self.problem.positions(ring).tolist())
        status, solver = self._solve(circuit.model, linearization_level=2)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Shortest(None, least)
        proven = step * math.ceil(solver.best_objective_bound - _ROUNDING)
        return Shortest(self.problem.at(circuit.order(solver)), max(least, proven))

    def _solve(self, model: Any, **parameters: int) -> tuple[Any, Any]:
        """Return status and solver: of a short run at once, or else of one in a second thread.

        A thread takes longer to start than most cells take to decide; but it leaves this one free to see an
        interruption.
        """
        from ortools.sat.python import cp_model

        control = self.control
        solver = self._solver(parameters, _SHORT)
        status = solver.solve(model)
        self._count(solver)
        if status not in (cp_model.UNKNOWN, cp_model.FEASIBLE) or control.should_stop() is not None:
            return status, solver
        solver = self._solver(parameters, math.inf)
        status = run_solver(solver, model, control.interrupt)
        self._count(solver)
        return status, solver

    def _solver(self, parameters: dict[str, int], units: float) -> Any:
        """Return a solver that stops after so many units, or where the budget ends."""
        iterations = self.control.iterations_left()
        left = math.inf if iterations is None else iterations / _ITERATIONS
        solver = new_solver(self.control.seed, seconds=self.control.seconds_left(), units=min(left, units))
        for name, value in parameters.items():
            setattr(solver.parameters, name, value)
        return solver

    def _count(self, solver: Any) -> None:
        """Add the work of a run to the iterations."""
        spent = 1 + int(solver.deterministic_time * _ITERATIONS)
        left = self.control.iterations_left()
        self.control.iterations += spent if left is None else min(spent, left)


class _Circuit:
    """A literal for every arc inside the limits, and the circuit of them through all cores."""

    def __init__(self, problem: RingProblem, limits: Limits) -> None:
        from ortools.sat.python import cp_model

        self.hops = problem.hops
        allowed = (self.hops <= limits.hops) & ~np.eye(problem.n, dtype=bool)
        self.model = cp_model.CpModel()
        self.chosen = {(int(i), int(j)): self.model.new_bool_var("") for i, j in np.argwhere(allowed)}
        self.model.add_circuit([(i, j, x) for (i, j), x in self.chosen.items()])
        for crowd in crowded_links(problem, list(self.chosen), limits.load):
            self.model.add(sum(self.chosen[arc] for arc in crowd) <= limits.load)

    def minimise_total(self, least: int, most: int) -> int:
        """Minimise the total hops between `least` and `most`; return the step that totals come in."""
        from ortools.sat.python import cp_model

        step = 1 if colours(self.hops) is None else 2
        steps = self.model.new_int_var(-(-least // step), most // step, "")
        lengths = [int(self.hops[arc]) for arc in self.chosen]
        total = cp_model.LinearExpr.weighted_sum(list(self.chosen.values()), lengths)
        self.model.add(total == step * steps)
        self.model.minimize(steps)
        return step

    def hint(self, order: list[int]) -> None:
        """Start from a ring."""
        following = dict(zip(order, order[1:] + order[:1], strict=True))
        for (i, j), x in self.chosen.items():
            self.model.add_hint(x, following[i] == j)

    def order(self, solver: Any) -> list[int]:
        """Return the ring that was found, from position 0 on."""
        following = {i: j for (i, j), x in self.chosen.items() if solver.boolean_value(x)}
        order = [0]
        while (core := following[order[-1]]) != 0:
            order.append(core)
        return order
