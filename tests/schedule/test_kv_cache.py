"""What fits, and what eviction leaves: bookkeeping by hand."""

from __future__ import annotations

import pytest

from moeplan.common.errors import BadInput, ProvenInfeasible, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.schedule.kv_cache import (
    MOST_TOKENS,
    CacheBytes,
    Eviction,
    KvCapacity,
    ReasoningTrace,
    cache_bytes,
    kv_capacity,
    platform_capacity,
)
from moeplan.workload.model import load_model


def test_capacity_by_hand():
    model = load_model("qwen3-30b-a3b")
    experts = 48 * 128 * 3 * 2048 * 768
    attention = 48 * 2048 * (32 * 128 + 2 * 4 * 128 + 32 * 128)
    others = 48 * 2048 * 128 + 2 * 151936 * 2048
    free = 96e9 - 2 * (experts + attention + others)
    capacity = platform_capacity(model, load_platform("spimoe-4x8"))
    assert capacity.free_bytes == pytest.approx(free)
    # 48 layers x 4 heads x (128 + 128) elements x 2 bytes.
    assert capacity.tokens(1) == capacity.tokens(7) == int(free // 98304)
    assert capacity.tokens_each(7) == int(free // 98304) // 7


@pytest.mark.parametrize(
    ("name", "token", "window", "state"),
    [
        # Layers x heads x (key + value) x 2 bytes.
        ("qwen3-30b-a3b", 48 * 4 * (128 + 128) * 2, (0, 0), 0),
        # Layers x (latent + rotary key) x 2 bytes.
        ("deepseek-v2-lite", 27 * (512 + 64) * 2, (0, 0), 0),
        # Every other layer sees 128 tokens.
        ("gpt-oss-20b", 12 * 8 * (64 + 64) * 2, (12 * 8 * (64 + 64) * 2, 128), 0),
        # Three of four layers keep a 128 x 128 state of 4-byte elements per value head.
        ("qwen3.5-35b-a3b", 10 * 2 * (256 + 256) * 2, (0, 0), 30 * 32 * 128 * 128 * 4),
        ("qwen3-next-80b-a3b", 12 * 2 * (256 + 256) * 2, (0, 0), 36 * 32 * 128 * 128 * 4),
        ("qwen3.5-397b-a17b", 15 * 2 * (256 + 256) * 2, (0, 0), 45 * 64 * 128 * 128 * 4),
        # 21 of its layers keep a key of the indexer besides; all latents stay.
        ("glm-5.2", 78 * (512 + 64) * 2 + 21 * 128 * 2, (0, 0), 0),
        # Only the 24 decoder layers grow.
        ("switch-large-128", 24 * 16 * (64 + 64) * 2, (0, 0), 0),
    ],
)
def test_what_a_request_keeps_by_hand(name, token, window, state):
    kept = cache_bytes(load_model(name))
    assert (kept.token_bytes, kept.window_bytes, kept.window, kept.state_bytes) == (token, *window, state)
    for tokens in (1, 100, 128, 129, 5000):
        assert kept.of(tokens) == token * tokens + window[0] * min(tokens, window[1]) + state
    assert kept.total([1, 5000]) == kept.of(1) + kept.of(5000)


def test_bytes_of_other_element_types():
    kept = cache_bytes(load_model("qwen3.5-35b-a3b"), 1.0, state_element_bytes=2.0)
    assert (kept.token_bytes, kept.state_bytes) == (10 * 2 * 512, 30 * 32 * 128 * 128 * 2)


@pytest.mark.parametrize(
    "kept",
    [
        CacheBytes(10.0),
        CacheBytes(10.0, 7.0, 5),
        CacheBytes(10.0, 7.0, 5, 100.0),
        CacheBytes(0.0, 7.0, 5, 3.0),
    ],
)
def test_capacity_is_the_largest_that_fits(kept):
    """Against counting upwards, token by token, the requests in turn."""
    for free in (0.0, 50.0, 99.0, 300.0, 301.0, 1234.0):
        for requests in (1, 3):
            capacity = KvCapacity(free, kept)
            if not kept.token_bytes and requests * kept.of(kept.window) <= free:
                assert capacity.tokens_each(requests) == MOST_TOKENS
                continue
            total = 0
            shares = [0] * requests
            while True:
                shares[total % requests] += 1
                if kept.total(shares) > free:
                    break
                total += 1
            assert capacity.tokens(requests) == total
            assert capacity.tokens_each(requests) == total // requests
            each = capacity.tokens_each(requests)
            assert capacity.fits(requests, each) or each == 0
            assert not capacity.fits(requests, each + 1)


def test_too_much_is_refused_with_the_capacity():
    capacity = KvCapacity(10_000.0, CacheBytes(10.0))
    capacity.require(4, 250)
    with pytest.raises(BadInput) as error:
        capacity.require(4, 251, where="here")
    assert "1000 tokens in all, 250 a request at batch 4" in str(error.value)
    assert "here" in str(error.value)


def test_uncovered_attention_is_refused_before_any_capacity():
    # The weights of the 397B would not fit either.
    for name in ("qwen3.5-35b-a3b", "qwen3.5-397b-a17b"):
        with pytest.raises(BadInput, match="gated delta nets"):
            platform_capacity(load_model(name), load_platform("spimoe-4x8"))


def test_weights_alone_may_not_fit():
    with pytest.raises(ProvenInfeasible, match="tiny machine"):
        kv_capacity(load_model("qwen3-30b-a3b"), 60e9, where="tiny machine")
    with pytest.raises(BadInput, match="memory sites"):
        platform_capacity(load_model("qwen3-30b-a3b"), load_platform("a100-80g"))


@pytest.mark.parametrize(
    ("of", "resident", "peak", "evicted"), [("history", 1100, 1100, 150), ("present", 1000, 1050, 250)]
)
def test_eviction_by_hand(of, resident, peak, evicted):
    """Prompt 100 and paragraph 200 are pinned. At the end of paragraph 150, 3 earlier chunks become 2.

    At the end of paragraph 400: of history 5 chunks ever become 3 (300 of 350 tokens stay); of those present
    4 become 2 (200 stay).
    """
    policy = Eviction(retained=0.5, of=of, chunk_tokens=100)
    cached = policy.run(ReasoningTrace(100, (200, 300, 150, 400, 100)))
    assert cached == (resident, peak, evicted)


def test_without_an_end_the_fallback_evicts():
    """500 tokens before; the ongoing paragraph is looked at every 1000 tokens, above 1600 in the cache."""
    policy = Eviction(retained=0.5, chunk_tokens=100, fallback_tokens=1000, fallback_occupancy=0.8)
    trace = ReasoningTrace(0, (10, 500, 5000))
    # 1510 after 1000 tokens: enough room. 2510 after 2000: 5 chunks become 3.
    assert policy.run(trace, 2000) == (10 + 300 + 5000, 5310, 200)
    assert policy.run(trace) == (5510, 5510, 0)


def test_regular_paragraphs():
    """8192 tokens in 64 chunks: prompt, first and last paragraph, and half of the other 61 and rounded up."""
    assert Eviction().resident(8192).resident == (1 + 1 + 1 + 31) * 128 == 4352
    assert Eviction().resident(100) == (100, 100, 0)
    assert Eviction(retained=1.0).resident(5000) == (5000, 5000, 0)


@pytest.mark.parametrize("context", [1, 129, 1000, 4096, 10_000])
def test_nothing_is_lost(context):
    for policy in (Eviction(), Eviction(of="present"), Eviction(retained=0.0, chunk_tokens=48)):
        cached = policy.resident(context)
        assert cached.resident + cached.evicted == context
        assert cached.resident <= cached.peak <= context


@pytest.mark.parametrize(
    "wrong", [{"retained": 1.1}, {"of": "all"}, {"chunk_tokens": 0}, {"prompt_tokens": -1}]
)
def test_bad_values(wrong):
    with pytest.raises(UsageError):
        Eviction(**wrong)
    with pytest.raises(UsageError):
        ReasoningTrace(0, ())
    with pytest.raises(UsageError):
        ReasoningTrace(5, (0,))
