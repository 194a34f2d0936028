"""Whole decode steps on SPIMOE: sums, overlap, features and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.schedule.spimoe import PARTITIONS, Features, _Step
from moeplan.schedule.spimoe_run import of_layers, simulate
from moeplan.schedule.stages import STAGES
from moeplan.workload.pruning import PruningSettings, with_rank_weights

from . import spimoe_world as world


def run(context=512, features=None, *, ring=True, batch=8, **more):
    return simulate(
        world.MODEL, world.PLATFORM, world.traffic(batch), world.placement(batch), context,
        features=features, ring=ring, **more,
    ).run  # fmt: skip


def test_a_serial_step_is_the_sum_of_its_stages():
    found = run(features=Features(partition="none"))
    assert set(found.parts) == {stage.name for stage in STAGES} | {"head"}
    assert found.tpot_s == pytest.approx(sum(found.parts.values()))
    assert found.serial_s == pytest.approx(found.tpot_s)
    assert found.overlapped_s == 0.0
    assert found.tokens_per_s == pytest.approx(8 / found.tpot_s)
    assert found.mean("efficiency") == pytest.approx(0.5)


def test_the_head_by_hand():
    """1000 outputs of 256 inputs over all channels, once per request, after everything else."""
    token_s = world.PLATFORM.pim.gemv_s(1000, 256, weight_bytes=2.0, activation_bytes=2.0, groups=128)
    assert run().parts["head"] == pytest.approx(8 * token_s)


def test_dense_layers_have_no_router_but_a_block():
    """Of three layers two are routed; without routed work the dense one is left."""
    load = world.traffic().simulated.load
    nobody = dataclasses.replace(load, experts=np.full_like(load.experts, -1))
    found = world.machine().simulate(nobody, 512, Features(partition="none"))
    channels = world.machine().channels
    block = channels.spread_ffn_s(1000, 8)
    for name in ("dispatch", "ffn1", "tp_communication", "ffn2"):
        assert found.parts[name] == pytest.approx(block[name])
    assert found.parts["router"] == pytest.approx(2 * channels.router_s)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_overlap_is_bounded_by_both_sides(partition):
    found = run(features=Features(partition=partition, sub_batches=2))
    for times, step_s in zip(found.pipelines, found.step_s, strict=True):
        assert step_s == pytest.approx(times.total_s + found.parts["head"])
        assert times.total_s <= times.attention_s + times.moe_s + 1e-15
        assert times.total_s >= max(times.attention_s, times.moe_s) - 1e-15
    assert found.tpot_s + found.overlapped_s == pytest.approx(sum(found.parts.values()))


@pytest.mark.parametrize("context", [64, 2048, 20_000])
def test_no_partition_beats_the_oracle(context):
    """Where the sub-batches' times are exactly those that the search sees: gathers in the order of ids."""
    plain = Features(sparse=None, eviction=None)
    steps = {
        kind: run(context, dataclasses.replace(plain, partition=kind, sub_batches=2), ring=False).step_s
        for kind in PARTITIONS
    }
    for kind in PARTITIONS:
        assert (steps["oracle"] <= steps[kind] * (1 + 1e-12)).all()


def test_predicted_times_are_scaled_to_what_is_expected():
    """All tokens are foretold the same two experts; n of them still take expected[n] on average."""
    load, features = world.traffic().simulated.load, Features()
    expected = np.arange(9.0) ** 2
    step = _Step(world.machine(), load, np.full(8, 512), features, None, expected)
    alike = np.zeros((8, 2, 2), dtype=np.int16) + np.array([3, 5], dtype=np.int16)
    _, plain = step._tables(np.full_like(alike, -1), scaled=False)
    _, scaled = step._tables(alike, scaled=True)
    routed = (scaled - plain).sum(axis=0)
    for n in range(1, 9):
        assert np.mean(np.diagonal(routed, n)) == pytest.approx(expected[n])


def test_mechanisms_do_what_they_are_for():
    long = 8192
    whole = Features(partition="none", sparse=None, eviction=None)
    dense, sparse, evicted = (
        run(long, dataclasses.replace(whole, **change)).parts
        for change in ({}, {"sparse": Features().sparse}, {"eviction": Features().eviction})
    )
    # 1792 of 8192 tokens are visible, 4352 are left by eviction; keys stream through the port.
    assert sparse["attention_scores"] == pytest.approx(dense["attention_scores"] * 1792 / 8192)
    assert evicted["attention_scores"] == pytest.approx(dense["attention_scores"] * 4352 / 8192)
    assert dense["block_scores"] == 0.0 < sparse["block_scores"]
    assert run(ring=False, features=whole).tpot_s > run(features=whole).tpot_s


def test_pruning_drops_work_and_says_how_much():
    made = world.traffic()
    weighed = dataclasses.replace(
        made,
        profile=with_rank_weights(made.profile, 0.5),
        planned=dataclasses.replace(made.planned, trace=with_rank_weights(made.planned.trace, 0.5)),
        simulated=dataclasses.replace(made.simulated, trace=with_rank_weights(made.simulated.trace, 0.5)),
    )
    outcome = simulate(
        world.MODEL, world.PLATFORM, weighed, world.placement(), 512, pruning=PruningSettings(uniform=0.9)
    )
    # The second of two experts weighs half of the first: it goes, with a third of the mass.
    assert outcome.pruned.experts_per_token == 1.0
    assert outcome.pruned.kept_mass == pytest.approx(2 / 3)
    assert outcome.run.parts["ffn1"] < run().parts["ffn1"]
    assert (outcome.load.experts >= 0).all()  # the GPU runs what the router chose


def test_layers_that_were_not_recorded_take_the_mean():
    made, placed = world.traffic(), world.placement()
    kept = dataclasses.replace(
        made,
        profile=of_layers(made.profile, [1]),
        planned=_only_first(made.planned),
        simulated=_only_first(made.simulated),
    )
    features = Features(partition="none")
    one = simulate(world.MODEL, world.PLATFORM, kept, placed, 512, features=features).run
    load = made.simulated.load
    both = world.machine().experts[1].stage_s(load.experts[:, :, 0])
    block = world.machine().channels.spread_ffn_s(1000, 8)
    assert one.parts["ffn2"] == pytest.approx(2 * both["ffn2"].mean() + block["ffn2"])


def _only_first(replayed):
    load = replayed.load
    return dataclasses.replace(
        replayed,
        trace=of_layers(replayed.trace, [1]),
        load=dataclasses.replace(load, experts=load.experts[:, :, :1], layers=(1,)),
    )


def test_too_long_a_context_names_the_capacity():
    with pytest.raises(BadInput, match="KV capacity") as error:
        run(10**7)
    assert "a request at batch 8" in str(error.value)


def test_refusals():
    load = world.traffic().simulated.load
    with pytest.raises(UsageError, match="prediction"):
        world.machine().simulate(load, 512, Features(partition="dynamic"))
    with pytest.raises(UsageError, match="context"):
        world.machine().simulate(load, 0)
    other = dataclasses.replace(load, layers=(0, 2))
    with pytest.raises(BadInput, match="layer 0"):
        world.machine().simulate(other, 512)
    with pytest.raises(BadInput, match="none of the layers"):
        of_layers(world.traffic().profile, [7])
    for wrong in ({"partition": "best"}, {"sub_batches": 0}):
        with pytest.raises(UsageError):
            Features(**wrong)
