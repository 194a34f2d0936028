"""Attention on SRAM-PIM cores: stages by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.sram_pim import SramPim
from moeplan.schedule.attention import CacheShape, CoreAttention, cache_shape, core_attention
from moeplan.schedule.sparse_attention import BlockSparse
from moeplan.workload.model import load_model

CORE = SramPim(
    macro_groups=1,
    group_pus=1,
    pu_peak_flop_per_s=1e9,
    clock_hz=1e9,
    vector_lanes=1,
    reduce_lanes=1,
    port_bytes_per_s=1e9,
)
#: Two units a request of three query heads each, keys of 4 and values of 2 elements.
SHAPE = CacheShape(units=2, query_heads=3, key_width=4, value_width=2, summed_width=2)
#: Three requests with 10, 20 and 30 visible tokens and 1, 2, 3 chunks; units on cores 0 1 | 2 3 | 0 1.
ATTENTION = CoreAttention(CORE, 4, SHAPE, 2.0, np.array([10, 20, 30]), np.array([1, 2, 3]))


def test_stages_by_hand():
    """Cores 0 and 1 hold requests 0 and 2: two units, 40 tokens, 4 chunks."""
    times = ATTENTION.stage_s(np.array([True, True, True]))
    assert times == {
        "rotary": pytest.approx(2 * 4 * 4 * 3e-9),  # 3 queries and a key of 4 elements, 3 operations
        "kv_append": pytest.approx(2 * 6 * 2e-9),  # 6 elements of 2 bytes through 1 GB/s
        "block_scores": pytest.approx(4 * 2 * 3 * 4e-9),  # flop decide: 24 a chunk, 8 bytes
        "block_top_k": pytest.approx(4 * 3e-9),
        "attention_scores": pytest.approx(40 * 2 * 3 * 4e-9),
        "softmax": pytest.approx(40 * 3 * 5e-9),
        "attention_values": pytest.approx(40 * 2 * 3 * 2e-9),
    }


def test_a_sub_batch_leaves_cores_idle_or_not():
    """Request 1 alone: one unit and 20 tokens on each of two cores; by chunks, 40 unit tokens over four."""
    one = np.array([False, True, False])
    heads = ATTENTION.stage_s(one)
    chunks = dataclasses.replace(ATTENTION, spread="chunks").stage_s(one)
    assert heads["softmax"] == pytest.approx(20 * 3 * 5e-9)
    assert chunks["softmax"] == pytest.approx(10 * 3 * 5e-9)
    assert dataclasses.replace(ATTENTION, spread="chunks").stage_s(np.ones(3, bool))["softmax"] == (
        pytest.approx(30 * 3 * 5e-9)  # (10 + 20 + 30) x 2 units over 4 cores
    )


def test_a_slow_port_decides():
    slow = dataclasses.replace(ATTENTION, core=dataclasses.replace(CORE, port_bytes_per_s=1e6))
    assert slow.stage_s(np.ones(3, bool))["attention_scores"] == pytest.approx(40 * 4 * 2 / 1e6)


def test_shapes():
    qwen = cache_shape(load_model("qwen3-30b-a3b"))
    assert qwen == CacheShape(4, 8, 128, 128, 128)
    # 32 queries, 4 keys and 4 values of 128 elements; 32 results.
    assert (qwen.gathered_width, qwen.attended_width) == (40 * 128, 32 * 128)
    lite = cache_shape(load_model("deepseek-v2-lite"))
    assert lite == CacheShape(1, 16, 512 + 64, 0, 512)
    assert lite.gathered_width == 17 * 576


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "glm-5.2", "switch-large-128"])
def test_models_that_are_not_covered(name):
    with pytest.raises(BadInput, match=name):
        cache_shape(load_model(name))


def test_windows_and_sparsity():
    model = load_model("gpt-oss-20b")
    cached, sparse = np.array([100, 8192]), BlockSparse()
    windowed, full = (
        model.attention.sliding_layers[0],
        next(layer for layer in range(model.layers) if layer not in model.attention.sliding_layers),
    )
    inside = core_attention(model, CORE, 32, cached, windowed, sparse)
    assert inside.visible.tolist() == [100, 128]
    assert inside.scored.tolist() == [0, 0]
    whole = core_attention(model, CORE, 32, cached, full, sparse)
    assert whole.visible.tolist() == [100, 1792]
    assert whole.scored.tolist() == [0, 64]
    assert core_attention(model, CORE, 32, cached, full, None).visible.tolist() == [100, 8192]
