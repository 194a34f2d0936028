"""Equation 3: who holds what, and what each order of reduction sends, against exchanges carried out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moeplan.common.errors import UsageError
from moeplan.hardware.nearmem import rexpert
from moeplan.schedule.reduction import (
    Mapping,
    Shares,
    array_depths,
    demands,
    map_layer,
    order_penalty,
    shares,
    tile_fill_batch,
)
from moeplan.workload.model import load_model

NODE = rexpert()
QWEN_35B, QWEN_397B, GLM = (load_model(name) for name in ("qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "glm-5.2"))


def test_mappings_by_hand() -> None:
    # 256 experts of one shard lie on one die of 320 units.
    one = map_layer(QWEN_35B, NODE)
    assert (one.folding.shards, one.expert_dies, one.shard_dies, one.dies) == (1, 1, 1, 1)
    # 512 experts of four shards: two dies per shard, eight dies; a package of four holds two shards.
    four = map_layer(QWEN_397B, NODE)
    assert (four.folding.shards, four.expert_dies, four.dies) == (4, 2, 8)
    assert (four.package_expert_dies, four.package_shard_dies) == (2, 2)
    # 256 experts of 16 shards: one die per shard, four packages.
    sixteen = map_layer(GLM, NODE)
    assert (sixteen.folding.shards, sixteen.expert_dies, sixteen.dies) == (16, 1, 16)
    assert (sixteen.package_expert_dies, sixteen.package_shard_dies) == (1, 4)
    # Eight experts fit forty times: 56 shards take two dies.
    few = map_layer(load_model("mixtral-8x7b"), NODE)
    assert (few.folding.shards, few.die_shards, few.shard_dies, few.dies) == (56, 40, 2, 2)


def sent(mapping: Mapping, order: str) -> float:
    """Partial sums that a die sends inside its package per token, by carrying the exchanges out.

    Every die starts with `width` elements of the partial sums of each of its experts; an exchange halves,
    quarters, ... what a die is in charge of, and it sends the rest.
    """
    width, total = 1.0, 0.0
    experts = mapping.top_k / mapping.expert_dies

    def exchange(vectors: float, members: int) -> None:
        nonlocal width, total
        total += vectors * width * (members - 1) / members
        width /= members

    outside = -(-mapping.shard_dies // mapping.package_shard_dies)
    if order == "ep-first":
        exchange(1.0, mapping.package_expert_dies)
        exchange(1.0, mapping.package_shard_dies)
    else:
        exchange(experts, mapping.package_shard_dies)
        width /= outside
        exchange(1.0, mapping.package_expert_dies)
    return total


@pytest.mark.parametrize("order", ["ep-first", "tp-first"])
@pytest.mark.parametrize("model", [QWEN_35B, QWEN_397B, GLM])
def test_shares_equal_the_exchanges(model, order) -> None:
    mapping = map_layer(model, NODE)
    assert shares(mapping, order).package_partials == pytest.approx(sent(mapping, order))


def test_shares_by_hand() -> None:
    # GLM-5.2, ep-first: among four dies each sends 3/4 of an activation and of a partial sum; of the
    # quarter that it keeps, 3/4 go to the three other packages. tp-first: eight partial sums instead of one.
    mapping = map_layer(GLM, NODE)
    assert shares(mapping, "ep-first") == Shares(0.75, 0.75, 0.1875, 0.1875)
    assert shares(mapping, "tp-first") == Shares(0.75, 6.0, 0.1875, 1.5)
    # Qwen3.5-397B, tp-first: five experts per die; half of each goes to the other shard in the package, a
    # quarter (half of what is kept) to the package with the other two shards; of the quarter of one sum that
    # remains, half goes to the die with the other experts.
    mapping = map_layer(QWEN_397B, NODE)
    assert shares(mapping, "tp-first") == Shares(0.75, 2.5 + 0.125, 0.125, 1.25)
    # One die sends nothing.
    assert shares(map_layer(QWEN_35B, NODE), "tp-first") == Shares(0.0, 0.0, 0.0, 0.0)
    # Bytes: one per element of an activation, two per element of a partial sum.
    assert Shares(0.5, 0.25, 0.25, 0.125).package_bytes(100) == pytest.approx(100.0)
    assert Shares(0.5, 0.25, 0.25, 0.125).outer_bytes(100) == pytest.approx(50.0)


def test_order_penalties() -> None:
    # Section V-C: 5.7, 5.7 (where there are two shards, at 16K columns) and 2.7.
    assert order_penalty(GLM, NODE) == pytest.approx(12.75 / 2.25)
    assert order_penalty(QWEN_35B, NODE.resized(columns=16384)) == pytest.approx(8.5 / 1.5)
    assert order_penalty(QWEN_397B, NODE) == pytest.approx(6.0 / 2.25)
    assert order_penalty(QWEN_35B, NODE) == 1.0


def test_tile_fill_batches() -> None:
    # Table VI, note: 4 E / k.
    assert [tile_fill_batch(model, NODE) for model in (QWEN_35B, QWEN_397B, GLM)] == [128, 205, 128]


def test_demands_by_hand() -> None:
    # GLM-5.2 at 128 tokens: t = 18432 x 2.5 ns. Unit: 4 x 6144 x 3 bytes. Package 2.25, all 2.8125, node one
    # 6144-byte vector per token.
    layer_s = 18432 * 2.5e-9
    found = {demand.level: demand for demand in demands(GLM, NODE, 128)}
    per_vector = 128 * 6144 / layer_s
    assert found["unit I/O"].bytes_per_s == pytest.approx(12 * 6144 / layer_s)
    assert found["package D2D, per die"].bytes_per_s == pytest.approx(2.25 * per_vector)
    assert found["all D2D, per die"].bytes_per_s == pytest.approx(2.8125 * per_vector)
    assert found["node residual"].bytes_per_s == pytest.approx(per_vector)
    assert [demand.provision_bytes_per_s for demand in found.values()] == pytest.approx(
        [51.2e9, 96e9, 96e9, 34e9]
    )
    assert all(demand.is_met for demand in found.values())
    # The reversed order needs 213 GB/s there, more than the 96 that are provided.
    reversed_ = {demand.level: demand for demand in demands(GLM, NODE, 128, "tp-first")}
    assert not reversed_["package D2D, per die"].is_met
    assert reversed_["node residual"] == found["node residual"]


def test_depths() -> None:
    # Half the depth: half the time, twice the shards; GLM-5.2 does not fit, and no demand is made up for it.
    shallow, _, usual, _ = array_depths(QWEN_397B, NODE, 205, weight_bytes=1.0)
    assert (shallow.shards, usual.shards) == (8, 4)
    assert shallow.layer_s == pytest.approx(usual.layer_s / 2)
    assert shallow.package_bytes_per_s == pytest.approx(2 * usual.package_bytes_per_s)
    none = array_depths(GLM, NODE, 128, weight_bytes=1.0)[0]
    assert (none.shards, none.package_bytes_per_s) == (0, 0.0)
    # One die holds 16 x 20 x 16384 x 128 bytes of 16K columns: a byte more takes two.
    full = 16 * 20 * 16384 * 128
    assert [
        array_depths(QWEN_35B, NODE, 1, weight_bytes=size, columns=(16384,))[0].dies
        for size in (full, full + 1)
    ] == [1, 2]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown order"):
        shares(map_layer(GLM, NODE), "both")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="demands nothing"):
        demands(GLM, NODE, 0)
    with pytest.raises(UsageError, match="deeper"):
        map_layer(GLM, NODE.resized(columns=16384))


def test_a_token_with_fewer_experts_than_dies() -> None:
    # Top-1 over two dies: on average half a partial sum each, in both orders.
    single = replace(QWEN_397B, top_k=1)
    mapping = map_layer(single, NODE)
    assert mapping.die_top_k == 0.5
    assert shares(mapping, "ep-first").package_partials == pytest.approx(0.5 * 0.75)
    assert shares(mapping, "tp-first").package_partials == pytest.approx(0.25 + 0.5 / 4 * 0.5)
