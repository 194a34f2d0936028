"""One cell as an integer program with subtour cuts, by PuLP and its bundled CBC."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..control import Claim, Control
from ..search.cbc import call_cbc
from .bounds import round_up
from .heuristics import nn_2opt, row_major, snake
from .problem import RingOrder, RingProblem, problem_of
from .thresholds import Answer, Limits, Shortest, crowded_links, fits_a_model, search


def ilp(control: Control[RingOrder]) -> Claim:
    """Find the best ring and prove it, cell by cell (`thresholds.search`), from a heuristic or the start.

    An iteration is a program solved. Raises MissingLibrary where the bundled CBC does not run.
    """
    if control.best is None:
        for heuristic in (row_major, snake, nn_2opt):
            heuristic(control)
    return search(control, Ilp(control))


class Ilp:
    """Shortest cycle covers inside a cell, from which subtours are cut off until one ring is left.

    Dantzig, Fulkerson and Johnson 1954, doi 10.1287/opre.2.4.393: the cores of a cycle that leaves others out
    have to be left over at least one arc. Every cover is no longer than the shortest ring.
    """

    name = "integer program, CBC"

    def __init__(self, control: Control[RingOrder]) -> None:
        self.control = control
        self.problem = problem_of(control)

    def find(self, limits: Limits) -> Answer:
        """Decide the cell."""
        found = self._shortest(limits)
        return Answer(None, proven=True) if found is None else Answer(found.ring, proven=False)

    def shorten(self, limits: Limits, ring: RingOrder, least: int) -> Shortest:
        """Minimise the total inside the cell."""
        found = self._shortest(limits)
        assert found is not None, "there is the ring that was given"
        return Shortest(found.ring, max(least, found.least))

    def _shortest(self, limits: Limits) -> Shortest | None:
        """Return the shortest ring of a cell, or without one what is known; None where there is none."""
        if not fits_a_model(self.problem, limits):
            return Shortest(None, 0)
        program, least = _Cover(self.problem, limits), 0
        while self.control.should_stop() is None:
            status = program.solve(self.control)
            self.control.iterations += 1
            if status == "infeasible":
                return None
            if status == "stopped":
                break
            cycles = program.cycles()
            least = round_up(sum(program.hops(cycle) for cycle in cycles), self.problem.hops)
            if len(cycles) == 1:
                return Shortest(self.problem.at(cycles[0]), least)
            program.cut(cycles)
        return Shortest(None, least)


class _Cover:
    """x[i, j] = 1 where core j follows core i.

    (a) Every core has one successor and one predecessor; (b) no two cores follow each other, unless they are
    the only ones; (c) no link carries more than its transfers; (d) the cuts.
    """

    def __init__(self, problem: RingProblem, limits: Limits) -> None:
        import pulp

        self._hops = problem.hops
        allowed = (problem.hops <= limits.hops) & ~np.eye(problem.n, dtype=bool)
        pairs = [(int(i), int(j)) for i, j in np.argwhere(allowed)]
        self._x = {(i, j): pulp.LpVariable(f"x_{i}_{j}", cat=pulp.LpBinary) for i, j in pairs}
        self._model = pulp.LpProblem("ring", pulp.LpMinimize)
        self._model += pulp.lpSum(int(problem.hops[i, j]) * x for (i, j), x in self._x.items())
        for core in range(problem.n):  # (a)
            self._model += pulp.lpSum(x for (i, _), x in self._x.items() if i == core) == 1
            self._model += pulp.lpSum(x for (_, j), x in self._x.items() if j == core) == 1
        if problem.n > 2:
            for i, j in pairs:  # (b)
                if i < j:
                    self._model += self._x[i, j] + self._x[j, i] <= 1
        for arcs in crowded_links(problem, pairs, limits.load):  # (c)
            self._model += pulp.lpSum(self._x[arc] for arc in arcs) <= limits.load

    def cut(self, cycles: list[list[int]]) -> None:
        """Add (d): each of the cycles is left at least once."""
        import pulp

        for cycle in cycles:
            inside = set(cycle)
            leaving = [x for (i, j), x in self._x.items() if i in inside and j not in inside]
            self._model += pulp.lpSum(leaving) >= 1

    def solve(self, control: Control[RingOrder]) -> Literal["optimal", "infeasible", "stopped"]:
        """Run CBC, within the time that is left."""
        import pulp

        if call_cbc(self._model, control, instead="exact") is None:
            return "stopped"
        if self._model.status == pulp.LpStatusInfeasible:
            return "infeasible"
        return "optimal" if self._model.sol_status == pulp.LpSolutionOptimal else "stopped"

    def cycles(self) -> list[list[int]]:
        """Return the cycles of the last cover."""
        following = {i: j for (i, j), x in self._x.items() if x.varValue > 0.5}
        cycles = []
        while following:
            cycle = [next(iter(following))]
            while (core := following.pop(cycle[-1])) != cycle[0]:
                cycle.append(core)
            cycles.append(cycle)
        return cycles

    def hops(self, cycle: list[int]) -> int:
        """Return the hops of a cycle."""
        return int(self._hops[cycle, np.roll(cycle, -1)].sum())
