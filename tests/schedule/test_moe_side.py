"""Projections, router, experts and communication on SPIMOE, against hand and against the placement's cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.problem import Decision, Settings, channel_problem
from moeplan.schedule.moe_side import Channels, up_share
from moeplan.schedule.spimoe import spimoe
from moeplan.workload.model import load_model

from . import spimoe_world as world

BANDWIDTH, HOP_S = 25.6e9, 3.75e-9


def test_all_gather_by_hand():
    """31 rounds of a 32nd; the best ring has one hop everywhere, ids have ten from the last to the first."""
    block_s = 8 * 256 * 2 / 32 / BANDWIDTH
    ring, ids = (Channels(world.MODEL, world.PLATFORM, Settings(layout="rows"), on) for on in (True, False))
    assert ring.all_gather_s(8, 256) == pytest.approx(31 * (block_s + HOP_S))
    assert ids.all_gather_s(8, 256) == pytest.approx(31 * (block_s + 10 * HOP_S))
    assert ring.all_gather_s(0, 256) == 0.0


def test_projection_by_hand():
    """5120 outputs on 128 groups of 32 banks are 2 a bank, each 256 inputs of 2 bytes: 16 columns of 5 ns."""
    channels = Channels(world.MODEL, world.PLATFORM, Settings(layout="rows"))
    pim = world.PLATFORM.pim
    row_s = 16.25e-9 + 19.375e-9  # precharge and activate
    busy = (
        256 * 2 / 32 * 1.25e-9  # the input into the buffer
        + row_s
        + 2 * 16 * 5e-9
        + 0.625e-9  # tRTP after the last MAC interval
        + 2 * 2 * 1.25e-9  # results of 32 banks, 16 a read, of both outputs
        - 0.625e-9  # the last ones while tRTP runs
    )
    stretched = busy / (1 - 350 / 3900)
    assert channels.spread_s(5120, 256, 2.0) == pytest.approx(stretched)
    assert channels.spread_s(5120, 256, 2.0) == pim.gemv_s(
        5120, 256, weight_bytes=2.0, activation_bytes=2.0, groups=128
    )
    best = Channels(world.MODEL, world.PLATFORM, Settings(layout="best"))
    assert best.spread_s(5120, 256, 2.0) <= channels.spread_s(5120, 256, 2.0)


def test_stages_grow_with_tokens_or_with_homes():
    channels = Channels(world.MODEL, world.PLATFORM, Settings(layout="rows"))
    one, five = (channels.common_s(1, np.arange(40) < n) for n in (1, 5))
    forty = channels.common_s(1, np.ones(40, dtype=bool))
    assert five["qkv_projection"] == pytest.approx(5 * one["qkv_projection"])
    assert five["router"] == one["router"]  # five homes at once
    assert forty["router"] == pytest.approx(2 * one["router"])  # 40 slots on 32 homes
    # A norm of 256 elements in 32 lanes, 4 operations at 800 MHz.
    assert one["input_norm"] == pytest.approx(8 * 4 / 800e6)
    assert one["combine"] == pytest.approx(8 * (2 * 2 + 1) / 800e6)
    dense = channels.common_s(0, np.ones(4, dtype=bool))
    assert dense["router"] == dense["expert_top_k"] == 0.0


def test_adding_up_partial_results_takes_twice_the_gather():
    channels = Channels(world.MODEL, world.PLATFORM, Settings(layout="rows"))
    slots = np.ones(4, dtype=bool)
    heads, chunks = (channels.common_s(1, slots, spread) for spread in ("heads", "chunks"))
    assert chunks["attention_all_gather"] == pytest.approx(2 * heads["attention_all_gather"])


@pytest.mark.parametrize("solver", ["ep", "lpt"])
def test_experts_are_the_cost_of_the_placement(solver):
    """In the order of ids of the gather, and with the groups' best orders, it is J, part by part."""
    load, placed = world.traffic().simulated.load, world.placement(8, solver)
    for index, layer in enumerate(load.layers):
        problem = channel_problem(world.MODEL, world.PLATFORM, load, layer, settings=placed.settings)
        parts = problem.step_parts(placed.decisions[layer])  # dram, dispatch, collective, gather, scatter
        times = world.machine(8, solver=solver).experts[layer].stage_s(load.experts[:, :, index])
        assert times["ffn1"] + times["ffn2"] == pytest.approx(parts[:, 0])
        assert times["dispatch"] == pytest.approx(parts[:, 1])
        assert times["tp_communication"] == pytest.approx(parts[:, 2])
        assert (times["output_gather"] <= parts[:, 3] + parts[:, 4] + 1e-15).all()
        by_id = world.machine(8, ring=False, solver=solver).experts[layer].stage_s(load.experts[:, :, index])
        assert by_id["output_gather"] == pytest.approx(parts[:, 3] + parts[:, 4])
        assert (by_id["tp_communication"] >= times["tp_communication"] - 1e-15).all()


def test_ffn1_of_a_whole_expert_by_hand():
    """Gate and up [128, 256], down [256, 128], on the four groups of a site."""
    channels = Channels(world.MODEL, world.PLATFORM, Settings(layout="rows"))
    pim = world.PLATFORM.pim
    up, down = (
        pim.gemv_s(*shape, weight_bytes=2.0, activation_bytes=2.0, groups=4)
        for shape in ((128, 256), (256, 128))
    )
    assert up_share(channels, 1) == pytest.approx(2 * up / (2 * up + down))


def test_orders_of_a_group_by_hand():
    """An expert on the 2 x 2 sites 0, 1, 8, 9: by ids an edge of the three rounds has two hops, not one."""
    placed = world.placement()
    problem = placed.problems[1]
    group = next(g for g in problem.groups.of_factor(4) if set(problem.groups.sites_of(g)) == {0, 1, 8, 9})
    decisions = {1: Decision(np.full(16, group, dtype=np.int32))}
    tokens = np.full((1, 8, 2), -1, dtype=np.int16)
    tokens[0, 0, 0] = 3
    ring, ids = (
        spimoe(Channels(world.MODEL, world.PLATFORM, placed.settings, on), placed.problems, decisions)
        .experts[1]
        .stage_s(tokens)["tp_communication"][0]
        for on in (True, False)
    )
    # All-gather of 128 elements over four sites, then a fourth of 256 results to site 0: 8 -> 0 carries two.
    inner_s, result_s = 3 * 128 / 4 * 2 / BANDWIDTH, 256 / 4 * 2 / BANDWIDTH
    assert ring == pytest.approx(inner_s + 2 * result_s + (3 + 2) * HOP_S)
    assert ids - ring == pytest.approx(3 * HOP_S)


def test_activation_of_the_busiest_site():
    """Three tokens of one whole expert: 128 elements each, 32 lanes, 5 operations."""
    tokens = np.full((1, 8, 2), -1, dtype=np.int16)
    tokens[0, :3, 0] = 5
    times = world.machine(8, solver="ep").experts[1].stage_s(tokens)
    assert times["expert_activation"] == pytest.approx([math.ceil(3 * 128 / 32) * 5 / 800e6])


def test_platforms_without_cores_are_refused():
    with pytest.raises(BadInput, match="SRAM-PIM"):
        Channels(load_model("qwen3-30b-a3b"), load_platform("b200-hbmpim"), Settings())
