"""How models lie on ReXpert's dies: counts worked out by hand, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moeplan.common.errors import BadInput, ProvenInfeasible, UsageError
from moeplan.hardware.nearmem import rexpert
from moeplan.hardware.platform import load_platform
from moeplan.placement.cores.layout import (
    die_layout,
    platform_layout,
    pooling_cores,
    published_die,
    with_side,
)
from moeplan.workload.model import load_model

# An expert of Qwen3.5-35B is 4 slices of 6144 columns, one unit of 32768. Of Qwen3.5-397B it is 8 slices of
# 12288: four shards leave 320 units for 512 experts, eight shards let two share a unit. Of GLM-5.2 16 slices
# of 18432, one a unit.
SHAPES = [("qwen3.5-35b-a3b", 1, 1, 61.44), ("qwen3.5-397b-a17b", 8, 2, 30.72), ("glm-5.2", 16, 1, 46.08)]


@pytest.mark.parametrize(("name", "shards", "stack", "round_us"), SHAPES)
def test_shards_by_hand(name, shards, stack, round_us):
    model = load_model(name)
    found = die_layout(model, rexpert().package.die)
    assert (found.shards, found.unit_experts, found.core_experts) == (shards, stack, 16 * stack)
    assert found.round_s * 1e6 == pytest.approx(round_us)
    assert found.dies == shards * len(model.moe_layers)
    assert (found.places, found.servers) == (20, 16)


@pytest.mark.parametrize(("side", "cores", "groups"), [(2, 80, 4), (4, 20, 16), (6, 9, 36), (8, 4, 64)])
def test_cores_that_are_compared(side, cores, groups):
    # 8 x 10 and 4 x 5 tile 16 x 20; 3 x 3 of side 6 have 324 units, 2 x 3 only 216; 2 x 2 of side 8 have 256
    # units, as far from 320 as 2 x 3 with 384, and they fit.
    die = published_die(side)
    assert (pooling_cores(die), die.core.units.count) == (cores, groups)


@pytest.mark.parametrize("side", [0, 1, 3, 5, 16])
def test_other_sides_are_refused(side):
    with pytest.raises(UsageError, match=f"side {side} do not tile the 16 x 20 units"):
        published_die(side)


@pytest.mark.parametrize(
    ("platform", "model", "dies"),
    [
        ("rexpert-pool-35b", "qwen3.5-397b-a17b", "takes 289 dies, the pool has 25"),
        ("rexpert-pool-397b", "glm-5.2", "takes 543 dies, the pool has 289"),
    ],
)
def test_a_pool_too_small_says_how_many_dies_it_takes(platform, model, dies):
    # Table XI: 289 and 543 dies, shared experts included.
    with pytest.raises(ProvenInfeasible, match=dies):
        platform_layout(load_model(model), load_platform(platform), "broadcast", None)


@pytest.mark.parametrize(
    ("platform", "model", "room"),
    [
        # 25 dies for 40 layers: 0.625 x 64 MiB over 3 MiB an expert are 13.3; 20 x 13 hold 256.
        ("rexpert-pool-35b", "qwen3.5-35b-a3b", 13),
        # 289 dies for 60 x 8 shards: 25.7 of 1.5 MiB, but 512 experts on 20 cores are 25.6: 26 on some.
        ("rexpert-pool-397b", "qwen3.5-397b-a17b", 26),
        ("rexpert-pool-glm", "glm-5.2", 13),
    ],
)
def test_published_pools_hold_their_models(platform, model, room):
    found = platform_layout(load_model(model), load_platform(platform), "broadcast", None)
    assert found.core_experts == room
    assert found.dies == load_platform(platform).nearmem.dies


def test_more_experts_than_units():
    # 384 experts of 21504 columns a slice: one a unit, however cut.
    with pytest.raises(ProvenInfeasible, match="384 experts, more than the 320 units of a die hold"):
        die_layout(load_model("kimi-k2"), rexpert().package.die)


def test_widths():
    model, die = load_model("qwen3.5-35b-a3b"), rexpert().package.die
    with pytest.raises(UsageError, match="does no work"):
        die_layout(model, die, width=0)
    assert die_layout(model, die).width == 4
    # A job of eight tokens passes a tile of four twice.
    assert die_layout(model, die, width=8).round_s == 2 * die_layout(model, die).round_s
    assert die_layout(model, die, width=1).cap == pytest.approx(0.256)


def test_sides_of_platforms():
    platform = load_platform("rexpert-die")
    assert with_side(platform, None) is platform
    assert with_side(platform, 4) is platform
    finer = with_side(platform, 2)
    assert (finer.topology.rows, finer.topology.cols, finer.nearmem.die.core.side) == (8, 10, 2)
    with pytest.raises(UsageError, match="side 8 do not tile the 16 x 20 units") as caught:
        with_side(platform, 8)
    assert "1, 2, 4" in caught.value.allowed
    with pytest.raises(BadInput, match="no near-memory dies"):
        with_side(load_platform("b200"), 4)


@pytest.mark.parametrize(
    ("dies", "core", "unit"),
    [
        # 1536 columns an expert: 21 in a unit. Of 4 MiB, 21.3 of 196,608 bytes; 40 layers on 4 dies share a
        # unit ten ways, 2.1 experts each, and a core of 16 units 34.1. On 2 dies 17.07 and 1.07, on 40 all.
        (4, 34, 2),
        (2, 17, 1),
        (40, 336, 21),
        (0, 336, 21),
    ],
)
def test_layers_of_one_die_share_its_cores_and_units(dies, core, unit):
    small = {"hidden_size": 512, "expert_intermediate_size": 128, "shared_experts": 0}
    model, die = replace(load_model("qwen3.5-35b-a3b"), **small), rexpert().package.die
    pooled, direct = (die_layout(model, die, mode=mode, dies=dies) for mode in ("broadcast", "direct"))
    assert (pooled.room, direct.room) == (core, unit)
    for found, units in ((pooled, 16), (direct, 1)):
        assert found.room * found.places >= model.experts
        layers = 40 / (dies or 40)  # on one die
        assert found.room * layers * 3 * 512 * 128 <= units * die.core.unit.memory_bytes


def test_a_unit_takes_whole_experts_however_small_its_share():
    # 25 dies for 40 layers: 0.83 of an expert a unit, which 320 units for 256 experts round up to one.
    platform = load_platform("rexpert-pool-35b")
    found = platform_layout(load_model("qwen3.5-35b-a3b"), platform, "direct", None)
    assert (found.room, found.places) == (1, 320)
