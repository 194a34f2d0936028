"""Every solver of the family keeps the contract, for every objective."""

from __future__ import annotations

import pytest

from moeplan.placement import solvers_of
from moeplan.placement.ring.problem import RingProblem
from moeplan.placement.testing import check_solver

from .instances import grid


@pytest.mark.parametrize("objective", ["hops", "load,hops,total", "time"])
@pytest.mark.parametrize("name", sorted(solvers_of("ring")))
def test_ring_solver(name, objective):
    for duplex, pair in (("full", False), ("half", True)):
        cores = (0, 2, 5, 8, 11, 14, 19)
        check_solver("ring", name, RingProblem(grid(4, 5, duplex), cores, objective=objective, pair=pair))


def test_the_family_has_its_solvers():
    names = {"auto", "row_major", "snake", "nn_2opt", "multistart_2opt", "annealing", "ilp", "exact"}
    assert names <= set(solvers_of("ring"))
