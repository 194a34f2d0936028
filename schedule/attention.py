"""Attention of a sub-batch on SRAM-PIM cores, stage by stage.

A unit is what shares cached keys and values: a key-value head of a request (grouped queries), or a request
(latent attention). Spread by `heads`, unit u of slot b lives on core (b U + u) mod N, in the memory of that
core's site, and the busiest core decides. Spread by `chunks`, every unit lies over all cores, so that few
requests keep all of them busy; then partial results have to be added up over the cores. Keys and values
stream through a core's port, once for all query heads of the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..common.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..hardware.sram_pim import SramPim
    from ..workload.model import MoEModel
    from .sparse_attention import BlockSparse

Spread = Literal["heads", "chunks"]

#: Vector operations per element; multiplications, additions and exponentials each count as one.
ROTARY_OPERATIONS = 3
SOFTMAX_OPERATIONS = 5
"""Maximum, subtraction, exponential, sum, division."""


@dataclass(frozen=True)
class CacheShape:
    """What one unit caches per token, and what its queries do with it; element counts."""

    units: int
    """Of a request."""
    query_heads: int
    """Of a unit."""
    key_width: int
    value_width: int
    """Streamed beside the keys; 0 where the values are a part of them (latents)."""
    summed_width: int
    """Of a value in the weighted sum."""

    @property
    def gathered_width(self) -> int:
        """Queries and new keys and values of a request."""
        new = self.key_width + self.value_width
        return self.units * (self.query_heads * self.key_width + new)

    @property
    def attended_width(self) -> int:
        """Results of a request."""
        return self.units * self.query_heads * self.summed_width


def cache_shape(model: MoEModel) -> CacheShape:
    """Return the shape of a model's cache.

    Raises BadInput for what SPIMOE's cores are not described for: gated delta nets, indexers, and decoders
    that attend to an encoder.
    """
    shape = model.attention
    for name, found in (
        ("gated delta nets", shape.linear_layers),
        ("an attention indexer", shape.index_layers),
        ("an encoder", shape.cross_layers),
    ):
        if found:
            raise BadInput(
                f"{model.name} has {name}, which the attention model of SRAM-PIM does not cover",
                allowed="grouped-query and latent attention in every layer",
                fix="take another model, or look at its experts alone with moeplan plan",
            )
    if shape.kind == "mla":
        latent = shape.kv_lora_rank + shape.qk_rope_head_dim
        return CacheShape(1, shape.heads, latent, 0, shape.kv_lora_rank)
    group = shape.heads // shape.kv_heads
    return CacheShape(shape.kv_heads, group, shape.head_dim, shape.v_head_dim, shape.v_head_dim)


@dataclass(frozen=True, eq=False)
class CoreAttention:
    """Attention over what is cached of B requests, on N cores; see `stage_s`."""

    core: SramPim
    cores: int
    shape: CacheShape
    element_bytes: float
    visible: NDArray[np.int64]
    """[B] tokens that take part."""
    scored: NDArray[np.int64]
    """[B] chunk representatives."""
    spread: Spread = "heads"

    def stage_s(self, slots: NDArray[np.bool_]) -> dict[str, float]:
        """Return the seconds of the seven stages for the requests in `slots` [B], by name."""
        core, shape, size = self.core, self.shape, self.element_bytes
        units, tokens, chunks = (self._busiest(amount, slots) for amount in self._amounts)
        heads = shape.query_heads
        new = units * (shape.key_width + shape.value_width)
        key_flop, value_flop = 2 * heads * shape.key_width, 2 * heads * shape.summed_width
        return {
            "rotary": core.vector_s(units * (heads + 1) * shape.key_width, ROTARY_OPERATIONS),
            "kv_append": core.product_s(0.0, new * size),
            "block_scores": core.product_s(chunks * key_flop, chunks * shape.key_width * size),
            "block_top_k": core.reduce_s(chunks * heads),
            "attention_scores": core.product_s(tokens * key_flop, tokens * shape.key_width * size),
            "softmax": core.vector_s(tokens * heads, SOFTMAX_OPERATIONS),
            "attention_values": core.product_s(tokens * value_flop, tokens * shape.value_width * size),
        }

    @cached_property
    def _amounts(self) -> tuple[NDArray[np.int64], ...]:
        return np.ones_like(self.visible), self.visible, self.scored

    @cached_property
    def _core_of(self) -> NDArray[np.int64]:
        """Core of every unit, [B, U]."""
        batch, units = len(self.visible), self.shape.units
        return (np.arange(batch * units) % self.cores).reshape(batch, units)

    def _busiest(self, amount: NDArray[np.int64], slots: NDArray[np.bool_]) -> int:
        """Largest sum over the units of a core; `amount` [B] is of each unit of a slot.

        Spread by chunks, what is chosen is taken to lie evenly.
        """
        if self.spread == "chunks":
            return -(-int(amount[slots].sum()) * self.shape.units // self.cores)
        chosen = self._core_of[slots]
        weights = np.repeat(amount[slots], self.shape.units)
        return int(np.bincount(chosen.ravel(), weights=weights, minlength=self.cores).max(initial=0))


def core_attention(
    model: MoEModel,
    core: SramPim,
    cores: int,
    cached: NDArray[np.int64],
    layer: int,
    sparse: BlockSparse | None,
    spread: Spread = "heads",
) -> CoreAttention:
    """Return the attention of one layer over `cached` [B] tokens; `sparse` None looks at all of them.

    Layers with a window see that at most, and are dense inside it. Raises BadInput as `cache_shape` does.
    """
    windowed = layer in model.attention.sliding_layers
    seen = np.minimum(cached, model.attention.sliding_window) if windowed else cached
    if windowed or sparse is None:
        visible, scored = seen, np.zeros_like(seen)
    else:
        visible, scored = sparse.visible(seen), sparse.scored(seen)
    return CoreAttention(core, cores, cache_shape(model), model.activation_bytes, visible, scored, spread)
