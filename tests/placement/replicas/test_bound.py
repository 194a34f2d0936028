"""Bounds hold against brute force, and are reached where they should be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moeplan.placement.replicas.bound_kernel import cardinality, largest_replica
from moeplan.placement.replicas.ranks import pairings

from .instances import TIMED, optimum, problem


def loads(seed: int, experts: int, steps: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.round(rng.gamma(0.6, 30.0, (steps, experts))) + 1.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("experts", "nodes", "room", "settings"),
    [
        (4, 1, (2, 2, 2), {}),
        (4, 1, (2, 2, 2), {"duplicates": True}),
        (6, 1, (2, 2, 2), {}),
        (4, 1, (3, 1, 2), {}),
        (4, 2, (2, 1, 2, 1), {"groups": 2}),
        (4, 2, (2, 2, 1, 1), {"groups": 4}),
        (4, 1, (2, 2, 2), {"speed": (1.0, 0.5, 2.0)}),
        (4, 1, (2, 2, 2), {"split": "fixed"}),
        (4, 1, (2, 2, 2), {"split": "nearest", "traffic_weight": 0.5}),
        (4, 2, (2, 2, 1, 1), {"traffic_weight": 0.5}),
        (4, 1, (2, 2, 2), {"risk": 1.0, "drift": 0.3}),
        (4, 1, (2, 2, 2), {"drift": None}),
        (4, 1, (3, 1, 2), {"drift": 0.8, "duplicates": True, "speed": (1.0, 0.5, 2.0)}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED, "drift": 0.5, "split": "nearest"}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED, "drift": None}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED, "groups": 2, "traffic_weight": 0.3}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED, "split": "nearest", "groups": 2}),
        (4, 1, (2, 2, 2), {"rates": TIMED, "speed": (1.0, 0.5, 2.0)}),
        (4, 1, (2, 2, 2), {"rates": TIMED._replace(expert_s=0.0, across_s=1e-4, inside_s=1e-5)}),
        (4, 2, (2, 2, 1, 1), {"rates": TIMED, "tile": 8, "split": "hash"}),
    ],
)
def test_no_placement_is_below_the_bound(seed, experts, nodes, room, settings):
    steps = 1 + seed % 2
    posed = problem(loads(seed, experts, steps), nodes, room, **settings)
    assert posed.lower_bound().value_s <= optimum(posed) * (1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_the_largest_replica_is_the_least_over_all_counts(seed):
    weight = loads(seed, 4)[0]
    counts = (c for c in itertools.product(range(1, 4), repeat=4) if sum(c) == 7)
    least = min(max(weight / np.array(c)) for c in counts)
    assert largest_replica(weight, 3, 3) == pytest.approx(least)


def test_cardinality_by_hand():
    # Two ranks of three: 9 shares its rank with at least 1 + 1; of 9, 8, 7 some rank has two: 7 + 8 + 1.
    assert cardinality(np.array([9.0, 8.0, 7.0, 1.0, 1.0, 1.0]), 2) == 16.0
    posed = problem([9.0, 8.0, 7.0, 1.0, 1.0, 1.0], 1, (3, 3))
    assert posed.lower_bound().value_s == pytest.approx(16.0)
    assert optimum(posed) == pytest.approx(16.0)


def test_the_bound_is_reached_where_loads_are_even():
    posed = problem([6.0, 6.0, 3.0, 3.0], 1, (2, 2, 2))
    assert posed.lower_bound().value_s == pytest.approx(optimum(posed)) == pytest.approx(6.0)


def test_groups_raise_the_bound():
    # Group 0 has 11 of 13 tokens and stays on one node, that is on two of the four ranks.
    counts = [8.0, 2.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    tied = problem(counts, 2, (3, 3, 2, 2), groups=2)
    free = problem(counts, 1, (3, 3, 2, 2))
    assert tied.lower_bound().value_s == pytest.approx(11 / 2)
    assert free.lower_bound().value_s == pytest.approx(13 / 4)


def test_pairings_are_all_and_each_once():
    assert len(pairings(8, 4, alike=True).ways) == 105
    assert len(pairings(8, 2, alike=True).ways) == 35
    assert len(pairings(4, 2, alike=False).ways) == 6
    several = pairings(6, 3, alike=True)
    seen = {frozenset(frozenset(several.subsets[u].tolist()) for u in way) for way in several.ways}
    assert len(seen) == 15
    assert all(frozenset().union(*way) == frozenset(range(6)) for way in seen)
    assert not pairings(16, 4, alike=True).complete
