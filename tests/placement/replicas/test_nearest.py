"""A placement where one exists, on random small instances against brute force; the fewest moves to one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest

from moeplan.common.errors import NothingFound, ProvenInfeasible
from moeplan.placement import Budget, Stop, solve
from moeplan.placement.planning import Search
from moeplan.placement.replicas.nearest import Nearest
from moeplan.placement.replicas.planning import plan_replicas
from moeplan.placement.replicas.problem import ReplicaProblem

from .instances import optimum, problem

SOLVERS = ("auto", "joint", "annealing")
SHORT = Budget(time_s=None, iterations=30)


def fewest_moves(posed: ReplicaProblem) -> int | None:
    """Try every way to fill the ranks, in plain Python; None where none keeps the rules."""
    settings, ranks, current = posed.settings, posed.ranks, posed.current
    fill = itertools.combinations_with_replacement if settings.duplicates else itertools.combinations
    options = []
    for g, room in enumerate(ranks.room):
        before = Counter([] if current is None else current[ranks.start[g] : ranks.start[g + 1]].tolist())
        kinds: dict[frozenset[int], int] = {}
        for held in fill(range(posed.experts), room):
            moves = 0 if current is None else (Counter(held) - before).total()
            kinds[frozenset(held)] = min(moves, kinds.get(frozenset(held), moves))
        options.append(list(kinds.items()))
    fewest = None
    for way in itertools.product(*options):
        moves = sum(moves for _, moves in way)
        if (fewest is None or moves < fewest) and keeps_rules(posed, [held for held, _ in way]):
            fewest = moves
    return fewest


def keeps_rules(posed: ReplicaProblem, held: list[frozenset[int]]) -> bool:
    """Whether every expert is held, and every node has its own groups, equally many."""
    if len(frozenset().union(*held)) < posed.experts:
        return False
    size = posed.experts // posed.settings.groups
    at = {(g // posed.ranks.per_node, e // size) for g, own in enumerate(held) for e in own}
    even = len(set(Counter(node for node, _ in at).values())) == 1
    return posed.settings.groups == 1 or (len(at) == posed.settings.groups and even)


def drawn(seed: int, most: int = 5000) -> ReplicaProblem:
    """2 to 5 experts on 1 to 4 ranks; groups, speeds, a current placement and a limit, or not."""
    rng = np.random.default_rng(seed)
    while True:
        experts, ranks = int(rng.integers(2, 6)), int(rng.integers(1, 5))
        nodes = int(rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]))
        choices = [g for g in range(1, experts + 1) if experts % g == 0 and (g == 1 or g % nodes == 0)]
        room, duplicates = tuple(int(r) for r in rng.integers(1, 5, ranks)), bool(rng.integers(2))
        kinds = [math.comb(experts + r - 1, r) if duplicates else math.comb(experts, r) for r in room]
        if math.prod(kinds) <= most:
            break
    slots = sum(room)
    now = rng.integers(0, experts, slots) if rng.random() < 0.6 else np.arange(slots) % experts
    there = rng.random() < 0.8
    return problem(
        rng.integers(0, 9, (int(rng.integers(1, 3)), experts)) + (np.arange(experts) == 0),
        nodes,
        room,
        speed=tuple(rng.choice([0.5, 1.0, 2.0], ranks).tolist()) if rng.random() < 0.3 else (),
        current=now if there else None,
        groups=int(rng.choice(choices)),
        duplicates=duplicates,
        max_moves=int(rng.integers(0, slots + 1)) if there and rng.random() < 0.9 else None,
        drift=0.4 if rng.random() < 0.2 else 0.0,
        risk=1.5 if rng.random() < 0.2 else 0.0,
        tile=4 if rng.random() < 0.2 else 1,
    )


def test_a_placement_is_found_just_where_one_exists():
    met = {True: 0, False: 0}
    for seed in range(200):
        posed = drawn(seed)
        fewest, limit = fewest_moves(posed), posed.settings.max_moves
        exists = fewest is not None and (limit is None or fewest <= limit)
        met[exists] += 1
        if fewest is not None:
            assert (posed.nearest.at_least, posed.nearest.enough) == (fewest, fewest), seed
        for solver in SOLVERS:
            result = solve(posed, solver, budget=SHORT)
            assert (result.decision is not None) == exists, (seed, solver)
            assert (result.stop is Stop.INFEASIBLE) == (not exists), (seed, solver)
    assert min(met.values()) > 50


@pytest.mark.parametrize("solver", SOLVERS)
def test_ranks_that_must_hold_everything(solver):
    posed = problem([5.0, 3.0, 1.0], 2, (1, 1, 3, 3), speed=(1.0, 2.0, 0.5, 1.0))
    found = solve(posed, solver, budget=SHORT)
    assert found.decision is not None
    assert found.cost.objective_s == pytest.approx(optimum(posed))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_current_placement_that_lacks_an_expert(solver):
    posed = problem(
        [2.0, 2.0, 0.0, 3.0], 1, (2, 2), speed=(0.5, 2.0), current=[3, 3, 1, 3],
        duplicates=True, max_moves=2, risk=1.5, drift=0.4, tile=4,
    )  # fmt: skip
    found = solve(posed, solver, budget=SHORT)
    assert found.decision is not None
    assert found.cost.objective_s == pytest.approx(optimum(posed))


def spread(kind: str) -> ReplicaProblem:
    """64 experts in 8 groups on 4 nodes, from a placement that breaks the rule of groups."""
    rng = np.random.default_rng(0)
    now = np.arange(80) % 64 if kind == "linear" else rng.integers(0, 64, 80)
    load = rng.poisson(rng.gamma(0.5, 600, 64))
    return problem(load, 4, (5,) * 16, groups=8, current=now, max_moves=80)


def limited_to(posed: ReplicaProblem, moves: int) -> ReplicaProblem:
    return dataclasses.replace(posed, settings=dataclasses.replace(posed.settings, max_moves=moves))


def test_what_engines_load_needs_the_moves_that_were_counted_by_hand():
    # Groups hold 8 experts. Node 0 has groups 0, 1 and half of 2; node 1 the rest of 2, 3, 4; node 2 has 5, 6
    # and half of 7; node 3 the rest of 7, then 0 and 1 again. Nodes 1 and 2 keep 16 slots each at most (3 and
    # 4, 5 and 6); nodes 0 and 3 together 8 of group 0, 8 of 1, and 4 each of 2 and 7: 56 of 80 stay.
    assert spread("linear").nearest.at_least == spread("linear").nearest.enough == 24


@pytest.mark.parametrize("kind", ["linear", "random"])
@pytest.mark.parametrize("solver", ["auto", "joint"])
def test_groups_come_together_in_the_fewest_moves(kind, solver):
    posed = spread(kind)
    needs = posed.nearest.enough
    assert posed.nearest.at_least == needs
    found = solve(limited_to(posed, needs), solver, budget=SHORT)
    assert found.decision is not None
    assert posed.check(found.decision) is None
    assert posed.moved(found.decision) == needs
    with pytest.raises(
        ProvenInfeasible, match=rf"at least {needs} slots .* allowed are {needs - 1}"
    ) as error:
        plan_replicas([limited_to(posed, needs - 1)], search=Search(solver, SHORT))
    assert error.value.fix == f"max_moves {needs} suffices in every layer"


def test_too_few_slots_are_not_a_matter_of_moves():
    posed = problem([1.0, 2.0, 3.0], 1, (1, 1), current=[0, 0], max_moves=0)
    with pytest.raises(ProvenInfeasible, match="2 slots for 3 experts") as error:
        plan_replicas([posed], search=Search("auto", SHORT))
    assert "number of slots" in error.value.fix


def test_what_is_not_proven_says_so():
    posed = limited_to(spread("random"), 40)
    posed.__dict__["nearest"] = Nearest(30, 52, np.arange(8) // 2)
    with pytest.raises(
        NothingFound, match=r"at least 30 .* 52 are known to suffice, allowed are 40"
    ) as error:
        plan_replicas([posed], search=Search("auto", SHORT))
    assert error.value.fix == "max_moves 52 suffices"


def test_who_finds_nothing_does_not_send_the_user_round_in_a_circle():
    posed = problem([9.0, 1.0, 1.0, 1.0], 1, (2, 3), current=[0, 1, 2, 3, 1], max_moves=0)
    with pytest.raises(NothingFound, match="its answer breaks a rule") as error:
        plan_replicas([posed], search=Search("snake", SHORT))
    assert error.value.fix == "take the solver auto: there is a placement"
    assert plan_replicas([posed], search=Search("auto", SHORT)).layers[0].result.decision is not None


def test_loads_decide_what_the_fewest_moves_leave_open():
    # The duplicates give way: to 2, which has no slot, and to the largest load that the other rank may take.
    posed = problem([8.0, 2.0, 2.0], 1, (2, 2), current=[0, 0, 1, 1], max_moves=2)
    found = solve(posed, "joint", budget=SHORT)
    assert found.decision is not None
    assert posed.has(found.decision).tolist() == [[1, 1], [0, 1], [1, 0]]
    assert found.cost.objective_s == pytest.approx(6.0)
