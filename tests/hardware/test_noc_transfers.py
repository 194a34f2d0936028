"""Transfers and ring collectives in seconds, by the bandwidth and latency of links."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.noc import (
    TRANSFERS_BAND,
    booksim2_router,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_link_load,
    round_cycles,
    route_index,
    transfers_s,
)
from moeplan.hardware.topology import gpu_cluster, mesh, ring, torus, without

from .meshes import BANDWIDTH, HALF, LATENCY, LINK, MESH, checked, transfer_lists

COMB = [0, *range(1, 8), *range(15, 8, -1), *range(17, 24), *range(31, 23, -1), 16, 8]
"""Row 0 to the right, rows 1 to 3 as a snake over columns 1 to 7, home through column 0."""


def link(topology, a, b):
    return topology.link_ends.tolist().index([a, b])


# Transfers


def test_route_index_concatenates_routes():
    routes = route_index(MESH, [0, 5, 9], [10, 5, 8])
    assert routes.start.tolist() == [0, 3, 3, 4]
    assert routes.transfer().tolist() == [0, 0, 0, 2]
    assert routes.links.tolist() == [*MESH.route(0, 10), *MESH.route(9, 8)]
    assert route_index(MESH, [], []).links.size == 0


def test_transfers_by_hand():
    # 0 - 1 - 2 - 3: link 1 -> 2 carries 128 + 64 = 192 bytes: 192 / 64e9 = 3 ns.
    # The longest route has 3 links of 2 ns: 6 ns. The return transfer 3 -> 2 has its own link.
    line = mesh(1, 4, **LINK)
    result = transfers_s(line, [0, 1, 3], [3, 2, 2], [128, 64, 100])
    assert result.bandwidth_s == pytest.approx(3e-9)
    assert result.latency_s == pytest.approx(6e-9)
    assert result.total_s == pytest.approx(9e-9)
    assert result.hottest_link == link(line, 1, 2)
    assert result.largest_link_transfers == 2
    assert not result.contention_free
    # On half duplex nothing else uses the wire 2-3 than 0 -> 3 and 3 -> 2: 228 bytes there, 3.5625 ns.
    half = mesh(1, 4, duplex="half", **LINK)
    result = transfers_s(half, [0, 1, 3], [3, 2, 2], [128, 64, 100])
    assert result.bandwidth_s == pytest.approx(228 / 64e9)
    assert result.hottest_link == link(half, 2, 3)


def test_slowest_link_counts_not_the_fullest():
    # Within a node 900 bytes at 450e9 bytes/s: 2 ns. Across 200 bytes at 50e9: 4 ns, 10 us of latency.
    cluster = gpu_cluster(
        2,
        2,
        nvlink_bandwidth_bytes_per_s=450e9,
        nvlink_latency_s=2e-6,
        network_bandwidth_bytes_per_s=50e9,
        network_latency_s=10e-6,
    )
    result = transfers_s(cluster, [0, 0], [1, 2], [900, 200])
    assert result.bandwidth_s == pytest.approx(4e-9)
    assert result.latency_s == pytest.approx(10e-6)
    assert cluster.link_ends[result.hottest_link].tolist() == [0, 6]


def test_nothing_to_move_costs_nothing():
    for sources, destinations, amount in (([], [], 5), ([3, 4], [3, 4], 5), ([0], [1], 0)):
        result = transfers_s(MESH, sources, destinations, amount)
        assert (result.total_s, result.hottest_link, result.contention_free) == (0.0, None, True)
        assert round_cycles(booksim2_router(3), MESH, sources, destinations, amount) == 0


def test_error_band_says_what_is_known():
    def band(topology, sources, destinations):
        return transfers_s(topology, sources, destinations, 64).error_band

    assert band(MESH, [0, 8], [1, 9]) == (0.0, 0.0)
    assert band(MESH, [0, 1], [2, 3]) == TRANSFERS_BAND
    # Two senders meet at site 1 over different links: its port is shared.
    assert band(MESH, [0, 2], [1, 1]) is None
    assert band(HALF, [0, 1], [1, 0]) is None
    assert band(HALF, [0], [1]) == (0.0, 0.0)
    assert band(ring(8, **LINK), [0, 1], [2, 3]) is None


@checked
@given(transfer_lists, st.randoms(use_true_random=False), st.sampled_from([MESH, HALF]))
def test_order_of_transfers_does_not_matter(transfers, shuffler, topology):
    router = booksim2_router(5)
    shuffled = list(transfers)
    shuffler.shuffle(shuffled)
    columns, mixed = list(zip(*transfers, strict=True)), list(zip(*shuffled, strict=True))
    a, b = transfers_s(topology, *columns), transfers_s(topology, *mixed)
    assert a.total_s == pytest.approx(b.total_s, rel=1e-12)
    assert (a.largest_link_transfers, a.contention_free) == (b.largest_link_transfers, b.contention_free)
    assert round_cycles(router, topology, *columns) == round_cycles(router, topology, *mixed)


@checked
@given(transfer_lists, st.integers(1, 500), st.sampled_from([MESH, HALF]))
def test_more_transfers_or_bytes_never_take_less(transfers, extra, topology):
    router = booksim2_router(5)
    seconds, cycles = 0.0, 0
    for n in range(1, len(transfers) + 1):
        sources, destinations, amount = map(list, zip(*transfers[:n], strict=True))
        longer = transfers_s(topology, sources, destinations, amount).total_s
        more = round_cycles(router, topology, sources, destinations, amount)
        assert longer >= seconds * (1 - 1e-12)
        assert more >= cycles
        seconds, cycles = longer, more
    amount[0] += extra
    assert transfers_s(topology, sources, destinations, amount).total_s >= seconds
    assert round_cycles(router, topology, sources, destinations, amount) >= cycles


@checked
@given(transfer_lists)
def test_transfers_equal_a_walk_over_the_grid(transfers):
    carried, hops = {}, 0
    for source, destination, amount in transfers:
        row, col = divmod(source, 8)
        to_row, to_col = divmod(destination, 8)
        steps = 0
        while (row, col) != (to_row, to_col) and amount:
            ahead = (row, col + (1 if to_col > col else -1)) if col != to_col else None
            ahead = ahead or (row + (1 if to_row > row else -1), col)
            carried[row, col, ahead] = carried.get((row, col, ahead), 0) + amount
            (row, col), steps = ahead, steps + 1
        hops = max(hops, steps)
    expected = max(carried.values(), default=0) / BANDWIDTH + hops * LATENCY
    assert transfers_s(MESH, *zip(*transfers, strict=True)).total_s == pytest.approx(expected, rel=1e-12)


# Rings


def test_row_major_rings_share_no_link_exhaustive():
    # Theorem: a ring that visits cores in row-major id order loads no link twice (XY, full duplex).
    small = mesh(3, 4, **LINK)
    for n in range(2, 13):
        for cores in itertools.combinations(range(12), n):
            assert ring_link_load(small, cores).max() == 1


def test_row_major_rings_share_no_link_random():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        cores = np.flatnonzero(rng.random(32) < rng.uniform(0.1, 0.9))
        if len(cores) > 1:
            assert ring_link_load(MESH, cores).max() == 1


def snake(rows, cols):
    grid = np.arange(rows * cols).reshape(rows, cols)
    grid[1::2] = grid[1::2, ::-1]
    return grid.ravel().tolist()


@pytest.mark.parametrize(("rows", "cols"), [(4, 8), (8, 4), (6, 3)])
def test_snake_trap(rows, cols):
    # An open snake ends in the first column of the last row: its way home has rows - 1 links.
    topology = mesh(rows, cols, **LINK)
    order = snake(rows, cols)
    hops = topology.hops[order, np.roll(order, -1)]
    assert hops.tolist() == [1] * (rows * cols - 1) + [rows - 1]


def test_comb_and_identity_rings():
    assert sorted(COMB) == list(range(32))
    assert (MESH.hops[COMB, np.roll(COMB, -1)] == 1).all()
    assert ring_link_load(MESH, COMB).max() == 1
    assert ring_link_load(HALF, COMB).max() == 1
    # Row-major order on half duplex: the way back to the next row's start shares the row's wires.
    assert ring_link_load(HALF, range(32)).max() == 2
    assert ring_link_load(MESH, [5]).sum() == 0
    assert ring_link_load(MESH, [5, 4]).dtype == np.int32


def test_uneven_all_gather_by_hand():
    # 0 - 1 - 2 with blocks 100, 200, 300. Edge 0 -> 1 carries 600 - 200 = 400 bytes, 1 -> 2 carries
    # 300, 2 -> 0 carries 500 over two links. Full duplex: 500 bytes on the busiest link; two rounds of
    # an edge of 2 links. Half duplex: wire 0-1 carries 400 + 500.
    blocks = [100, 200, 300]
    full = ring_all_gather_s(mesh(1, 3, **LINK), [0, 1, 2], blocks)
    assert full == pytest.approx(500 / BANDWIDTH + 2 * 2 * LATENCY)
    half = ring_all_gather_s(mesh(1, 3, duplex="half", **LINK), [0, 1, 2], blocks)
    assert half == pytest.approx(900 / BANDWIDTH + 2 * 2 * LATENCY)


def test_all_reduce_by_hand():
    # 32 cores, comb, 64 KiB: 2 * 31 rounds of 2048 bytes over 1 link: 32 ns + 2 ns each.
    assert ring_all_reduce_s(MESH, COMB, 65536) == pytest.approx(62 * (2048 / BANDWIDTH + LATENCY))
    # Row-major on half duplex: load 2 and the way home of 7 + 3 = 10 links.
    expected = 62 * (2 * 2048 / BANDWIDTH + 10 * LATENCY)
    assert ring_all_reduce_s(HALF, range(32), 65536) == pytest.approx(expected)
    for topology in (MESH, HALF):
        assert ring_all_reduce_s(topology, [7], 65536) == 0.0
        assert ring_all_gather_s(topology, [7], 65536) == 0.0
        assert ring_all_reduce_s(topology, COMB, 0) == 0.0
        assert ring_all_gather_s(topology, COMB, 0) == 0.0


orders = st.permutations(list(range(12))).flatmap(
    lambda order: st.integers(2, 12).map(lambda n: list(order[:n]))
)


@checked
@given(orders, st.integers(1, 10_000), st.sampled_from(["full", "half"]))
def test_equal_blocks_are_rounds(order, block, duplex):
    topology = torus(3, 4, duplex=duplex, **LINK)
    one_round = transfers_s(topology, order, np.roll(order, -1), block).total_s
    all_gather = ring_all_gather_s(topology, order, block)
    assert all_gather == pytest.approx((len(order) - 1) * one_round, rel=1e-12)
    all_reduce = ring_all_reduce_s(topology, order, block * len(order))
    assert all_reduce == pytest.approx(2 * all_gather, rel=1e-12)


@checked
@given(orders, st.data(), st.sampled_from(["full", "half"]))
def test_uneven_all_gather_equals_its_rounds_on_the_links(order, data, duplex):
    topology = mesh(3, 4, duplex=duplex, **LINK)
    n = len(order)
    blocks = data.draw(st.lists(st.integers(1, 1000), min_size=n, max_size=n))
    carried = dict.fromkeys(range(topology.links), 0)
    latency = 0.0
    for r, i in itertools.product(range(n - 1), range(n)):  # in round r, i passes on block i - r
        for name in topology.route(order[i], order[(i + 1) % n]).tolist():
            carried[name] += blocks[(i - r) % n]
        latency = max(latency, topology.hops[order[i], order[(i + 1) % n]] * LATENCY)
    expected = max(carried.values()) / BANDWIDTH + (n - 1) * latency
    assert ring_all_gather_s(topology, order, blocks) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transfers_s(MESH, [0, 1], [2], 8), "2 sources and 1 destinations"),
        (lambda: transfers_s(MESH, [0], [32], 8), "there is no site 32"),
        (lambda: transfers_s(MESH, [-1], [3], 8), "there is no site -1"),
        (lambda: transfers_s(MESH, [0.5], [3], 8), "list of whole numbers"),
        (lambda: transfers_s(MESH, [[0]], [[3]], 8), "list of whole numbers"),
        (lambda: transfers_s(MESH, [0], [3], -8), "at least 0 and finite"),
        (lambda: transfers_s(MESH, [0], [3], float("nan")), "at least 0 and finite"),
        (lambda: transfers_s(MESH, [0, 1], [3, 4], [1, 2, 3]), "do not fit 2 transfers"),
        (lambda: transfers_s(without(MESH, sites=[3]), [0], [3], 8), "site 3 has failed"),
        (lambda: ring_link_load(MESH, []), "at least one member"),
        (lambda: ring_link_load(MESH, [1, 2, 1]), "site 1 is in the ring 2 times"),
        (lambda: ring_all_gather_s(MESH, [1, 40], 8), "there is no site 40"),
        (lambda: ring_all_gather_s(MESH, [1, 2, 3], [8, 8]), "do not fit 3"),
        (lambda: ring_all_reduce_s(MESH, [1, 2], -8), "at least 0"),
        (lambda: ring_link_load(without(MESH, sites=[9]), [8, 9]), "site 9 has failed"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(UsageError, match=message):
        call()
