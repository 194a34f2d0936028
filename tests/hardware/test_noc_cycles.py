"""Rounds in cycles of a router: by hand, by the formula, and against BookSim2 and Noxim."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.noc import (
    ROUND_BAND,
    Router,
    booksim2_router,
    noxim_router,
    ring_link_load,
    ring_round_cycles,
    round_cycles,
    zero_load_cycles,
)
from moeplan.hardware.topology import mesh

from .meshes import HALF, LINK, MESH, checked, transfer_lists


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
