"""Bounds by hand, never above any ring, and never above the best one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.hardware.topology import without
from moeplan.placement.ring.bounds import colours, hops_floor, total_floor
from moeplan.placement.ring.limits import least_collective_s
from moeplan.placement.ring.one_tree import least_total
from moeplan.placement.ring.problem import RingProblem

from .instances import front, grid, wrapped

checked = settings(deadline=None, derandomize=True, max_examples=50)


def hops_of(topology, cores):
    return RingProblem(topology, cores).hops


@pytest.mark.parametrize(
    ("rows", "cols", "cores", "expected"),
    [
        (1, 8, (0, 7), (7, "two cores")),
        (4, 8, range(32), (1, "second-nearest neighbour")),
        (1, 5, range(5), (2, "second-nearest neighbour")),  # the end has one neighbour
        (3, 3, range(9), (2, "parity")),  # five black cells, four white ones
        (1, 8, (0, 1, 2, 5, 6, 7), (4, "biconnectivity")),  # without 2, the left meets the right at 1 -> 5
    ],
)
def test_hops_floor_by_hand(rows, cols, cores, expected):
    assert hops_floor(hops_of(grid(rows, cols), tuple(cores))) == expected


def test_total_floor_by_hand():
    # 3 x 3: nine cores, one black cell too many, so one of the hops between equals: 9 + 1 = 10, even.
    assert total_floor(hops_of(grid(3, 3), tuple(range(9)))) == 10
    # Two cores at distance 3: there and back.
    assert total_floor(hops_of(grid(1, 4), (0, 3))) == 6
    # 0, 1 and 7 on a line: nearest two of each are 1 + 7, 1 + 6 and 6 + 7, half of 28.
    assert total_floor(hops_of(grid(1, 8), (0, 1, 7))) == 14


def test_one_tree_by_hand():
    # Two pairs at distance 20 on a line: the nearest two hops of each core are 1 and 20 or so, but a ring has
    # to cross the gap twice: 1 + 1 + 20 + 20 = 42 at least, and 0, 1, 22, 21 -> 1 + 21 + 1 + 21 = 44 is best.
    hops = hops_of(grid(1, 23), (0, 1, 21, 22))
    assert least_total(hops, 23) == 44


@pytest.mark.parametrize(
    ("rows", "cols", "duplex", "pair", "load"),
    [
        (4, 8, "full", False, 1),
        (4, 8, "half", False, 1),
        (1, 5, "half", False, 2),  # every wire of a line is crossed there and back
        (1, 5, "full", True, 2),  # each of two rings crosses every link of a line
        (1, 5, "half", True, 4),
        (4, 8, "half", True, 2),  # 2 * 32 transfers on 4 * 7 + 3 * 8 = 52 wires
    ],
)
def test_load_floor_by_hand(rows, cols, duplex, pair, load):
    problem = RingProblem(grid(rows, cols, duplex), tuple(range(rows * cols)), pair=pair)
    assert problem.floor.counts[0] == load


def test_colours():
    assert colours(hops_of(grid(2, 2), (0, 1, 2, 3))).tolist() == [0, 1, 1, 0]
    assert colours(hops_of(wrapped(3, 3), tuple(range(9)))) is None  # a triangle around the torus
    assert colours(hops_of(wrapped(4, 4), tuple(range(16)))) is not None


TOPOLOGIES = {
    "mesh": grid(3, 5),
    "half": grid(3, 5, "half"),
    "torus": wrapped(3, 5),
    "broken": without(grid(3, 5, "half"), sites=[7], links=[(0, 1)]),
}


@checked
@given(st.integers(0, 10_000), st.sampled_from(sorted(TOPOLOGIES)), st.integers(2, 8), st.booleans())
def test_no_order_is_below_its_bounds(seed, name, n, pair):
    topology = TOPOLOGIES[name]
    working = np.setdiff1d(np.arange(15), topology.failed)
    cores = tuple(np.random.default_rng(seed).choice(working, n, replace=False).tolist())
    problem = RingProblem(topology, cores, pair=pair)
    best = front(problem)
    load, hops, _ = problem.floor.counts
    assert load <= min(measure.link_load for measure in best)
    assert hops <= min(measure.bottleneck_hops for measure in best)
    assert total_floor(problem.hops) <= min(measure.total_hops for measure in best)
    for measure in best:
        assert problem.least_total(measure.bottleneck_hops) <= measure.total_hops
    for objective in ("hops", "load,hops,total", "time"):
        posed = RingProblem(topology, cores, objective=objective, pair=pair, message_bytes=6.0)
        least = min(posed.value(measure) for measure in best)
        assert posed.lower_bound().value_s <= least * (1 + 1e-12)


def test_bandwidth_limits_by_hand():
    # 4 x 8, 1000 bytes a core, 1e9 bytes/s. A corner has two links and receives 31 blocks: 15.5 us.
    everyone = tuple(range(32))
    problem = RingProblem(grid(4, 8), everyone, message_bytes=1000.0)
    assert least_collective_s(problem, "all_gather") == pytest.approx(15.5e-6)
    # All-reduce: 2 * 31 vectors over 2 * 52 directed links are 0.596 us, more than a vector over two links.
    assert least_collective_s(problem, "all_reduce") == pytest.approx(62e-6 / 104)
    # Half duplex: 32 * 31 blocks over 52 wires are 19.08 us, more than 32 blocks over two.
    half = RingProblem(grid(4, 8, "half"), everyone, message_bytes=1000.0)
    assert least_collective_s(half, "all_gather") == pytest.approx(992e-6 / 52)
    assert least_collective_s(half, "all_reduce") == pytest.approx(62e-6 / 52)
    # Two corners of 2 x 2 on half-duplex wires: each receives and sends 1000 bytes over two wires: 1 us.
    corners = RingProblem(grid(2, 2, "half"), (0, 3), message_bytes=1000.0)
    assert least_collective_s(corners, "all_gather") == pytest.approx(1e-6)


@checked
@given(st.integers(0, 10_000), st.sampled_from(sorted(TOPOLOGIES)), st.integers(2, 13), st.booleans())
def test_no_ring_is_faster_than_the_links_allow(seed, name, n, pair):
    topology = TOPOLOGIES[name]
    working = np.setdiff1d(np.arange(15), topology.failed)
    order = np.random.default_rng(seed).permutation(working)[:n]
    problem = RingProblem(topology, tuple(order.tolist()), pair=pair)
    for collective in ("all_gather", "all_reduce"):
        took_s = problem.collective_s(problem.at(np.searchsorted(problem.cores, order)), collective)
        assert least_collective_s(problem, collective) <= took_s
