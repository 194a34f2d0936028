"""Bytes and FLOP of attention in a decode step: projections, and the pass over what is cached.

What is cached decides how the work grows with the context: keys and values of all tokens (grouped query
attention), of a window, one latent per token (MLA, as absorbed projections use it), chosen latents (DeepSeek
sparse attention), or a state of fixed size (gated delta nets). Softmax, norms, biases, positional encoding
and gates are left out; they move and compute little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .model import Attention, MoEModel

    Array = np.ndarray[Any, np.dtype[Any]]

_DELTA_FLOP: Final = 7
"""Per element of a gated delta net's state: decay (1), S k, update and S q (2 each)."""


@dataclass(frozen=True)
class AttentionWork:
    """What attention moves and computes for a whole batch."""

    weight_bytes: float = 0.0
    """Weights of the projections, read once."""
    activation_bytes: float = 0.0
    """Inputs and outputs of the projections."""
    projection_flop: float = 0.0
    cache_read_bytes: float = 0.0
    cache_write_bytes: float = 0.0
    cache_flop: float = 0.0
    """Scores and weighted sums, or the update of a state."""

    @property
    def projection_bytes(self) -> float:
        """Weights and activations of the projections."""
        return self.weight_bytes + self.activation_bytes

    @property
    def cache_bytes(self) -> float:
        """Read and written cache."""
        return self.cache_read_bytes + self.cache_write_bytes

    def __add__(self, other: AttentionWork) -> AttentionWork:
        """Return the work of both."""
        return AttentionWork(
            self.weight_bytes + other.weight_bytes,
            self.activation_bytes + other.activation_bytes,
            self.projection_flop + other.projection_flop,
            self.cache_read_bytes + other.cache_read_bytes,
            self.cache_write_bytes + other.cache_write_bytes,
            self.cache_flop + other.cache_flop,
        )


class Projection(NamedTuple):
    """`copies` matrices that each map `inputs` to `outputs` elements of one token."""

    inputs: int
    outputs: int
    copies: int = 1

    @property
    def params(self) -> int:
        """Weights."""
        return self.copies * self.inputs * self.outputs


class _Cache(NamedTuple):
    """Elements of the cache that one step moves, and the FLOP on them, summed over the batch."""

    read: float
    written: float
    flop: float


def decode_attention(
    model: MoEModel,
    contexts: ArrayLike,
    *,
    layers: Iterable[int] | None = None,
    cache_element_bytes: float = 2.0,
    state_element_bytes: float = 4.0,
    encoder_tokens: int = 0,
) -> AttentionWork:
    """Return the attention work of one decode step, one token for each of the requests.

    `contexts` [B]: tokens that each request attends to, its new one included. `layers` are absolute ids;
    None: all layers that decode. `cache_element_bytes` is per element of a key, value or latent;
    `state_element_bytes` per element of a linear layer's state. An encoder-decoder model needs
    `encoder_tokens`, the length of each request's input, to which its decoder attends as well. Raises
    UsageError where contexts are no whole numbers >= 1, or a layer does not decode.
    """
    tokens = _contexts(contexts)
    decoding = model.attention.cross_layers or tuple(range(model.layers))
    if bool(model.attention.cross_layers) != (encoder_tokens > 0):
        raise UsageError(
            f"{encoder_tokens} encoder tokens for {model.name}",
            allowed="at least 1 for an encoder-decoder model, 0 for any other",
        )
    total = AttentionWork()
    for layer in decoding if layers is None else layers:
        if layer not in decoding:
            raise UsageError(
                f"layer {layer} of {model.name} does not decode",
                allowed=f"{min(decoding)} to {max(decoding)}",
            )
        linear = layer in model.attention.linear_layers
        cache = _linear_cache(model.attention, tokens) if linear else _softmax_cache(model, layer, tokens)
        element_bytes = state_element_bytes if linear else cache_element_bytes
        total += _work(model, projections(model, layer), len(tokens), cache, element_bytes)
        if layer in model.attention.index_layers:
            index = _index_cache(model.attention, tokens)
            total += _work(model, _index(model), len(tokens), index, cache_element_bytes)
        if layer in model.attention.cross_layers:
            encoder = _cross_cache(model.attention, len(tokens), encoder_tokens)
            total += _work(model, _cross(model), len(tokens), encoder, cache_element_bytes)
    return total


def projections(model: MoEModel, layer: int) -> tuple[Projection, ...]:
    """Return the projections of a layer's self-attention, without those of an indexer."""
    if layer in model.attention.linear_layers:
        return _linear(model)
    return _mla(model) if model.attention.kind == "mla" else _gqa(model)


def _gqa(model: MoEModel) -> tuple[Projection, ...]:
    shape = model.attention
    query = shape.heads * shape.head_dim * (2 if shape.output_gate else 1)
    key_value = shape.kv_heads * (shape.head_dim + shape.v_head_dim)
    attended = shape.heads * shape.v_head_dim
    return (Projection(model.hidden_size, query + key_value), Projection(attended, model.hidden_size))


def _mla(model: MoEModel) -> tuple[Projection, ...]:
    """Return the projections of latent attention (DeepSeek-V2, section 2.1), key and value ones absorbed."""
    shape, hidden = model.attention, model.hidden_size
    query = shape.heads * shape.head_dim
    low_rank = (Projection(hidden, shape.q_lora_rank), Projection(shape.q_lora_rank, query))
    return (
        *(low_rank if shape.q_lora_rank else (Projection(hidden, query),)),
        Projection(hidden, shape.kv_lora_rank + shape.qk_rope_head_dim),
        Projection(shape.qk_nope_head_dim, shape.kv_lora_rank, shape.heads),
        Projection(shape.kv_lora_rank, shape.v_head_dim, shape.heads),
        Projection(shape.heads * shape.v_head_dim, hidden),
    )


def _linear(model: MoEModel) -> tuple[Projection, ...]:
    """Return the projections of a gated delta net, its short convolution included."""
    shape, hidden = model.attention, model.hidden_size
    key = shape.linear_key_heads * shape.linear_key_head_dim
    value = shape.linear_value_heads * shape.linear_value_head_dim
    return (
        Projection(hidden, 2 * key + 2 * value + 2 * shape.linear_value_heads),
        Projection(shape.linear_conv_width, 1, 2 * key + value),
        Projection(value, hidden),
    )


def _index(model: MoEModel) -> tuple[Projection, ...]:
    shape, hidden = model.attention, model.hidden_size
    return (
        Projection(shape.q_lora_rank, shape.index_heads * shape.index_head_dim),
        Projection(hidden, shape.index_head_dim),
        Projection(hidden, shape.index_heads),
    )


def _cross(model: MoEModel) -> tuple[Projection, ...]:
    """Return query and output projections; keys and values of the encoder were projected once, before."""
    shape, hidden = model.attention, model.hidden_size
    query, attended = shape.heads * shape.head_dim, shape.heads * shape.v_head_dim
    return (Projection(hidden, query), Projection(attended, hidden))


def _softmax_cache(model: MoEModel, layer: int, tokens: Array) -> _Cache:
    shape = model.attention
    visible = tokens
    if layer in shape.sliding_layers:
        visible = np.minimum(tokens, shape.sliding_window)
    elif shape.index_layers:  # layers without an indexer use the choice of another layer
        visible = np.minimum(tokens, shape.index_top_k)
    seen = float(visible.sum())
    if shape.kind == "mla":
        latent = shape.kv_lora_rank + shape.qk_rope_head_dim
        flop = 2 * shape.heads * (latent + shape.kv_lora_rank) * seen
        return _Cache(latent * seen, latent * len(tokens), flop)
    key_value = _key_value(shape)
    flop = 2 * shape.heads * (shape.head_dim + shape.v_head_dim) * seen
    return _Cache(key_value * seen, key_value * len(tokens), flop)


def _linear_cache(shape: Attention, tokens: Array) -> _Cache:
    head = shape.linear_key_head_dim * shape.linear_value_head_dim
    state = len(tokens) * shape.linear_value_heads * head
    return _Cache(state, state, _DELTA_FLOP * state)


def _index_cache(shape: Attention, tokens: Array) -> _Cache:
    """Return the pass over one index key per token, which all heads of the indexer share."""
    seen = shape.index_head_dim * float(tokens.sum())
    return _Cache(seen, shape.index_head_dim * len(tokens), 2 * shape.index_heads * seen)


def _cross_cache(shape: Attention, requests: int, encoder_tokens: int) -> _Cache:
    seen = requests * encoder_tokens
    flop = 2 * shape.heads * (shape.head_dim + shape.v_head_dim) * seen
    return _Cache(_key_value(shape) * seen, 0.0, flop)


def _key_value(shape: Attention) -> int:
    """Return the cached elements of a token."""
    return shape.kv_heads * (shape.head_dim + shape.v_head_dim)


def _work(
    model: MoEModel, matrices: tuple[Projection, ...], requests: int, cache: _Cache, element_bytes: float
) -> AttentionWork:
    params = sum(matrix.params for matrix in matrices)
    moved = sum(matrix.copies * (matrix.inputs + matrix.outputs) for matrix in matrices)
    return AttentionWork(
        weight_bytes=params * model.other_weight_bytes,
        activation_bytes=requests * moved * model.activation_bytes,
        projection_flop=2.0 * requests * params,
        cache_read_bytes=cache.read * element_bytes,
        cache_write_bytes=cache.written * element_bytes,
        cache_flop=cache.flop,
    )


def _contexts(contexts: ArrayLike) -> Array:
    """Return contexts as int64 [B], checked."""
    tokens = np.asarray(contexts)
    if tokens.ndim != 1 or (tokens.size and (tokens.dtype.kind not in "iu" or tokens.min() < 1)):
        raise UsageError("contexts must be a list of whole numbers of at least 1 token")
    return tokens.astype(np.int64)
