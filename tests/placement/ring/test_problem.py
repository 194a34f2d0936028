"""What a ring costs, by hand and against the network model; and what is refused."""

from __future__ import annotations

import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.noc import (
    booksim2_router,
    noxim_router,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_round_cycles,
)
from moeplan.hardware.topology import gpu_cluster, without
from moeplan.placement import Bound, Stop, solve
from moeplan.placement.ring.problem import Measure, RingOrder, RingProblem

from .instances import HOP_S, LINK_BYTES_PER_S, grid, wrapped

checked = settings(deadline=None, derandomize=True, max_examples=60)


def test_rotations_are_one_ring_and_directions_are_two():
    assert RingOrder((5, 3, 9)) == RingOrder((9, 5, 3)) == RingOrder(np.array([3, 9, 5]))
    assert RingOrder((5, 3, 9)).order == (3, 9, 5)
    assert RingOrder((3, 9, 5)).reversed() == RingOrder((3, 5, 9)) != RingOrder((3, 9, 5))


def test_square_by_hand():
    # 0 1
    # 2 3   Round 0 -> 1 -> 3 -> 2 -> 0: four hops of one link each, every one on its own link.
    problem = RingProblem(grid(2, 2), (3, 1, 2, 0), message_bytes=1000.0)
    around, crossing = RingOrder((0, 1, 3, 2)), RingOrder((0, 1, 2, 3))
    assert problem.cores == (0, 1, 2, 3)
    assert problem.measure(around) == (1, 1, 4)
    # 1 -> 2 and 3 -> 0 go left first and then down or up: 1 -> 0 -> 2 and 3 -> 2 -> 0. No link twice.
    assert problem.measure(crossing) == (1, 2, 6)
    # 3 rounds of 1000 bytes at 1e9 bytes/s (1 us) and one hop of 4 ns.
    cost = problem.evaluate(around)
    assert cost.total_s == pytest.approx(3 * (1e-6 + 4e-9), rel=1e-12)
    assert cost.parts == pytest.approx({"bandwidth_s": 3e-6, "latency_s": 12e-9})
    # 6 rounds of a quarter of 1000 bytes.
    assert problem.collective_s(around, "all_reduce") == pytest.approx(6 * (0.25e-6 + 4e-9), rel=1e-12)
    # Rank: the diameter is 2, so (1 * 3 + 1) * (4 * 2 + 1) + 4.
    assert cost.objective_s == 40.0


def test_line_on_half_duplex_links_by_hand():
    # 0 - 1 - 2: 0 -> 1 -> 2 -> 0. Wire 0-1 carries 0 -> 1 and 2 -> 0, wire 1-2 carries 1 -> 2 and 2 -> 0.
    problem = RingProblem(grid(1, 3, "half"), (0, 1, 2), message_bytes=1000.0)
    assert problem.measure(RingOrder((0, 1, 2))) == (2, 2, 4)
    assert problem.collective_s(RingOrder((0, 1, 2)), "all_gather") == pytest.approx(
        2 * (2e-6 + 8e-9), rel=1e-12
    )


def test_pair_by_hand():
    # Both directions of the tour around a square use every directed link once, with half of the message.
    one, two = (RingProblem(grid(2, 2), (0, 1, 2, 3), message_bytes=1000.0, pair=p) for p in (False, True))
    around = RingOrder((0, 1, 3, 2))
    assert two.measure(around) == one.measure(around) == (1, 1, 4)
    assert two.collective_s(around, "all_gather") == pytest.approx(3 * (0.5e-6 + 4e-9), rel=1e-12)
    # On half-duplex wires the two rings meet on each: twice the load of half of the bytes.
    half = RingProblem(grid(2, 2, "half"), (0, 1, 2, 3), message_bytes=1000.0, pair=True)
    assert half.measure(around) == (2, 1, 4)
    assert half.collective_s(around, "all_gather") == pytest.approx(3 * (1e-6 + 4e-9), rel=1e-12)


@checked
@given(st.integers(0, 10_000), st.sampled_from(["full", "half"]), st.integers(2, 12), st.floats(0, 1e6))
def test_times_are_those_of_the_network_model(seed, duplex, n, message_bytes):
    order = np.random.default_rng(seed).permutation(20)[:n]
    topology = grid(4, 5, duplex)
    problem = RingProblem(topology, tuple(order), objective="time", message_bytes=message_bytes)
    ring = RingOrder(tuple(order))
    gathered, reduced = problem.collective_s(ring, "all_gather"), problem.collective_s(ring, "all_reduce")
    assert gathered == pytest.approx(ring_all_gather_s(topology, order, message_bytes), rel=1e-9)
    assert reduced == pytest.approx(ring_all_reduce_s(topology, order, message_bytes), rel=1e-9)
    # The closed form over the counts is the same number.
    cost = problem.evaluate(ring)
    assert cost.total_s == gathered
    assert cost.objective_s == pytest.approx(gathered, rel=1e-9)


@checked
@given(st.integers(0, 10_000), st.booleans())
def test_ranks_order_rings_as_their_counts_do(seed, pair):
    rng = np.random.default_rng(seed)
    problem = RingProblem(wrapped(4, 5, "half"), tuple(rng.permutation(20)[:9]), pair=pair)
    measures = [problem.measure(problem.at(rng.permutation(9))) for _ in range(12)]
    for a, b in itertools.combinations(measures, 2):
        assert (a < b) == (problem.value(a) < problem.value(b))
        assert (a == b) == (problem.value(a) == problem.value(b))


def test_row_major_rings_share_no_link():
    # 2,000 random core sets under XY and full duplex; the proof is in `construct.row_major`.
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        rows, cols = rng.integers(1, 9, 2)
        if rows * cols < 2:
            continue
        n = int(rng.integers(2, rows * cols + 1))
        cores = np.sort(rng.choice(rows * cols, n, replace=False))
        problem = RingProblem(GRIDS.setdefault((rows, cols), grid(rows, cols)), tuple(cores))
        assert problem.measure(RingOrder(tuple(cores))).link_load == 1


GRIDS: dict[tuple[int, int], object] = {}


def test_decisions_are_checked():
    problem = RingProblem(grid(2, 3), (0, 1, 4))
    assert problem.check(RingOrder((4, 1, 0))) is None
    assert problem.check(RingOrder((4, 1))) == "the ring has 2 members, not 3"
    assert problem.check(RingOrder((4, 1, 5))) == "core 0 is not in the ring"
    assert problem.infeasible() is None


def test_fingerprints_tell_questions_apart():
    topology = grid(3, 3)
    base = RingProblem(topology, (0, 4, 8))
    longer = RingProblem(topology, (0, 4, 8), message_bytes=1.0)
    assert base.fingerprint == RingProblem(grid(3, 3), (8, 4, 0)).fingerprint != longer.fingerprint
    # The message decides what a ring costs, but which one is best only where time is the objective.
    assert base.question == longer.question
    timed = [RingProblem(topology, (0, 4, 8), objective="time", message_bytes=size) for size in (1.0, 2.0)]
    assert timed[0].question != timed[1].question
    others = [
        RingProblem(topology, (0, 4, 7)),
        RingProblem(topology, (0, 4, 8), objective="hops"),
        RingProblem(topology, (0, 4, 8), pair=True),
        RingProblem(grid(3, 3, "half"), (0, 4, 8)),
        RingProblem(without(topology, links=[(0, 1)]), (0, 4, 8)),
    ]
    assert len({problem.question for problem in (base, *others)}) == 6


def test_proven_hops_of_a_bound():
    problem = RingProblem(grid(4, 8), tuple(range(32)))
    assert problem.least_hops(Bound(problem.value(Measure(1, 3, 40)), "test"), load=1) == 3
    # The bound speaks of load 1 only; of rings with load 2 nothing but the floor is known.
    assert problem.least_hops(Bound(problem.value(Measure(1, 3, 40)), "test"), load=2) == 1
    only_hops = RingProblem(grid(4, 8), tuple(range(32)), objective="hops")
    assert only_hops.least_hops(Bound(2.0, "test"), load=1) == 2


@pytest.mark.parametrize(
    ("cores", "message"),
    [
        ((0, 1, 12), "there is no core 12 on the 3 x 4 mesh"),
        ((-1, 1), "there is no core -1 on the 3 x 4 mesh"),
        ((0, 3, 3), "core 3 is given twice"),
        ((7,), "a ring needs at least two cores, not 1"),
        ((), "a ring needs at least two cores, not 0"),
    ],
)
def test_wrong_core_sets(cores, message):
    with pytest.raises(UsageError) as error:
        RingProblem(grid(3, 4), cores)
    assert error.value.what == message


def test_failures():
    broken = without(grid(3, 4), sites=[5])
    with pytest.raises(UsageError, match="core 5 has failed"):
        RingProblem(broken, (4, 5, 6))
    # Without 1 and 4 the corner 0 is cut off: no ring reaches it.
    with pytest.raises(BadInput, match="1 of 10 working sites are cut off from the others: 0"):
        without(grid(3, 4), sites=[1, 4])
    # 4 -> 6 has to go around core 5: four hops instead of two.
    assert RingProblem(broken, (4, 6)).measure(RingOrder((4, 6))).bottleneck_hops == 4


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"objective": "hop"}, "unknown objective 'hop'"),
        ({"collective": "broadcast"}, "unknown collective 'broadcast'"),
        ({"message_bytes": -1.0}, "a message has 0 bytes or more"),
        ({"message_bytes": float("inf")}, "a message has 0 bytes or more"),
        ({"message_bytes": float("nan")}, "a message has 0 bytes or more"),
    ],
)
def test_wrong_settings(settings_, message):
    with pytest.raises(UsageError, match=message):
        RingProblem(grid(3, 4), (0, 1), **settings_)


def test_unequal_links_are_refused():
    cluster = gpu_cluster(
        2, 4,
        nvlink_bandwidth_bytes_per_s=4e11, nvlink_latency_s=1e-6,
        network_bandwidth_bytes_per_s=5e10, network_latency_s=5e-6,
    )  # fmt: skip
    with pytest.raises(UsageError, match="the links of this gpu_cluster have different bandwidths"):
        RingProblem(cluster, (0, 1, 2))


@pytest.mark.parametrize("objective", ["hops", "load,hops,total", "time"])
def test_a_message_of_no_bytes_takes_no_time(objective):
    problem = RingProblem(grid(3, 3), tuple(range(9)), objective=objective, message_bytes=0.0)
    result = solve(problem, "exact")
    assert result.stop is Stop.OPTIMAL
    assert result.cost.total_s == 0.0
    assert problem.collective_s(result.decision, "all_reduce") == 0.0


def test_simulated_rings():
    """Link loads equal those of the simulated rings, and rounds of load 1 take the simulators' cycles."""
    folder = os.environ.get("MOEPLAN_REFERENCE")
    if not folder or not (Path(folder) / "noc_rounds.csv").exists():
        pytest.skip("MOEPLAN_REFERENCE names no folder with noc_rounds.csv")
    with (Path(folder) / "noc_rounds.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["experiment"] == "ring_allgather_round"]
    free = 0
    for row in rows:
        topology = GRIDS.setdefault((4, 8), grid(4, 8))
        order = tuple(int(core) for core in row["ring"].split())
        load = RingProblem(topology, order).measure(RingOrder(order)).link_load
        assert load == int(row["max_link_load"])
        if load == 1:
            free += 1
            flits = int(row["packet_flits"])
            noxim = row["simulator"] == "noxim"
            router = (
                noxim_router(packet_flits=flits)
                if noxim
                else booksim2_router(int(row["cycles_per_hop"]), packet_flits=flits)
            )
            cycles = ring_round_cycles(router, topology, RingOrder(order).order, int(row["msg_flits"]))
            assert cycles == int(row["cycles"])
    assert free > 100


def test_units_of_the_instances():
    assert LINK_BYTES_PER_S * HOP_S == 4.0  # bytes on a link during a hop, which the hand-worked times use
