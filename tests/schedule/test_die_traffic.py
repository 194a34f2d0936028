"""Bytes on links and multicasts, against routes walked token by token."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.hardware.nearmem import rexpert
from moeplan.hardware.topology import mesh
from moeplan.schedule.die_traffic import Multicasts, link_bytes, multicasts
from moeplan.schedule.reduction import map_layer
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

NET = mesh(2, 3, link_bandwidth_bytes_per_s=1e9, hop_latency_s=0.0)


def make(experts, num_experts: int) -> Load:
    array = np.asarray(experts)
    return Load(array, tuple(range(array.shape[2])), num_experts, "toy", array.shape[1], False, "")


def walked(load, core_of, network, expert_dies, order, ports):
    """Busiest link per step, layer and die, by walking every route."""
    steps, batch, layers, _ = load.experts.shape
    busiest = np.zeros((steps, layers, expert_dies))
    for s in range(steps):
        for layer in range(layers):
            for die in range(expert_dies):
                carried = np.zeros(network.links)
                for b in range(batch):
                    port = ports[b % len(ports)]
                    mine = [
                        int(e)
                        for e in load.experts[s, b, layer]
                        if e >= 0 and e * expert_dies // load.num_experts == die
                    ]
                    out = {int(i) for e in mine for i in network.route(port, int(core_of[e]))}
                    back = [int(i) for e in mine for i in network.route(int(core_of[e]), port)]
                    for link in out:
                        carried[link] += 1
                    for link in set(back) if order == "ep-first" else back:
                        carried[link] += 2
                busiest[s, layer, die] = carried.max()
    return busiest


@pytest.mark.parametrize("order", ["ep-first", "tp-first"])
@pytest.mark.parametrize("ports", [[0], [3], [0, 5, 2]])
@pytest.mark.parametrize("name", ["qwen3.5-35b-a3b", "qwen3.5-397b-a17b"])
def test_links_equal_the_walk(order, ports, name) -> None:
    mapping = map_layer(load_model(name), rexpert())  # one die, and two
    rng = np.random.default_rng(1)
    experts = np.argsort(rng.random((3, 7, 2, 12)), axis=-1)[..., :4]
    experts[0, 0, 0, 2:] = -1  # dropped choices
    load, core_of = make(experts, 12), rng.integers(0, 6, 12)
    ours = link_bytes(load, core_of, NET, mapping, order, ports=ports)
    expected = walked(load, core_of, NET, mapping.expert_dies, order, ports)
    assert ours.busiest.tolist() == expected.tolist()


def test_demand_by_hand() -> None:
    # One token whose two experts lie in the far corner of a 4 x 5 die: each link of the way carries 2048
    # bytes out, and back one sum of 4096 bytes ep-first, two tp-first, in 61.44 us. Out and back are
    # different links, so the busiest is one way back.
    die = rexpert().package.die
    network, mapping = die.network(), map_layer(load_model("qwen3.5-35b-a3b"), rexpert())
    load = make([[[[0, 1]]]], 2)
    for order, sums in (("ep-first", 1), ("tp-first", 2)):
        links = link_bytes(load, np.array([19, 19]), network, mapping, order, ports=[0])
        demand = links.demand(mapping, die.link_bytes_per_s)
        assert demand.bytes_per_s == pytest.approx(sums * 2 * 2048 / 61.44e-6)
        assert demand.is_met
    assert links.demand(mapping, 1e6).is_met is False
    # At the port itself nothing moves.
    none = link_bytes(load, np.array([0, 0]), network, mapping, "tp-first", ports=[0])
    assert none.demand(mapping, 1.0).bytes_per_s == 0.0
    # By default tokens enter at the cores in turn: token 0 of 20 at core 0, token 19 where its experts are.
    many = make(np.zeros((1, 20, 1, 2), dtype=int), 2)
    default = link_bytes(many, np.array([19, 19]), network, mapping, "ep-first")
    assert default.busiest.tolist() == walked(many, [19, 19], network, 1, "ep-first", range(20)).tolist()


def test_percentiles_are_over_steps() -> None:
    die = rexpert().package.die
    network, mapping = die.network(), map_layer(load_model("qwen3.5-35b-a3b"), rexpert())
    load = make([[[[0]]], [[[1]]], [[[1]]], [[[1]]]], 2)  # step 0 stays at the port
    links = link_bytes(load, np.array([0, 19]), network, mapping, "ep-first", ports=[0])
    full = 2 * 2048 / 61.44e-6
    assert links.demand(mapping, 1e9).bytes_per_s == pytest.approx(0.75 * full)
    assert links.demand(mapping, 1e9, percentile=0).bytes_per_s == 0.0
    assert links.demand(mapping, 1e9, percentile=100).bytes_per_s == pytest.approx(full)


def test_multicasts_by_hand() -> None:
    # Section IV-C: ten, one, one and one jobs on four groups take four rounds: only the hot expert needs
    # more than its owner. Six jobs alone on a core take two rounds: one multicast; one job each, none.
    four = rexpert(side=2).package.die.core

    def count(tokens, core_of) -> Multicasts:
        return multicasts(np.array([[tokens]]), np.array(core_of), max(core_of) + 1, four, 4)

    assert count([40, 1, 1, 1], [0, 0, 0, 0]).peak == 1
    both = count([24, 4, 4], [0, 1, 1])
    assert (both.peak, both.mean) == (1, 0.5)
    # Ten and eight jobs on four groups take five rounds (18 / 4): both need borrowers.
    assert count([40, 32], [0, 0]).peak == 2
    # One core in a hundred is above the 99th percentile.
    rare = count([40] + [1] * 99, list(range(100)))
    assert (rare.p99, rare.peak) == (0.0, 1)
    assert count([40, 40] + [1] * 98, list(range(100))).p99 == 1.0
    core = rexpert().package.die.core
    assert Multicasts(0.0, 5.0, 6).demand(core, 5).is_met  # 5 x 51.2 = 256 GB/s
    assert not Multicasts(0.0, 5.0, 6).demand(core, 6).is_met


def test_experts_on_no_core_are_refused() -> None:
    mapping = map_layer(load_model("qwen3.5-35b-a3b"), rexpert())
    with pytest.raises(UsageError, match="lies on no core"):
        link_bytes(make([[[[0, 1]]]], 2), np.array([0, 6]), NET, mapping, "ep-first")
