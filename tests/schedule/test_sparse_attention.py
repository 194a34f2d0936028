"""Tokens that block-sparse attention looks at, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.schedule.sparse_attention import BlockSparse


@pytest.mark.parametrize(
    ("cached", "visible", "scored"),
    [
        (0, 0, 0),
        (300, 300, 0),
        (1024, 1024, 0),  # dense up to the threshold
        (1025, 256 + 128, 9),  # 769 between: 7 chunks, a fifth of them is 1.4
        (2048, 256 + 2 * 128, 16),  # 1792 between: 14 chunks, 2.8
        (8192, 256 + 12 * 128, 64),  # 7936 between: 62 chunks, 12.4
        (2176, 256 + 3 * 128, 17),  # 15 chunks, exactly 3
    ],
)
def test_by_hand(cached, visible, scored):
    published = BlockSparse()
    assert published.visible([cached]).tolist() == [visible]
    assert published.scored([cached]).tolist() == [scored]


def test_one_chunk_is_always_kept_and_never_more_than_there_is():
    sparse = BlockSparse(sink_tokens=10, local_tokens=10, chunk_tokens=8, sparsity=0.99, threshold_tokens=20)
    # 5 tokens lie between sink and window, less than a chunk.
    assert sparse.visible([25, 100]).tolist() == [25, 28]


def test_no_sparsity_sees_everything():
    tokens = np.arange(0, 5000, 7)
    assert (BlockSparse(sparsity=0.0).visible(tokens) == tokens).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"sparsity": 1.0},
        {"sparsity": -0.1},
        {"chunk_tokens": 0},
        {"sink_tokens": -1},
        {"threshold_tokens": 255},
    ],
)
def test_bad_values(wrong):
    with pytest.raises(UsageError):
        BlockSparse(**wrong)


def test_tokens_are_whole_numbers():
    with pytest.raises(UsageError):
        BlockSparse().visible([1.5])
    with pytest.raises(UsageError):
        BlockSparse().visible([-1])
