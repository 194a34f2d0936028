import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.collectives import (
    ALGORITHMS,
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
)
from moeplan.hardware.noc import ring_all_gather_s
from moeplan.hardware.topology import Topology, gpu_cluster, mesh, without

# Two servers of two GPUs: NVLink 100 B/s and 2 s from GPU to GPU, network 10 B/s and 6 s.
PAIRS = gpu_cluster(
    2,
    2,
    nvlink_bandwidth_bytes_per_s=100.0,
    nvlink_latency_s=2.0,
    network_bandwidth_bytes_per_s=10.0,
    network_latency_s=6.0,
)
SERVER = gpu_cluster(1, 8, nvlink_bandwidth_bytes_per_s=100.0, nvlink_latency_s=2.0)
CLUSTER = gpu_cluster(
    4,
    8,
    nvlink_bandwidth_bytes_per_s=450e9,
    nvlink_latency_s=1e-6,
    network_bandwidth_bytes_per_s=50e9,
    network_latency_s=5e-6,
)
GRID = mesh(3, 4, link_bandwidth_bytes_per_s=25.6e9, hop_latency_s=4e-9)


# ------------------------------------------------------------------------------------- all to all


def test_dispatch_by_hand() -> None:
    # 0 -> 1: 300 B by NVLink. 0 -> 2: 50, 1 -> 3: 20, 3 -> 0: 10 by network. NVLink is busy for 3 s,
    # GPU 0's network port for 5 s, which decides; the longest route has 6 s.
    bytes_ = np.zeros((4, 4))
    bytes_[0] = [999, 300, 50, 0]
    bytes_[1, 3], bytes_[3, 0] = 20, 10
    time = all_to_all(PAIRS, bytes_)
    assert (time.bandwidth_s, time.latency_s, time.total_s, time.rounds) == (5.0, 6.0, 11.0, 1)
    network, nvlink = time.levels
    assert (network.name, network.sent_bytes, network.busiest_link_bytes, network.busiest_link_s) == (
        "network",
        80.0,
        50.0,
        5.0,
    )
    assert (nvlink.name, nvlink.sent_bytes, nvlink.busiest_link_bytes, nvlink.busiest_link_s) == (
        "nvlink",
        300.0,
        300.0,
        3.0,
    )
    assert time.busiest_link == network.busiest_link
    assert PAIRS.link_ends[network.busiest_link].tolist() == [0, 6]  # GPU 0 to the network switch


def test_receiving_counts_as_much_as_sending() -> None:
    # Three GPUs send 100 B each to GPU 0: its port takes 3 s; the combine is the transposed dispatch.
    bytes_ = np.zeros((8, 8))
    bytes_[1:4, 0] = 100.0
    assert all_to_all(SERVER, bytes_).bandwidth_s == 3.0
    assert all_to_all(SERVER, bytes_.T).bandwidth_s == 3.0


def test_nothing_to_send() -> None:
    time = all_to_all(SERVER, np.diag(np.full(8, 100.0)))
    assert (time.total_s, time.levels, time.busiest_link) == (0.0, (), None)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 5.0))
def test_dispatch_against_port_loads(seed: int, factor: float) -> None:
    # By brute force: a GPU's NVLink carries what it exchanges inside its server, its network port the
    # rest, each direction by itself.
    rng = np.random.default_rng(seed)
    bytes_ = rng.integers(0, 10**6, (32, 32)) * (rng.random((32, 32)) < 0.3)
    server = np.arange(32) // 8
    inside = (server[:, None] == server[None, :]) & ~np.eye(32, dtype=bool)
    outside = server[:, None] != server[None, :]
    busiest_s = max(
        (bytes_ * among).sum(axis=axis).max() / bandwidth
        for among, bandwidth in ((inside, 450e9), (outside, 50e9))
        for axis in (0, 1)
    )
    time = all_to_all(CLUSTER, bytes_)
    assert time.bandwidth_s == pytest.approx(busiest_s)
    sent = {level.name: level.sent_bytes for level in time.levels}
    assert sent == pytest.approx({"nvlink": (bytes_ * inside).sum(), "network": (bytes_ * outside).sum()})
    # Time scales with bytes.
    assert all_to_all(CLUSTER, bytes_ * factor).bandwidth_s == pytest.approx(factor * busiest_s)


@pytest.mark.parametrize("bytes_", [np.zeros((3, 3)), np.zeros(8), -np.ones((8, 8))])
def test_bad_matrices_are_refused(bytes_: np.ndarray) -> None:
    with pytest.raises(UsageError):
        all_to_all(SERVER, bytes_)


# ---------------------------------------------------------------------- gather, scatter and reduce


def test_all_gather_by_hand() -> None:
    # Eight blocks of 100 B. Ring: 7 rounds of 1 s + 2 s. Direct: 7 blocks leave each port, 7 s + 2 s.
    ring, direct = (all_gather(SERVER, range(8), 100.0, name) for name in ("ring", "direct"))
    assert (ring.bandwidth_s, ring.latency_s, ring.rounds) == (7.0, 14.0, 7)
    assert (direct.bandwidth_s, direct.latency_s, direct.rounds) == (7.0, 2.0, 1)
    assert ring.levels[0].sent_bytes == direct.levels[0].sent_bytes == 8 * 7 * 100.0


def test_rings_across_servers() -> None:
    # Order 0 1 2 3: the edges 1 -> 2 and 3 -> 0 cross the network, 10 s + 6 s a round, three rounds.
    ring = all_gather(PAIRS, [0, 1, 2, 3], 100.0)
    assert (ring.bandwidth_s, ring.latency_s) == (30.0, 18.0)
    # Hierarchical: 0 and 2, 1 and 3 swap 100 B by network (10 s + 6 s), then servers swap 200 B (2 s + 2 s).
    levels = all_gather(PAIRS, [0, 1, 2, 3], 100.0, "hierarchical")
    assert (levels.bandwidth_s, levels.latency_s, levels.rounds) == (12.0, 8.0, 2)
    assert {level.name: level.sent_bytes for level in levels.levels} == {"network": 400.0, "nvlink": 800.0}


def test_all_reduce_by_hand() -> None:
    # 800 B on eight GPUs: 14 rounds of 100 B by ring; 6 rounds of the whole 800 B by tree.
    ring, direct, tree = (all_reduce(SERVER, range(8), 800.0, name) for name in ("ring", "direct", "tree"))
    assert (ring.bandwidth_s, ring.latency_s, ring.rounds) == (14.0, 28.0, 14)
    assert (direct.bandwidth_s, direct.latency_s, direct.rounds) == (14.0, 4.0, 2)
    assert (tree.bandwidth_s, tree.latency_s, tree.rounds) == (48.0, 12.0, 6)


@pytest.mark.parametrize("n", range(1, 9))
def test_a_tree_reaches_everybody(n: int) -> None:
    # n - 1 messages up, n - 1 down, in 2 ceil(log2 n) rounds.
    time = all_reduce(SERVER, range(n), 100.0, "tree")
    assert time.rounds == 2 * math.ceil(math.log2(n))
    assert sum(level.sent_bytes for level in time.levels) == 2 * (n - 1) * 100.0


def test_small_messages_go_directly_and_large_ones_in_rings() -> None:
    def fastest(message_bytes: float) -> str:
        return min(ALGORITHMS, key=lambda name: all_reduce(CLUSTER, range(32), message_bytes, name).total_s)

    # 64 B: latency alone, 2 rounds direct against 10 by tree. 1 GB: a flat ring takes 62 / 32 GB over the
    # network at 50 GB/s, 39 ms; rings of four servers 6 / 32 GB (3.75 ms) and 14 / 8 GB on NVLink (3.9 ms).
    assert fastest(64.0) == "direct"
    assert fastest(1e9) == "hierarchical"
    assert all_reduce(CLUSTER, range(32), 1e9).bandwidth_s == pytest.approx(62 / 32 / 50)
    levels = all_reduce(CLUSTER, range(32), 1e9, "hierarchical")
    assert levels.bandwidth_s == pytest.approx(6 / 32 / 50 + 14 / 8 / 450)


@pytest.mark.parametrize("topology", [SERVER, CLUSTER, GRID], ids=lambda topology: topology.kind)
def test_rings_are_those_of_the_network_on_chip(topology: Topology) -> None:
    order = np.random.default_rng(0).permutation(topology.sites)
    forward_s, backward_s = (ring_all_gather_s(topology, way, 4096.0) for way in (order, order[::-1]))
    message_bytes = 4096.0 * topology.sites
    assert all_gather(topology, order, 4096.0).total_s == pytest.approx(forward_s)
    # A reduce-scatter sends backwards; on a mesh other links carry it, XY routes being no mirror images.
    assert reduce_scatter(topology, order, message_bytes).total_s == pytest.approx(backward_s)
    assert all_reduce(topology, order, message_bytes).total_s == pytest.approx(forward_s + backward_s)


@settings(deadline=None, derandomize=True)
@given(
    st.sampled_from([SERVER, CLUSTER]),
    st.sampled_from(["ring", "direct", "hierarchical"]),
    st.floats(0.0, 1e9),
    st.floats(0.0, 1e9),
)
def test_all_reduce_is_a_scatter_and_a_gather(
    topology: Topology, algorithm: str, message_bytes: float, more: float
) -> None:
    members = range(topology.sites)
    whole = all_reduce(topology, members, message_bytes, algorithm)
    scatter = reduce_scatter(topology, members, message_bytes, algorithm)
    gather = all_gather(topology, members, message_bytes / topology.sites, algorithm)
    assert whole.total_s == pytest.approx(scatter.total_s + gather.total_s)
    # No algorithm beats the bytes that have to leave a GPU, and more bytes never take less time.
    n = topology.sites
    assert whole.bandwidth_s >= 2 * (n - 1) / n * message_bytes / 450e9 * (1 - 1e-9)
    assert all_reduce(topology, members, message_bytes + more, algorithm).total_s >= whole.total_s


def test_one_member_needs_nobody() -> None:
    for algorithm in ALGORITHMS:
        assert all_reduce(PAIRS, [2], 1e6, algorithm).total_s == 0.0


def test_a_broken_network_port_is_routed_around_or_refused() -> None:
    # Without GPU 1, three are left; they form no rectangle of servers.
    broken = without(PAIRS, sites=[1])
    assert all_gather(broken, [0, 2, 3], 100.0).bandwidth_s == 20.0
    with pytest.raises(UsageError, match="different numbers"):
        all_gather(broken, [0, 2, 3], 100.0, "hierarchical")


@pytest.mark.parametrize(
    ("members", "algorithm", "words"),
    [
        ([0, 1], "rings", "unknown algorithm 'rings'"),
        ([0, 1], "tree", "unknown algorithm 'tree'"),
        ([0, 0], "ring", "twice"),
        ([], "ring", "at least one"),
        ([0.5], "ring", "at least one"),
        ([0, 99], "direct", "no site 99"),
    ],
)
def test_bad_calls_are_refused(members: list[int], algorithm: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        all_gather(SERVER, members, 1.0, algorithm)


def test_a_mesh_has_no_servers() -> None:
    with pytest.raises(UsageError, match="no servers"):
        all_gather(GRID, range(12), 1.0, "hierarchical")
