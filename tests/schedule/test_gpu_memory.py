"""What GPUs hold, by hand, and how many of them would do."""

from __future__ import annotations

import dataclasses

import pytest

from moeplan.hardware.platform import load_platform
from moeplan.schedule.decode import Prefill, Setup
from moeplan.schedule.gpu_memory import decode_memory
from moeplan.workload.model import load_model

PLATFORM = load_platform("b200-hbmpim")
QWEN = load_model("qwen3-30b-a3b")
ROUTED, OTHER = QWEN.routed_bytes, QWEN.other_bytes


def holding(capacity_bytes):
    assert PLATFORM.gpu is not None
    return dataclasses.replace(PLATFORM, gpu=dataclasses.replace(PLATFORM.gpu, memory_bytes=capacity_bytes))


def test_one_gpu_holds_all():
    found = decode_memory(Setup(QWEN, PLATFORM, context=1000), batch=16, steps=4)
    assert found.memory_bytes == pytest.approx(ROUTED + OTHER + 16 * 1004 * 98304, rel=1e-12)
    assert found.capacity_bytes == PLATFORM.gpu.memory_bytes
    assert found.fits


def test_experts_and_caches_are_split_and_prompts_are_cached():
    setup = Setup(QWEN, PLATFORM, gpus=4, tensor_parallel=2, context=1000, prefill=Prefill(8, 64))
    attention = 48 * 2048 * (32 * 128 + 2 * 4 * 128 + 32 * 128) * 2
    split = ROUTED + (16 * 1001 + 8 * 64) * 98304
    found = decode_memory(setup, batch=16, steps=1)
    assert found.memory_bytes == pytest.approx(OTHER - attention / 2 + split / 4, rel=1e-12)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_the_fewest_fit_and_half_of_them_do_not(gpus):
    # Room for the share of `gpus` GPUs exactly; their number has to divide 8 requests.
    split = ROUTED + 8 * 1001 * 98304
    platform = holding(OTHER + split / gpus + 1.0)
    found = decode_memory(Setup(QWEN, platform, context=1000), batch=8, steps=1)
    assert not found.fits
    assert (found.enough_gpus, found.least_gpus) == (gpus, gpus)
    assert decode_memory(Setup(QWEN, platform, gpus=gpus, context=1000), batch=8, steps=1).fits
    assert not decode_memory(Setup(QWEN, platform, gpus=gpus // 2, context=1000), batch=8, steps=1).fits
    assert f"{gpus} GPUs have room" in found.shortage


def test_what_no_number_of_gpus_holds():
    split = ROUTED + 8 * 1001 * 98304
    few = decode_memory(Setup(QWEN, holding(OTHER + split / 9), context=1000), batch=8, steps=1)
    assert (few.enough_gpus, few.least_gpus) == (None, 9)
    assert "by bytes alone it takes 9 GPUs" in few.shortage
    none = decode_memory(Setup(QWEN, holding(OTHER), context=1000), batch=8, steps=1)
    assert (none.enough_gpus, none.least_gpus) == (None, None)
    assert "no number of GPUs" in none.shortage
