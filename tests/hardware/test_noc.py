import csv
import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.noc import (
    ROUND_BAND,
    TRANSFERS_BAND,
    Router,
    booksim2_router,
    noxim_router,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_link_load,
    ring_round_cycles,
    round_cycles,
    route_index,
    transfers_s,
    zero_load_cycles,
)
from moeplan.hardware.topology import gpu_cluster, mesh, ring, torus, without

BANDWIDTH = 64e9
LATENCY = 2e-9
LINK = {"link_bandwidth_bytes_per_s": BANDWIDTH, "hop_latency_s": LATENCY}
MESH = mesh(4, 8, **LINK)
HALF = mesh(4, 8, duplex="half", **LINK)
COMB = [0, *range(1, 8), *range(15, 8, -1), *range(17, 24), *range(31, 23, -1), 16, 8]
"""Row 0 to the right, rows 1 to 3 as a snake over columns 1 to 7, home through column 0."""

checked = settings(deadline=None, derandomize=True, max_examples=60)
transfer_lists = st.lists(
    st.tuples(st.integers(0, 31), st.integers(0, 31), st.integers(0, 5000)), min_size=1, max_size=24
)


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


# Cycles


def test_zero_load_by_hand():
    # BookSim2: t(h + 1) + 2 + L - 1. t = 3, 4 hops, 8 flits: 3 * 5 + 2 + 7 = 24.
    assert zero_load_cycles(booksim2_router(3), 4, 8) == 24
    assert zero_load_cycles(booksim2_router(4), 4, 8) == 4 * 5 + 2 + 7
    assert zero_load_cycles(booksim2_router(5), 1, 1) == 5 * 2 + 2
    # Noxim: 2h + 2 + 2(L - 1) = 8 + 2 + 14.
    assert zero_load_cycles(noxim_router(), 4, 8) == 24
    # Three packets of 8, 8 and 4 flits, t = 5: 5 * 3 + 2 + 19 cycles and two gaps of 2.
    assert zero_load_cycles(booksim2_router(5), 2, 20) == 15 + 2 + 19 + 2 * 2
    assert zero_load_cycles(booksim2_router(3), 0, 8) == zero_load_cycles(booksim2_router(3), 3, 0) == 0


def test_round_of_a_snake_by_hand():
    # Eight cores, all hops of 1 link, 32 flits in 4 packets: t = 3: 32 + 3 * 2 + 2 - 1 = 39;
    # t = 5: 32 + 4 gaps of 2 + 5 * 2 + 2 - 1 - 2 = 49; Noxim: 2 * 32 + 2 * 1 + 2 - 2 = 66.
    order = [0, 1, 2, 3, 11, 10, 9, 8]
    assert ring_round_cycles(booksim2_router(3), MESH, order, 32) == 39
    assert ring_round_cycles(booksim2_router(5), MESH, order, 32) == 49
    assert ring_round_cycles(noxim_router(), MESH, order, 32) == 66


def test_shared_link_by_hand():
    # 0 -> 2 and 1 -> 3 on a line share 1 -> 2. Each needs 8 cycles there. 1 -> 3 has travelled 0 hops
    # and has 2 ahead, 0 -> 2 has travelled 1 and has 1 ahead: both pass after the first 0 hops, then 2
    # hops are ahead: 16 + 3 * (0 + 2) + 5 - 1 = 26.
    router = booksim2_router(3)
    assert round_cycles(router, mesh(1, 4, **LINK), [0, 1], [2, 3], 8) == 26
    # Two senders, one receiver, no shared link: its port takes 16 cycles, after 1 hop: 16 + 3 + 4.
    assert round_cycles(router, mesh(1, 3, **LINK), [0, 2], [1, 1], 8) == 23


def naive_round_cycles(router, topology, transfers):
    """The formula of `round_cycles` word by word, over every link and port and every u."""
    queues = {}
    for source, destination, flits in transfers:
        if source == destination or flits == 0:
            continue
        route = topology.route(source, destination).tolist()
        gaps = router.packet_gap_cycles * -(-flits // router.packet_flits)
        busy = flits / router.link_flits_per_cycle + gaps
        for before, name in enumerate(route):
            queues.setdefault(name, []).append((before, len(route) - before, busy))
        queues.setdefault(("into", source), []).append((0, len(route), busy))
        queues.setdefault(("out of", destination), []).append((len(route), 0, busy))
    worst = 0
    for entries in queues.values():
        for u, _, _ in entries:
            late = [entry for entry in entries if entry[0] >= u]
            ahead = max(after for _, after, _ in late)
            worst = max(worst, sum(busy for _, _, busy in late) + router.head_cycles * (u + ahead))
    edge = router.fixed_cycles - router.packet_gap_cycles - 1 / router.link_flits_per_cycle
    return worst + edge if queues else 0


@checked
@given(transfer_lists, st.sampled_from([booksim2_router(3), booksim2_router(5), noxim_router()]))
def test_round_equals_its_formula_word_by_word(transfers, router):
    for topology in (MESH, HALF):
        expected = naive_round_cycles(router, topology, transfers)
        assert round_cycles(router, topology, *zip(*transfers, strict=True)) == expected


@checked
@given(st.integers(0, 31), st.integers(0, 31), st.integers(0, 300))
def test_a_single_transfer_is_zero_load(source, destination, flits):
    router = booksim2_router(5)
    expected = zero_load_cycles(router, int(MESH.hops[source, destination]), flits)
    assert round_cycles(router, MESH, [source], [destination], flits) == expected


def test_router_units_and_values():
    router = booksim2_router(3, flit_bytes=32, clock_hz=2e9)
    assert router.flits(64) == 2
    assert router.flits(65) == 3
    assert router.seconds(10) == pytest.approx(5e-9)
    with pytest.raises(UsageError, match="no BookSim2 router of 6"):
        booksim2_router(6)
    with pytest.raises(UsageError, match="packet_flits of a router must be more than 0, not 0"):
        replace(router, packet_flits=0)
    with pytest.raises(UsageError, match="packet_gap_cycles of a router must be at least 0"):
        replace(router, packet_gap_cycles=-1)
    thirds = Router(2, 2, 0, 1 / 3, 8, 32, 1e9)
    # A third of a flit per cycle: 5 flits occupy a link for 15 cycles, 2 * 1 + 2 + 3 * 4 = 16 in all.
    assert zero_load_cycles(thirds, 1, 5) == 16


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


# Against BookSim2 and Noxim


@pytest.fixture(scope="module")
def reference():
    folder = os.environ.get("MOEPLAN_REFERENCE")
    if not folder or not (Path(folder) / "noc_rounds.csv").exists():
        pytest.skip("MOEPLAN_REFERENCE does not name a folder with noc_rounds.csv")
    with (Path(folder) / "noc_rounds.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def router_of(row):
    packet = int(row["packet_flits"])
    if row["simulator"] == "noxim":
        return noxim_router(packet_flits=packet)
    return booksim2_router(int(row["cycles_per_hop"]), packet_flits=packet)


def rounds(reference, conflicting):
    """Yield (predicted, measured) cycles of the ring rounds with or without a shared link."""
    for row in reference:
        if row["experiment"] != "ring_allgather_round":
            continue
        topology = mesh(int(row["mesh_rows"]), int(row["mesh_cols"]), **LINK)
        order = [int(core) for core in row["ring"].split()]
        load = ring_link_load(topology, order).max()
        assert load == int(row["max_link_load"])
        if (load > 1) == conflicting:
            flits = int(row["msg_flits"])
            yield ring_round_cycles(router_of(row), topology, order, flits), int(row["cycles"])


def test_zero_load_equals_both_simulators(reference):
    rows = [row for row in reference if row["experiment"] == "zero_load"]
    assert {(row["simulator"], row["cycles_per_hop"]) for row in rows} == {
        ("booksim2", "3"),
        ("booksim2", "4"),
        ("booksim2", "5"),
        ("noxim", "2"),
    }
    for row in rows:
        flits = int(row["packet_flits"])
        assert zero_load_cycles(router_of(row), int(row["hops"]), flits) == int(row["cycles"])


def test_contention_free_rounds_equal_both_simulators(reference):
    pairs = list(rounds(reference, conflicting=False))
    assert len(pairs) > 200
    assert [predicted for predicted, _ in pairs] == [measured for _, measured in pairs]


def test_conflicting_rounds_are_close_and_in_the_band(reference):
    predicted, measured = np.array(list(rounds(reference, conflicting=True)), dtype=float).T
    assert len(measured) > 20
    assert np.median(abs(predicted / measured - 1)) <= 0.02
    off = measured / predicted - 1
    assert np.mean((ROUND_BAND[0] <= off) & (off <= ROUND_BAND[1])) >= 0.9
