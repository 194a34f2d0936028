"""Block-sparse attention: how many cached tokens a decode step looks at (SPIMOE 3.2.2, eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_ROUNDING = 1e-9


@dataclass(frozen=True)
class BlockSparse:
    """Sink, local window, and the best-scored chunks of what lies between; sizes in tokens.

    SPIMOE 4.3 uses a sink of 128, a window of 128, a sparsity of 80 %, and all tokens up to 1K. It gives no
    chunk size: 128 is the largest power of two for which 1K tokens keep at least one chunk, which is its
    reason for the threshold. Raises UsageError on a value out of range.
    """

    sink_tokens: int = 128
    local_tokens: int = 128
    chunk_tokens: int = 128
    sparsity: float = 0.8
    """Share of the chunks between sink and window that a step leaves out."""
    threshold_tokens: int = 1024
    """Up to so many tokens attention is dense."""

    def __post_init__(self) -> None:
        if min(self.sink_tokens, self.local_tokens) < 0 or self.chunk_tokens < 1:
            raise UsageError("sink and window of block-sparse attention are at least 0 tokens, a chunk 1")
        if not 0.0 <= self.sparsity < 1.0:
            raise UsageError(f"a sparsity of {self.sparsity!r} is not possible", allowed="0 <= sparsity < 1")
        if self.threshold_tokens < self.sink_tokens + self.local_tokens:
            raise UsageError(
                f"a threshold of {self.threshold_tokens} tokens lies inside sink and window",
                allowed=f"at least {self.sink_tokens + self.local_tokens}",
            )

    def scored(self, cached: ArrayLike) -> NDArray[np.int64]:
        """Return how many chunk representatives a query is held against: all of them, or 0 where dense."""
        tokens = _tokens(cached)
        return np.where(tokens > self.threshold_tokens, -(-tokens // self.chunk_tokens), 0)

    def visible(self, cached: ArrayLike) -> NDArray[np.int64]:
        """Return how many of the `cached` tokens of every request take part in attention.

        Of n chunks between sink and window, floor(n (1 - sparsity)) are kept, and at least one.
        """
        tokens = _tokens(cached)
        between = tokens - self.sink_tokens - self.local_tokens
        chunks = -(-between // self.chunk_tokens)
        kept = np.maximum(1, np.floor(chunks * (1.0 - self.sparsity) + _ROUNDING).astype(np.int64))
        chosen = np.minimum(kept * self.chunk_tokens, between)
        sparse = self.sink_tokens + self.local_tokens + chosen
        return np.where(tokens > self.threshold_tokens, sparse, tokens)


def _tokens(cached: ArrayLike) -> NDArray[np.int64]:
    tokens: NDArray[Any] = np.asarray(cached)
    if tokens.dtype.kind not in "iu" or (tokens.size and tokens.min() < 0):
        raise UsageError("cached tokens are whole numbers of at least 0")
    return tokens.astype(np.int64)
