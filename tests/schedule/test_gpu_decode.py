"""A decode step on a GPU: rooflines by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.gpu import Gpu
from moeplan.hardware.platform import load_platform
from moeplan.schedule.gpu_decode import gpu_decode
from moeplan.workload.model import load_model

BW, PEAK, KERNEL = 1e12, 1e15, 1e-6
GPU = Gpu(
    memory_bandwidth_bytes_per_s=BW,
    memory_bytes=70e9,
    peak_flop_per_s={"bf16": PEAK},
    nvlink_bytes_per_s=1e9,
    memory_efficiency=1.0,
    compute_efficiency=1.0,
    kernel_s=KERNEL,
)
PLATFORM = dataclasses.replace(load_platform("a100-80g"), gpu=GPU)
MODEL = load_model("qwen3-30b-a3b")
#: Two steps of one recorded layer: 16 tokens on experts 0 to 7, and on 0 to 15.
COUNTS = np.zeros((2, 1, 128), dtype=np.int32)
COUNTS[0, 0, :8], COUNTS[1, 0, :16] = 2, 1
CONTEXTS = [100, 300]


def test_parts_by_hand():
    """Everything is bound by memory: two requests."""
    run = gpu_decode(MODEL, PLATFORM, COUNTS, CONTEXTS)
    d = 2048
    projections = 2 * (d * 40 * 128 + 32 * 128 * d) + 2 * 2 * (d + 40 * 128 + 32 * 128 + d)
    cache = 2 * (4 * 256) * (400 + 2)  # read, and one token of each request written
    assert run.attention_s == pytest.approx(48 * (3 * KERNEL + (projections + cache) / BW))
    expert = 3 * d * 768 * 2
    activations = 2 * 16 * d * 2
    assert run.experts_s == pytest.approx(48 * (KERNEL + (12 * expert + activations) / BW))
    assert run.routing_s == pytest.approx(48 * (4 * KERNEL + d * 128 * 2 / BW))
    assert run.norms_s == pytest.approx(48 * 2 * KERNEL)
    assert run.head_s == pytest.approx(KERNEL + 151936 * d * 2 / BW)
    assert run.total_s == pytest.approx(
        run.attention_s + run.experts_s + run.routing_s + run.norms_s + run.head_s
    )
    assert run.tokens_per_s == pytest.approx(2 / run.total_s)


def test_a_kernel_for_every_matrix_of_every_active_expert():
    grouped = gpu_decode(MODEL, PLATFORM, COUNTS, CONTEXTS)
    looped = gpu_decode(MODEL, PLATFORM, COUNTS, CONTEXTS, experts="looped")
    # 8 and 16 active experts of three matrices instead of one kernel.
    assert looped.experts_s - grouped.experts_s == pytest.approx(48 * (3 * 12 - 1) * KERNEL)


def test_memory():
    weights = MODEL.routed_bytes + MODEL.other_bytes
    run = gpu_decode(MODEL, PLATFORM, COUNTS, CONTEXTS)
    assert run.memory_bytes == weights + 400 * 98304
    assert run.fits
    assert not gpu_decode(MODEL, PLATFORM, COUNTS, [100_000, 1]).fits


def test_states_do_not_grow_with_the_context():
    """Qwen3.5-35B: 10 layers of 2 x 512 elements of a token, 30 of 32 states of 128 x 128."""
    model = load_model("qwen3.5-35b-a3b")
    run = gpu_decode(model, PLATFORM, np.zeros((1, 1, 256), dtype=np.int32), CONTEXTS)
    kept = 400 * 20_480 + 2 * 62_914_560
    assert run.memory_bytes == pytest.approx(model.routed_bytes + model.other_bytes + kept, rel=1e-12)


def test_dense_and_shared_blocks():
    """DeepSeek-V2-Lite: one dense layer of 10944, two shared experts of 1408 in 26 others, none routed."""
    model = load_model("deepseek-v2-lite")
    run = gpu_decode(model, PLATFORM, np.zeros((1, 1, 64), dtype=np.int32), [10])
    dense, shared = (3 * 2048 * width * 2 + 2 * 2048 * 2 for width in (10944, 2 * 1408))
    assert run.experts_s == pytest.approx(27 * KERNEL + (dense + 26 * shared) / BW)


def test_refusals():
    with pytest.raises(BadInput, match="no GPU"):
        gpu_decode(MODEL, load_platform("spimoe-4x8"), COUNTS, CONTEXTS)
    with pytest.raises(UsageError, match="grouped"):
        gpu_decode(MODEL, PLATFORM, COUNTS, CONTEXTS, experts="both")
