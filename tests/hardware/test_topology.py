import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.topology import (
    Topology,
    fully_connected,
    gpu_cluster,
    mesh,
    ring,
    star,
    torus,
    without,
)

LINK = {"link_bandwidth_bytes_per_s": 64e9, "hop_latency_s": 2e-9}
CLUSTER = {
    "nvlink_bandwidth_bytes_per_s": 450e9,
    "nvlink_latency_s": 2e-6,
    "network_bandwidth_bytes_per_s": 50e9,
    "network_latency_s": 10e-6,
}


def path(topology: Topology, source: int, destination: int) -> list[int]:
    """Nodes of a route; checks that the links of the route join up."""
    nodes = [source]
    for link in topology.route(source, destination).tolist():
        a, b = topology.link_ends[link].tolist()
        if topology.duplex == "half" and b == nodes[-1]:
            a, b = b, a
        assert a == nodes[-1]
        nodes.append(b)
    assert nodes[-1] == destination
    return nodes


def cases() -> dict[str, Topology]:
    return {
        "mesh": mesh(3, 4, **LINK),
        "mesh half": mesh(3, 4, duplex="half", **LINK),
        "mesh yx": mesh(4, 3, routing="yx", **LINK),
        "row": mesh(1, 5, **LINK),
        "torus": torus(4, 5, **LINK),
        "torus half": torus(3, 4, duplex="half", **LINK),
        "torus of two rows": torus(2, 4, **LINK),
        "ring": ring(7, **LINK),
        "ring of two": ring(2, **LINK),
        "fully connected": fully_connected(6, **LINK),
        "star": star(5, **LINK),
        "star around a site": star(5, 2, duplex="half", **LINK),
        "cluster": gpu_cluster(3, 4, **CLUSTER),
        "failed mesh": without(mesh(4, 4, **LINK), sites=[5], links=[(2, 3)]),
        "failed torus half": without(torus(3, 4, duplex="half", **LINK), sites=[0], links=[(5, 6)]),
    }


@pytest.mark.parametrize("name", cases())
def test_routes_join_up_and_are_shortest_paths(name):
    topology = cases()[name]
    lengths = dict(nx.all_pairs_shortest_path_length(topology.graph))
    for source in set(range(topology.sites)) - set(topology.failed):
        for destination in set(range(topology.sites)) - set(topology.failed):
            walked = path(topology, source, destination)
            assert len(walked) == len(set(walked)) == topology.hops[source, destination] + 1
            assert topology.hops[source, destination] == lengths[source][destination]
    assert (topology.hops == topology.hops.T).all()
    assert topology.route_start[-1] == len(topology.route_links) == np.maximum(topology.hops, 0).sum()


@pytest.mark.parametrize("name", cases())
def test_graph_and_arrays_say_the_same(name):
    topology = cases()[name]
    assert nx.is_frozen(topology.graph)
    edges = {(a, b): data for a, b, data in topology.graph.edges(data=True)}
    assert len(edges) == topology.links * (2 if topology.duplex == "half" else 1)
    for (a, b), data in edges.items():
        ends = topology.link_ends[data["link"]].tolist()
        assert ends == (sorted((a, b)) if topology.duplex == "half" else [a, b])
        assert data["bandwidth_bytes_per_s"] == topology.link_bandwidth_bytes_per_s[data["link"]]
        assert data["latency_s"] == topology.link_latency_s[data["link"]]
    assert set(topology.graph.nodes) == set(range(topology.nodes)) - set(topology.failed)


def test_dtypes_shapes_and_read_only():
    topology = mesh(4, 8, **LINK)
    assert (topology.kind, topology.sites, topology.rows, topology.cols) == ("mesh", 32, 4, 8)
    # Wires: 4 * 7 across + 3 * 8 down = 52, each with two directions.
    assert topology.links == 104
    for array in (topology.hops, topology.route_start, topology.route_links, topology.link_ends):
        assert array.dtype == np.int32
        assert not array.flags.writeable
    assert topology.hops.shape == (32, 32)
    assert topology.route_start.shape == (32 * 32 + 1,)
    assert topology.link_bandwidth_bytes_per_s.tolist() == [64e9] * 104
    assert topology.link_latency_s.tolist() == [2e-9] * 104


def test_x_goes_first_along_the_row():
    # 0  1  2  3
    # 4  5  6  7
    assert path(mesh(2, 4, **LINK), 0, 6) == [0, 1, 2, 6]
    assert path(mesh(2, 4, **LINK), 7, 1) == [7, 6, 5, 1]
    assert path(mesh(2, 4, routing="yx", **LINK), 0, 6) == [0, 4, 5, 6]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(["xy", "yx"]), st.sampled_from(["full", "half"]))
def test_mesh_routes_are_manhattan_and_turn_once(rows, cols, routing, duplex):
    topology = mesh(rows, cols, routing=routing, duplex=duplex, **LINK)
    row, col = np.divmod(np.arange(rows * cols), cols)
    assert (topology.hops == abs(row[:, None] - row) + abs(col[:, None] - col)).all()
    for source in range(rows * cols):
        for destination in range(rows * cols):
            walked = np.array(path(topology, source, destination))
            along_row = np.diff(walked // cols) == 0
            expected = sorted(along_row, reverse=routing == "xy")
            assert along_row.tolist() == expected


def test_torus_wraps_the_shorter_way_and_ties_go_up():
    topology = torus(1, 4, **LINK)
    assert path(topology, 0, 3) == [0, 3]
    assert path(topology, 3, 0) == [3, 0]
    assert path(topology, 0, 2) == [0, 1, 2]
    assert path(topology, 2, 0) == [2, 3, 0]
    assert path(topology, 3, 1) == [3, 0, 1]
    assert path(torus(3, 3, **LINK), 0, 8) == [0, 2, 8]
    # Two sites in a ring have one wire: a 2 x 4 torus has 2 rings of 4 wires and 4 wires between them.
    assert torus(2, 4, **LINK).links == 2 * (2 * 4 + 4)
    assert torus(1, 1, **LINK).links == 0


def test_ring_ties_take_the_lowest_id():
    topology = ring(4, **LINK)
    assert path(topology, 0, 2) == [0, 1, 2]
    assert path(topology, 1, 3) == [1, 0, 3]
    assert ring(1, **LINK).links == 0
    assert ring(2, **LINK).links == 2
    assert ring(5, duplex="half", **LINK).links == 5


def test_star_and_fully_connected():
    switched = star(4, **LINK)
    assert (switched.sites, switched.nodes) == (4, 5)
    assert path(switched, 1, 3) == [1, 4, 3]
    assert path(star(4, 2, **LINK), 1, 3) == [1, 2, 3]
    assert star(4, 2, **LINK).nodes == 4
    assert fully_connected(5, **LINK).links == 5 * 4
    assert fully_connected(5, **LINK).hops.max() == 1
    assert fully_connected(1, **LINK).links == 0


def test_gpu_cluster_uses_nvlink_inside_and_the_network_across():
    topology = gpu_cluster(2, 4, **CLUSTER)
    # GPUs 0-3 and 4-7; node switches 8 and 9; network switch 10.
    assert (topology.sites, topology.nodes) == (8, 11)
    assert path(topology, 0, 3) == [0, 8, 3]
    assert path(topology, 5, 6) == [5, 9, 6]
    assert path(topology, 1, 5) == [1, 10, 5]
    inside, across = topology.route(0, 3), topology.route(1, 5)
    assert topology.link_bandwidth_bytes_per_s[inside].tolist() == [450e9, 450e9]
    assert topology.link_latency_s[inside].sum() == pytest.approx(2e-6)
    assert topology.link_bandwidth_bytes_per_s[across].tolist() == [50e9, 50e9]
    assert topology.link_latency_s[across].sum() == pytest.approx(10e-6)
    alone = gpu_cluster(1, 8, nvlink_bandwidth_bytes_per_s=900e9, nvlink_latency_s=1e-6)
    assert (alone.sites, alone.nodes, alone.links) == (8, 9, 16)


def test_half_duplex_shares_the_wire():
    topology = mesh(1, 3, duplex="half", **LINK)
    assert topology.link_ends.tolist() == [[0, 1], [1, 2]]
    assert topology.route(0, 2).tolist() == [0, 1]
    assert topology.route(2, 0).tolist() == [1, 0]


def test_failed_site_is_routed_around_and_other_routes_stay():
    # 0 1 2      XY 3 -> 5 crosses the failed centre; 0 -> 8 does not (0 1 2 5 8) and stays as it was,
    # 3 x 5      although 0 -> 8 through 3, 6, 7 is as short.
    # 6 7 8
    whole = mesh(3, 3, **LINK)
    topology = without(whole, sites=[4])
    assert topology.failed == (4,)
    assert topology.sites == 9
    assert path(topology, 3, 5) == [3, 0, 1, 2, 5]
    assert path(topology, 6, 8) == [6, 7, 8]
    assert topology.hops[4].tolist() == topology.hops[:, 4].tolist() == [-1] * 9
    assert topology.links == 24 - 8
    for source in range(9):
        for destination in range(9):
            before = path(whole, source, destination)
            if 4 not in before:
                assert path(topology, source, destination) == before


def test_failed_wire_fails_in_both_directions():
    topology = without(mesh(2, 2, **LINK), links=[(1, 0)])
    assert topology.links == 8 - 2
    assert path(topology, 0, 1) == [0, 2, 3, 1]
    assert path(topology, 1, 0) == [1, 3, 2, 0]
    assert path(topology, 0, 3) == [0, 2, 3]


def test_failures_add_up_and_none_changes_nothing():
    whole = mesh(4, 4, **LINK)
    at_once = without(whole, sites=[5, 10])
    one_by_one = without(without(whole, sites=[5]), sites=[10])
    assert at_once.failed == one_by_one.failed == (5, 10)
    assert (at_once.hops == one_by_one.hops).all()
    unchanged = without(whole)
    assert (unchanged.route_links == whole.route_links).all()
    assert (unchanged.link_ends == whole.link_ends).all()


def test_cut_off_sites_are_named():
    with pytest.raises(BadInput, match="1 of 7 working sites are cut off from the others: 0\n"):
        without(mesh(3, 3, **LINK), sites=[1, 3])
    with pytest.raises(BadInput, match=r"3 of 12 working sites .*: 0, 4, 8\n"):
        without(mesh(3, 4, **LINK), links=[(0, 1), (4, 5), (8, 9)])
    with pytest.raises(BadInput, match="every site has failed"):
        without(mesh(1, 2, **LINK), sites=[0, 1])
    with pytest.raises(BadInput, match="cut off"):
        without(star(4, 0, **LINK), sites=[0])
    assert without(mesh(1, 2, **LINK), sites=[1]).failed == (1,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mesh(0, 4, **LINK), "rows must be a whole number"),
        (lambda: mesh(3, 2.5, **LINK), "cols must be a whole number"),
        (lambda: mesh(3, True, **LINK), "cols must be a whole number"),
        (lambda: mesh(40, 40, **LINK), "rows x cols of a mesh must be a whole number of 1 to 1024, not 1600"),
        (lambda: mesh(2, 2, link_bandwidth_bytes_per_s=0, hop_latency_s=0), "bandwidth must be more than 0"),
        (lambda: mesh(1, 1, link_bandwidth_bytes_per_s=-1, hop_latency_s=0), "bandwidth must be more than 0"),
        (lambda: mesh(2, 2, link_bandwidth_bytes_per_s=float("nan"), hop_latency_s=0), "bandwidth"),
        (lambda: mesh(2, 2, link_bandwidth_bytes_per_s=1, hop_latency_s=-1e-9), "latency must be at least 0"),
        (lambda: mesh(2, 2, duplex="fulll", **LINK), "unknown duplex 'fulll'\nfix: did you mean 'full'"),
        (lambda: mesh(2, 2, routing="zx", **LINK), "unknown routing"),
        (lambda: ring(0, **LINK), "n must be"),
        (lambda: star(3, 3, **LINK), "hub 3 is not a site"),
        (lambda: fully_connected(2000, **LINK), "n must be"),
        (
            lambda: gpu_cluster(2, 8, nvlink_bandwidth_bytes_per_s=1e9, nvlink_latency_s=0),
            "2 nodes need a network",
        ),
        (lambda: without(mesh(2, 2, **LINK), sites=[4]), "there is no site 4"),
        (lambda: without(mesh(2, 2, **LINK), sites=[-1]), "there is no site -1"),
        (lambda: without(mesh(2, 2, **LINK), links=[(0, 3)]), "no link between nodes 0 and 3"),
        (lambda: mesh(2, 2, **LINK).route(0, 4), "4 is not a working site"),
        (lambda: mesh(2, 2, **LINK).route(-1, 0), "-1 is not a working site"),
        (lambda: without(mesh(2, 2, **LINK), sites=[3]).route(0, 3), "3 is not a working site"),
    ],
)
def test_bad_arguments(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_same_arguments_same_arrays_and_pickles():
    first, second = torus(3, 5, **LINK), pickle.loads(pickle.dumps(torus(3, 5, **LINK)))
    for name in ("hops", "route_start", "route_links", "link_ends"):
        assert (getattr(first, name) == getattr(second, name)).all()


def test_networkx_is_imported_only_for_the_graph():
    code = (
        "import sys; from moeplan.hardware.topology import mesh;"
        "m = mesh(4, 8, link_bandwidth_bytes_per_s=1e9, hop_latency_s=0.0);"
        "assert 'networkx' not in sys.modules; m.graph; assert 'networkx' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
