"""What requests keep, how many of their tokens fit, and what eviction leaves of them (SPIMOE 3.2.2).

A request keeps keys and values of every token, those of a window, and states that do not grow.

Eviction is a model of capacity: it counts tokens in the three regions of the published scheme and leaves open
which chunk is chosen. Pinned are the prompt and the first paragraph; the ongoing paragraph is kept; of the
chunks before it a fraction stays, at every paragraph's end, or after so many tokens without one when the
cache is nearly full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from ..common.errors import BadInput, ProvenInfeasible, UsageError
from ..workload.attention import decode_attention
from .attention import cache_shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..hardware.platform import Platform
    from ..workload.model import MoEModel

MOST_TOKENS: Final = 10**12
"""Of a request, where nothing that it keeps grows with its tokens."""
_GIB = 2.0**30


@dataclass(frozen=True)
class CacheBytes:
    """What one request keeps of its tokens, summed over all layers that decode."""

    token_bytes: float
    """Of every token, however many there are: keys and values, latents, keys of an indexer."""
    window_bytes: float = 0.0
    """Of every token that a sliding window still sees."""
    window: int = 0
    """Tokens of that window."""
    state_bytes: float = 0.0
    """Of the request itself: states of gated delta nets."""

    def of(self, tokens: int) -> float:
        """Return the bytes of a request of so many tokens."""
        seen = min(tokens, self.window)
        return self.token_bytes * tokens + self.window_bytes * seen + self.state_bytes

    def total(self, contexts: ArrayLike) -> float:
        """Return the bytes of requests of these tokens, `[B]`, together."""
        tokens = np.asarray(contexts, dtype=np.float64)
        seen = np.minimum(tokens, self.window)
        grown = self.token_bytes * tokens + self.window_bytes * seen
        return float(grown.sum()) + self.state_bytes * tokens.size

    def tokens_in(self, free_bytes: float) -> int:
        """Return the most tokens of one request in `free_bytes`, at most MOST_TOKENS; 0 where none fits."""
        left = free_bytes - self.state_bytes
        if left < 0.0:
            return 0
        full = self.of(self.window) - self.state_bytes
        if left < full:
            return int(left // (self.token_bytes + self.window_bytes))
        if not self.token_bytes:
            return MOST_TOKENS
        return min(MOST_TOKENS, self.window + int((left - full) // self.token_bytes))


def cache_bytes(
    model: MoEModel, element_bytes: float | None = None, *, state_element_bytes: float = 4.0
) -> CacheBytes:
    """Return what a request of a model keeps.

    `element_bytes` per element of a key, value or latent (None: those of an activation), and
    `state_element_bytes` of a linear layer's state, as in `workload.attention.decode_attention`. An indexer
    picks among latents that all stay. Not counted: what a decoder keeps of its encoder, and the last inputs
    of a delta net's short convolution.
    """
    shape = model.attention
    decoding = shape.cross_layers or tuple(range(model.layers))

    def written(layers: list[int]) -> float:
        return decode_attention(
            model,
            [1],
            layers=layers,
            cache_element_bytes=model.activation_bytes if element_bytes is None else element_bytes,
            state_element_bytes=state_element_bytes,
            encoder_tokens=1 if shape.cross_layers else 0,
        ).cache_write_bytes

    linear = [layer for layer in decoding if layer in shape.linear_layers]
    sliding = [layer for layer in decoding if layer in shape.sliding_layers]
    growing = [layer for layer in decoding if layer not in shape.linear_layers + shape.sliding_layers]
    return CacheBytes(
        token_bytes=written(growing),
        window_bytes=written(sliding),
        window=shape.sliding_window if sliding else 0,
        state_bytes=written(linear),
    )


@dataclass(frozen=True)
class KvCapacity:
    """What is left of a machine's memory for keys, values and states."""

    free_bytes: float
    request: CacheBytes

    def tokens(self, requests: int) -> int:
        """Return how many tokens fit of so many requests together, spread evenly over them.

        Blocks come from one free list, wherever they lie.
        """
        each = self.tokens_each(requests)
        step = self.request.of(each + 1) - self.request.of(each)
        rest = self.free_bytes - requests * self.request.of(each)
        return requests * each + (int(rest // step) if step > 0.0 and rest > 0.0 else 0)

    def tokens_each(self, requests: int) -> int:
        """Return how many tokens each of so many requests may have."""
        return self.request.tokens_in(self.free_bytes / requests)

    def fits(self, requests: int, cached: int) -> bool:
        """Tell whether so many requests of `cached` tokens each have room."""
        return requests * self.request.of(cached) <= self.free_bytes

    def require(self, batch: int, cached: int, *, where: str = "") -> None:
        """Raise BadInput, with the capacity, where `batch` requests of `cached` tokens each do not fit."""
        if self.fits(batch, cached):
            return
        raise BadInput(
            f"{batch} requests of {cached} cached tokens need "
            f"{batch * self.request.of(cached) / _GIB:.1f} GiB of keys and values, "
            f"the KV capacity is {self.free_bytes / _GIB:.1f} GiB",
            where=where,
            allowed=f"{self.tokens(batch)} tokens in all, {self.tokens_each(batch)} a request "
            f"at batch {batch}",
            fix="shorten the context, take a smaller batch, or evict",
        )


def kv_capacity(model: MoEModel, memory_bytes: float, *, where: str) -> KvCapacity:
    """Return what `memory_bytes` leave beside the model's weights.

    Raises ProvenInfeasible, naming `where`, when the weights alone do not fit.
    """
    weights = model.routed_bytes + model.other_bytes
    if weights >= memory_bytes:
        raise ProvenInfeasible(
            f"{model.name} has {weights / _GIB:.1f} GiB of weights, "
            f"{where} holds {memory_bytes / _GIB:.1f} GiB",
            fix="take a machine with more memory, or a model with smaller weights",
        )
    return KvCapacity(memory_bytes - weights, cache_bytes(model))


def platform_capacity(model: MoEModel, platform: Platform) -> KvCapacity:
    """Return the capacity of all sites together.

    Raises BadInput where the platform has none, or its SRAM-PIM does not cover the model's attention.
    """
    if platform.topology is None or not platform.site_memory_bytes:
        raise BadInput(f"platform {platform.name!r} has no memory sites for keys and values")
    if platform.sram_pim is not None:
        cache_shape(model)  # refuses: no capacity helps a model that the machine cannot run
    return kv_capacity(model, platform.topology.sites * platform.site_memory_bytes, where=platform.name)


class Cached(NamedTuple):
    """Tokens of one request in the cache."""

    resident: int
    """Now."""
    peak: int
    evicted: int
    """Since the beginning."""


@dataclass(frozen=True)
class ReasoningTrace:
    """A prompt, and the lengths of the paragraphs that follow; the last one is going on.

    Raises UsageError where a length is no whole number, a paragraph is empty, or there is nothing.
    """

    prompt_tokens: int
    paragraphs: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.prompt_tokens < 0 or any(tokens < 1 for tokens in self.paragraphs) or not self.tokens:
            raise UsageError(
                "a reasoning trace has a prompt of at least 0 tokens, and paragraphs of at least 1"
            )

    @property
    def tokens(self) -> int:
        """Length of the whole sequence."""
        return self.prompt_tokens + sum(self.paragraphs)


@dataclass(frozen=True)
class Eviction:
    """The published scheme and its parameters.

    `retained` of the earlier chunks stay. Read as a share of those still present, it would shrink the cache
    geometrically, paragraph by paragraph, and contradict the published half; `of="history"` therefore counts
    all earlier chunks of the sequence, `of="present"` is the other reading. SPIMOE gives neither the
    fraction nor lengths of paragraphs; 0.5 of history is its "approximately 50 %". Raises UsageError on a
    value out of range.
    """

    retained: float = 0.5
    of: Literal["history", "present"] = "history"
    chunk_tokens: int = 128
    prompt_tokens: int = 128
    """Of the regular trace that `resident` runs; not more than the sequence has."""
    paragraph_tokens: int = 128
    """Of the regular trace that `resident` runs."""
    fallback_tokens: int = 2048
    """So many tokens without a paragraph's end trigger as well, if the cache is fuller than..."""
    fallback_occupancy: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 <= self.retained <= 1.0 or not 0.0 <= self.fallback_occupancy <= 1.0:
            raise UsageError("shares of eviction lie between 0 and 1")
        if self.of not in ("history", "present"):
            raise UsageError(f"cannot retain a share of {self.of!r}", allowed="history, present")
        if min(self.chunk_tokens, self.paragraph_tokens, self.fallback_tokens) < 1 or self.prompt_tokens < 0:
            raise UsageError("chunks, paragraphs and the fallback of eviction have at least 1 token")

    def resident(self, context: int) -> Cached:
        """Return what a sequence of `context` tokens in regular paragraphs keeps."""
        prompt = min(self.prompt_tokens, context)
        full, rest = divmod(context - prompt, self.paragraph_tokens)
        paragraphs = (self.paragraph_tokens,) * full + ((rest,) if rest else ())
        return self.run(ReasoningTrace(prompt, paragraphs))

    def run(self, trace: ReasoningTrace, capacity_tokens: float = math.inf) -> Cached:
        """Return the cache after a trace; `capacity_tokens` is what the request may take at most.

        The first paragraph is pinned with the prompt. Each end of a paragraph evicts from what came before
        it; the paragraph itself is spared until the next end.
        """
        pinned, present, ever, peak, evicted = trace.prompt_tokens, 0, 0, trace.prompt_tokens, 0
        for index, length in enumerate(trace.paragraphs):
            ends = index + 1 < len(trace.paragraphs)
            current = 0
            while current < length:
                current += min(self.fallback_tokens, length - current)
                held = pinned + present + current
                peak = max(peak, held)
                done = current == length
                forced = (
                    current % self.fallback_tokens == 0 and held > self.fallback_occupancy * capacity_tokens
                )
                if (done and ends) or (not done and forced):
                    kept = self._kept(present, ever)
                    evicted += present - kept
                    present = kept
            if index == 0:
                pinned += current
            else:
                present, ever = present + current, ever + current
        return Cached(pinned + present, peak, evicted)

    def _kept(self, present: int, ever: int) -> int:
        """Tokens that stay of `present` ones, in whole chunks."""
        chunks = -(-(ever if self.of == "history" else present) // self.chunk_tokens)
        return min(present, math.ceil(self.retained * chunks) * self.chunk_tokens)
