"""Exact solvers against every order, against each other, and against a published-style reference."""

from __future__ import annotations

import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from moeplan.hardware.topology import ring as ring_of_cores
from moeplan.hardware.topology import star, without
from moeplan.placement import Budget, Stop, solve
from moeplan.placement.ring.problem import RingProblem
from moeplan.placement.ring.reach import hamiltonian_cycle

from .instances import HOP_S, LINK, LINK_BYTES_PER_S, grid, least_objective, wrapped

OBJECTIVES = ("hops", "load,hops,total", "time")
BUDGET = Budget(time_s=60.0)
#: A transfer over one link takes as long as 1.5 hops, so that load and hops are worth trading.
TIMED = {"message_bytes": 1.5 * HOP_S * LINK_BYTES_PER_S}


def assert_best(problem: RingProblem, solver: str = "exact") -> None:
    result = solve(problem, solver, budget=BUDGET)
    assert result.stop is Stop.OPTIMAL, (problem.cores, problem.objective)
    expected = least_objective(problem)
    assert result.cost.objective_s == pytest.approx(expected, rel=1e-12), (problem.cores, problem.objective)


def small_sets(rows: int, cols: int, most: int) -> list[tuple[int, ...]]:
    """Core sets up to reflection in either axis, which maps XY routes to XY routes."""
    site = np.arange(rows * cols).reshape(rows, cols)
    images = [image.ravel() for image in (site, site[::-1], site[:, ::-1], site[::-1, ::-1])]
    return [
        cores
        for n in range(2, most + 1)
        for cores in itertools.combinations(range(rows * cols), n)
        if cores == min(tuple(sorted(image[list(cores)].tolist())) for image in images)
    ]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_set_of_up_to_nine_cores_on_3x4(objective):
    topology, sets = grid(3, 4), small_sets(3, 4, 9)
    assert len(sets) > 1000
    for cores in sets:
        assert_best(RingProblem(topology, cores, objective=objective, **TIMED))


@pytest.mark.parametrize("objective", OBJECTIVES[1:])
@pytest.mark.parametrize(("duplex", "pair"), [("half", False), ("full", True), ("half", True)])
def test_shared_links(duplex, pair, objective):
    rng = np.random.default_rng(5)
    for _ in range(40):
        cores = tuple(rng.choice(20, rng.integers(2, 9), replace=False).tolist())
        problem = RingProblem(grid(4, 5, duplex), cores, objective=objective, pair=pair, **TIMED)
        assert_best(problem)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_other_networks(objective):
    broken = without(grid(3, 4), sites=[5], links=[(2, 3)])
    for topology, cores in (
        (wrapped(3, 4), (0, 1, 2, 3, 4, 8, 10)),
        (wrapped(3, 3, "half"), tuple(range(8))),
        (broken, (0, 1, 2, 3, 6, 7, 9, 11)),
        (ring_of_cores(9, **LINK), (0, 1, 3, 4, 6, 8)),
        (star(7, **LINK), tuple(range(7))),
        (star(7, hub=3, **LINK), tuple(range(7))),
    ):
        assert_best(RingProblem(topology, cores, objective=objective, **TIMED))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("duplex", ["full", "half"])
def test_integer_program_agrees(duplex, objective):
    rng = np.random.default_rng(8)
    for n in (2, 3, 5, 8, 14):
        cores = tuple(rng.choice(32, n, replace=False).tolist())
        problem = RingProblem(grid(4, 8, duplex), cores, objective=objective, **TIMED)
        by_cuts, by_cells = (solve(problem, name, budget=BUDGET) for name in ("ilp", "exact"))
        assert by_cuts.stop is by_cells.stop is Stop.OPTIMAL
        assert by_cuts.cost.objective_s == by_cells.cost.objective_s


@pytest.mark.parametrize("duplex", ["full", "half"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_larger_sets_are_proven_and_no_heuristic_beats_them(objective, duplex):
    rng = np.random.default_rng(3)
    for n in (16, 24, 30, 31):
        cores = tuple(rng.choice(32, n, replace=False).tolist())
        problem = RingProblem(grid(4, 8, duplex), cores, objective=objective, **TIMED)
        best = solve(problem, "exact", budget=BUDGET)
        assert best.stop is Stop.OPTIMAL
        for name in ("row_major", "snake", "nn_2opt", "multistart_2opt"):
            assert solve(problem, name).cost.objective_s >= best.cost.objective_s
        annealed = solve(problem, "annealing", budget=Budget(time_s=None, iterations=50_000))
        assert annealed.cost.objective_s >= best.cost.objective_s


def test_rectangles():
    # 1 hop exists exactly where the area is even (a chessboard with as many black as white cells) and the
    # rectangle is no line; every line of at least three cores, and every odd area, needs a hop of 2.
    for rows, cols in itertools.combinations_with_replacement(range(1, 8), 2):
        if rows * cols < 2:
            continue
        problem = RingProblem(grid(rows, cols), tuple(range(rows * cols)))
        result = solve(problem, "exact", budget=BUDGET)
        even = rows * cols == 2 or (rows * cols % 2 == 0 and rows > 1)
        assert result.stop is Stop.OPTIMAL
        assert problem.measure(result.decision)[:2] == (1, 1 if even else 2)


def test_iterations_end_the_search_and_repeat():
    cores = tuple(np.random.default_rng(0).choice(64, 48, replace=False).tolist())
    problem = RingProblem(grid(8, 8), cores)
    budget = Budget(time_s=None, iterations=30_000)
    first, second = (solve(problem, "exact", budget=budget, seed=4) for _ in range(2))
    assert first.decision == second.decision
    assert first.stop is second.stop
    assert first.iterations == second.iterations <= 30_000


def test_dynamic_programming_finds_cycles_where_there_are_some():
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(200):
        n = int(rng.integers(3, 8))
        linked = np.triu(rng.random((n, n)) < 0.5, 1)
        linked |= linked.T
        exists = any(
            all(linked[a, b] for a, b in zip((0, *rest), (*rest, 0), strict=True))
            for rest in itertools.permutations(range(1, n))
        )
        order = hamiltonian_cycle(linked)
        assert (order is not None) == exists
        if order is not None:
            found += 1
            assert sorted(order) == list(range(n))
            assert all(linked[order, np.roll(order, -1)])
    assert 0 < found < 200


def test_every_reference_optimum_is_met_and_proven():
    folder = os.environ.get("MOEPLAN_REFERENCE")
    if not folder or not (Path(folder) / "ring_optima.csv").exists():
        pytest.skip("MOEPLAN_REFERENCE names no folder with ring_optima.csv")
    with (Path(folder) / "ring_optima.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    for row in rows:
        topology = grid(int(row["mesh_rows"]), int(row["mesh_cols"]))
        cores = tuple(int(core) for core in row["cores"].split())
        result = solve(RingProblem(topology, cores, objective="hops"), "exact", budget=BUDGET)
        assert result.stop is Stop.OPTIMAL
        assert result.cost.objective_s == int(row["optimal_bottleneck_hops"])


@pytest.mark.parametrize("solver", ["exact", "ilp"])
def test_totals_are_bounded_once_for_every_limit(monkeypatch, solver):
    asked: list[int] = []
    bound = RingProblem.least_total

    def counted(problem: RingProblem, limit: int) -> int:
        asked.append(limit)
        return bound(problem, limit)

    monkeypatch.setattr(RingProblem, "least_total", counted)
    rng = np.random.default_rng(3)
    turns = 0
    for _ in range(10):
        problem = RingProblem(grid(4, 8), tuple(rng.choice(32, 9, replace=False).tolist()))
        _ = problem.floor  # asks for itself
        asked.clear()
        assert solve(problem, solver, budget=BUDGET).stop is Stop.OPTIMAL
        assert len(asked) == len(set(asked))
        turns += len(asked)
    assert turns >= 10
