"""Kernels against plain counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.placement.ring.anneal_kernel import anneal, sample
from moeplan.placement.ring.local import nearest_neighbour, two_opt, two_opt_largest
from moeplan.placement.ring.problem import RingProblem
from moeplan.placement.search.random import seeded

from .instances import grid

WEIGHT = 3
checked = settings(deadline=None, derandomize=True, max_examples=40)


def lengths(hops, order):
    return hops[order, np.roll(order, -1)]


def test_nearest_neighbour_by_hand():
    # On a line from 0: 0, 2, 3 (one away), 6; ties to the lowest id.
    order = np.empty(4, dtype=np.int32)
    nearest_neighbour(RingProblem(grid(1, 7), (0, 2, 3, 6)).hops, 0, order)
    assert order.tolist() == [0, 1, 2, 3]
    nearest_neighbour(RingProblem(grid(1, 7), (0, 2, 4, 6)).hops, 1, order)
    assert order.tolist() == [1, 0, 2, 3]


@checked
@given(st.integers(0, 10_000), st.integers(4, 20))
def test_2opt_ends_where_no_reversal_helps(seed, n):
    rng = np.random.default_rng(seed)
    hops = RingProblem(grid(5, 6), tuple(rng.permutation(30)[:n])).hops
    begun = rng.permutation(n).astype(np.int32)
    published, own = begun.copy(), begun.copy()
    two_opt_largest(hops, published)
    two_opt(hops, own)
    for order, better in ((published, _largest_falls), (own, _changed_hops_fall)):
        assert sorted(order) == list(range(n))
        for i in range(n - 1):
            for j in range(i + 1, n):
                other = np.concatenate([order[: i + 1], order[i + 1 : j + 1][::-1], order[j + 1 :]])
                assert not better(hops, order, other, i, j)
    assert lengths(hops, published).max() <= lengths(hops, begun).max()


def _largest_falls(hops, order, other, i, j):
    return lengths(hops, other).max() < lengths(hops, order).max()


def _changed_hops_fall(hops, order, other, i, j):
    was, now = lengths(hops, order)[[i, j]], lengths(hops, other)[[i, j]]
    return (now.max(), now.sum()) < (was.max(), was.sum())


def energy(problem, order, most_hops, most_load):
    """Total, excess and their weighted sum, counted afresh."""
    hops = lengths(problem.hops, order)
    load = np.zeros(problem.topology.links, dtype=int)
    for i, j in zip(order, np.roll(order, -1), strict=True):
        arc = i * problem.n + j
        np.add.at(load, problem.arcs.links[problem.arcs.start[arc] : problem.arcs.start[arc + 1]], 1)
    excess = np.maximum(0, hops - most_hops).sum() + np.maximum(0, load - most_load).sum()
    return hops.sum(), excess, hops.sum() + WEIGHT * excess


def network(problem, most_hops, most_load):
    hops = problem.hops
    near = np.argsort(hops + 99 * np.eye(problem.n, dtype=int), axis=1, kind="stable")[:, :8].astype(np.int32)
    price = (hops + WEIGHT * np.maximum(0, hops - most_hops)).astype(np.int32)
    load = np.zeros(problem.topology.links, dtype=np.int32)
    arcs = problem.arcs
    return (
        hops.ravel(),
        price.ravel(),
        np.ascontiguousarray(near),
        arcs.start,
        arcs.links,
        load,
        most_load,
        WEIGHT,
    )


@checked
@given(st.integers(0, 10_000), st.integers(4, 16), st.sampled_from(["full", "half"]), st.booleans())
def test_annealing_reports_what_it_found(seed, n, duplex, pair):
    rng = np.random.default_rng(seed)
    problem = RingProblem(grid(4, 5, duplex), tuple(rng.permutation(20)[:n]), pair=pair)
    order = rng.permutation(n).astype(np.int32)
    begun, best = order.copy(), np.empty_like(order)
    tables = network(problem, 2, 1)
    excess, made = anneal(*tables, order, seeded(seed), 0, 500, 4.0, 0.3, best)
    assert made == 500
    assert sorted(best) == sorted(order) == list(range(n))
    total, counted, _ = energy(problem, best, 2, 1)
    assert excess == counted
    assert (counted, total) <= energy(problem, begun, 2, 1)[1::-1]
    # The state that was carried along still is the state of the order that is left.
    left = energy(problem, order, 2, 1)
    assert (
        np.maximum(0, tables[5] - 1).sum() + np.maximum(0, lengths(problem.hops, order) - 2).sum() == left[1]
    )
    assert tables[5].sum() == lengths(problem.hops, order).sum() * (2 if pair else 1)


@checked
@given(st.integers(0, 10_000), st.sampled_from(["full", "half"]))
def test_sampling_leaves_no_trace(seed, duplex):
    rng = np.random.default_rng(seed)
    problem = RingProblem(grid(4, 5, duplex), tuple(rng.permutation(20)[:10]))
    order = rng.permutation(10).astype(np.int32)
    kept, deltas, tables = order.copy(), np.empty(200), network(problem, 2, 1)
    sample(*tables, order, seeded(seed), deltas)
    assert order.tolist() == kept.tolist()
    assert tables[5].sum() == lengths(problem.hops, order).sum()
    # A descent from here can gain no more than the best proposal said in its first step.
    known = deltas[np.isfinite(deltas)]
    assert len(known) > 50
    assert np.all(known == np.round(known))


def test_annealing_ends_at_its_goal():
    problem = RingProblem(grid(2, 4), tuple(range(8)))
    order, best = np.arange(8, dtype=np.int32), np.empty(8, dtype=np.int32)
    excess, made = anneal(*network(problem, 1, 1), order, seeded(1), 8, 100_000, 3.0, 0.3, best)
    assert excess == 0
    assert made < 100_000
    assert lengths(problem.hops, best).tolist() == [1] * 8
