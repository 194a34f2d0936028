"""Bytes and FLOP of a decode step, by hand from the models' shapes."""

from __future__ import annotations

import pytest

from moeplan.common.errors import UsageError
from moeplan.schedule.decode_step import decode_step, ffn_bytes
from moeplan.workload.model import load_model

QWEN, GLM, MIXTRAL = (load_model(name) for name in ("qwen3.5-35b-a3b", "glm-5.2", "mixtral-8x7b"))


def test_experts_by_hand() -> None:
    # L (U P + d E): 40 x (50 x 3 x 2048 x 512 + 2048 x 256); 2 FLOP per weight of 8 experts and 16 tokens.
    step = decode_step(QWEN, batch=16, context=1, union=50.0)
    assert step.ffn_bytes == 40 * (50 * 3 * 2048 * 512 + 2048 * 256)
    assert step.ffn_flop == 2 * 40 * 16 * 8 * 3 * 2048 * 512
    # 256 routed experts and a shared one of the same width.
    assert step.resident_bytes == ffn_bytes(QWEN) == 40 * 257 * 3 * 2048 * 512


def test_published_attention_by_hand() -> None:
    # Every layer reads 2 heads x (256 + 256) bytes of each token; projections: 16 query heads in and out,
    # 2 x 2 key and value heads, 256 wide: 18.9 M weights, once per step. Nothing computes.
    step = decode_step(QWEN, batch=8, context=4096, union=50.0)
    assert len(step.attention) == 40
    weights = 2048 * 256 * (16 + 2 + 2) + 16 * 256 * 2048
    for work in step.attention:
        assert work.cache_bytes == 2 * 512 * 4096 * 8
        assert work.projection_bytes == weights
        assert work.projection_flop == work.cache_flop == 0.0
    assert step.attention_resident_bytes == 40 * (weights + 1024 * 4096 * 8)
    # GLM-5.2: 2048 bytes per MoE layer and token.
    glm = decode_step(GLM, batch=2, context=100, union=8.0)
    assert len(glm.attention) == 75
    assert {work.cache_bytes for work in glm.attention} == {2048 * 100 * 2}


def test_attention_of_the_checkpoint() -> None:
    # Of Qwen3.5's 40 layers ten cache tokens, the others keep 32 x 128 x 128 states of four bytes, read and
    # written; so twice the context is far from twice the bytes.
    short, long = (
        decode_step(QWEN, batch=1, context=c, union=8.0, account="checkpoint") for c in (1000, 2000)
    )
    growing = [
        later.cache_bytes - earlier.cache_bytes
        for earlier, later in zip(short.attention, long.attention, strict=True)
    ]
    assert growing.count(1000 * 1024) == 10
    assert growing.count(0) == 30
    assert short.attention[0].cache_bytes == 2 * 32 * 128 * 128 * 4
    # GLM-5.2 attends to 2048 chosen latents, and holds those of all tokens (576 bytes each) and index keys
    # of 128 bytes where there is an indexer: 3 + 18 layers.
    glm = decode_step(GLM, batch=1, context=100_000, union=8.0, account="checkpoint")
    weights = sum(work.weight_bytes for work in glm.attention)
    assert glm.attention_resident_bytes - weights == 100_000 * (78 * 576 + 21 * 128)
    read = sum(work.cache_read_bytes for work in glm.attention)
    assert read == 78 * 2048 * 576 + 21 * 128 * 100_000


def test_attention_without_peculiarities_is_the_same_by_both_accounts() -> None:
    # Mixtral caches every token in every layer; the checkpoint adds what is written, and activations.
    ours, real = (
        decode_step(MIXTRAL, batch=4, context=512, union=8.0, account=account)
        for account in ("published", "checkpoint")
    )
    for one, other in zip(ours.attention, real.attention, strict=True):
        assert one.cache_read_bytes == other.cache_read_bytes
        assert one.weight_bytes == other.weight_bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 0}, "needs a token"),
        ({"context": 0}, "needs a token"),
        ({"union": 0.5}, "cannot activate 0.5"),
        ({"batch": 64, "union": 257.0}, "cannot activate 257"),
        ({"batch": 3, "union": 25.0}, "1 to 24: 3 tokens choose 8 of 256 each"),
        ({"union": float("nan")}, "cannot activate nan"),
        ({"account": "mine"}, "unknown account"),
    ],
)
def test_what_cannot_be_is_refused(change, words) -> None:
    with pytest.raises(UsageError, match=words):
        decode_step(QWEN, **({"batch": 1, "context": 1, "union": 8.0} | change))


def test_models_with_an_encoder_are_refused() -> None:
    with pytest.raises(UsageError, match="has an encoder"):
        decode_step(load_model("switch-base-16"), batch=1, context=1, union=1.0)
