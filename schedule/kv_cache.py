"""How many tokens of keys and values fit, and how many eviction leaves of a reasoning trace (SPIMOE 3.2.2).

Eviction is a model of capacity: it counts tokens in the three regions of the published scheme and leaves open
which chunk is chosen. Pinned are the prompt and the first paragraph; the ongoing paragraph is kept; of the
chunks before it a fraction stays, at every paragraph's end, or after so many tokens without one when the
cache is nearly full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..common.errors import BadInput, ProvenInfeasible, UsageError
from ..workload.attention import decode_attention

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..workload.model import MoEModel

_GIB = 2.0**30


@dataclass(frozen=True)
class KvCapacity:
    """What is left of a machine's memory for keys and values."""

    free_bytes: float
    token_bytes: float
    """Of one token in all layers."""

    @property
    def tokens(self) -> int:
        """Tokens of all requests together; blocks come from one free list, wherever they lie."""
        return int(self.free_bytes // self.token_bytes)

    def require(self, batch: int, cached: int, *, where: str = "") -> None:
        """Raise BadInput, with the capacity, where `batch` requests of `cached` tokens each do not fit."""
        if batch * cached <= self.tokens:
            return
        each = self.tokens // batch
        raise BadInput(
            f"{batch} requests of {cached} cached tokens need {batch * cached * self.token_bytes / _GIB:.1f} "
            f"GiB of keys and values, the KV capacity is {self.free_bytes / _GIB:.1f} GiB",
            where=where,
            allowed=f"{self.tokens} tokens in all, {each} a request at batch {batch}",
            fix="shorten the context, take a smaller batch, or evict",
        )


def token_bytes(model: MoEModel, element_bytes: float | None = None) -> float:
    """Return the bytes that one more token of a request adds to the cache, over all layers.

    Windows, states and chosen latents count as if they grew, too: a safe side for capacity.
    """
    each = model.activation_bytes if element_bytes is None else element_bytes
    encoder = 1 if model.attention.cross_layers else 0
    return decode_attention(model, [1], cache_element_bytes=each, encoder_tokens=encoder).cache_write_bytes


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
    return KvCapacity(memory_bytes - weights, token_bytes(model))


def platform_capacity(model: MoEModel, platform: Platform) -> KvCapacity:
    """Return the capacity of all sites together. Raises BadInput where the platform has none."""
    if platform.topology is None or not platform.site_memory_bytes:
        raise BadInput(f"platform {platform.name!r} has no memory sites for keys and values")
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
