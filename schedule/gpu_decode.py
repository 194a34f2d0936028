"""A whole decode step on one GPU by rooflines: the baseline of the PIM machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..common.errors import BadInput, UsageError
from ..workload.attention import decode_attention
from .kv_cache import cache_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..hardware.gpu import Gpu
    from ..hardware.platform import Platform
    from ..workload.model import MoEModel

Experts = Literal["grouped", "looped"]
NORM_KERNELS = 2
"""Per layer, each with the residual."""
ROUTING_KERNELS = 4
"""Per MoE layer: router, metadata, permutation, weighted sum."""


@dataclass(frozen=True)
class GpuDecode:
    """Mean seconds of a decode step by part, and whether weights and caches fit the GPU's memory."""

    attention_s: float
    experts_s: float
    """Routed, shared, and dense feed-forward layers."""
    routing_s: float
    """Router, and the kernels around the experts."""
    norms_s: float
    head_s: float
    batch: int
    memory_bytes: float
    fits: bool

    @property
    def total_s(self) -> float:
        """TPOT: the sum of all parts."""
        return self.attention_s + self.experts_s + self.routing_s + self.norms_s + self.head_s

    @property
    def tokens_per_s(self) -> float:
        """Of the whole batch."""
        return self.batch / self.total_s


def gpu_decode(
    model: MoEModel,
    platform: Platform,
    counts: NDArray[np.int32],
    contexts: ArrayLike,
    *,
    experts: Experts = "grouped",
) -> GpuDecode:
    """Return the decode step of a batch on the platform's GPU, mean over S steps.

    `counts` [S, L, E] tokens per expert of L recorded MoE layers, whose mean stands for all; `contexts` [B]
    tokens that every request attends to. Each kernel costs the GPU's constant and its roofline. `experts`:
    one grouped GEMM per layer, or `looped`: three kernels (two without a gate) for each activated expert, as
    implementations without grouped GEMM do. Where things do not fit the memory the time is that of a GPU
    that had more. Raises BadInput where the platform has no GPU, UsageError on an unknown `experts`.
    """
    gpu = platform.gpu
    if gpu is None:
        raise BadInput(
            f"platform {platform.name!r} has no GPU", fix="take one that has, for example a100-80g"
        )
    if experts not in ("grouped", "looped"):
        raise UsageError(f"unknown way to run experts {experts!r}", allowed="grouped, looped")
    tokens = np.asarray(contexts, dtype=np.int64)
    batch = len(tokens)
    decoding = model.attention.cross_layers or tuple(range(model.layers))
    routed = [layer for layer in decoding if layer in model.moe_layers]
    dense = len(decoding) - len(routed)
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    shared_width = model.shared_experts * model.shared_intermediate_size
    feed_forward = len(routed) * (
        _routed_s(model, gpu, counts, experts) + _block_s(model, gpu, batch, shared_width)
    ) + dense * _block_s(model, gpu, batch, model.dense_intermediate_size)
    router = model.hidden_size * model.experts
    router_s = gpu.roofline_s(router * model.other_weight_bytes, 2 * batch * router, dtype)
    head = model.vocab_size * model.hidden_size
    weights = model.routed_bytes + model.other_bytes
    memory = weights + cache_bytes(model).total(tokens)
    return GpuDecode(
        attention_s=_attention_s(model, gpu, tokens, decoding),
        experts_s=feed_forward,
        routing_s=len(routed) * (ROUTING_KERNELS * gpu.kernel_s + router_s),
        norms_s=len(decoding) * NORM_KERNELS * gpu.kernel_s,
        head_s=gpu.kernel_s + gpu.roofline_s(head * model.activation_bytes, 2 * batch * head, "bf16"),
        batch=batch,
        memory_bytes=memory,
        fits=memory <= gpu.memory_bytes,
    )


def _attention_s(model: MoEModel, gpu: Gpu, tokens: NDArray[np.int64], layers: tuple[int, ...]) -> float:
    """All layers; equal ones are timed once."""
    encoder = 1 if model.attention.cross_layers else 0
    kinds: dict[tuple[bool, ...], tuple[int, int]] = {}
    shape = model.attention
    for layer in layers:
        kind = tuple(
            layer in part for part in (shape.sliding_layers, shape.linear_layers, shape.index_layers)
        )
        kinds[kind] = (layer, kinds.get(kind, (layer, 0))[1] + 1)
    total = 0.0
    for layer, times in kinds.values():
        work = decode_attention(model, tokens, layers=[layer], encoder_tokens=encoder)
        total += times * gpu.attention_s(
            projection_bytes=work.projection_bytes,
            projection_flop=work.projection_flop,
            cache_bytes=work.cache_bytes,
            cache_flop=work.cache_flop,
            projection_dtype=gpu.data_type(model.other_weight_bytes, model.activation_bytes),
            cache_dtype="bf16",
        )
    return total


def routed_experts_s(
    model: MoEModel, gpu: Gpu, tokens: NDArray[np.int32], experts: Experts = "grouped"
) -> float:
    """Return the time of one layer's routed experts in one step; `tokens` [E]."""
    grouped = gpu.grouped_gemm_s(
        tokens,
        model.hidden_size,
        model.expert_intermediate_size,
        matrices=model.expert_matrices,
        weight_bytes=model.weight_bytes,
        activation_bytes=model.activation_bytes,
        dtype=gpu.data_type(model.weight_bytes, model.activation_bytes),
    )
    if experts == "grouped" or not grouped:
        return grouped
    return grouped + (model.expert_matrices * int(np.count_nonzero(tokens)) - 1) * gpu.kernel_s


def _routed_s(model: MoEModel, gpu: Gpu, counts: NDArray[np.int32], experts: Experts) -> float:
    """Mean over steps and layers."""
    rows = counts.reshape(-1, counts.shape[-1])
    return float(np.mean([routed_experts_s(model, gpu, row, experts) for row in rows]))


def _block_s(model: MoEModel, gpu: Gpu, batch: int, width: int) -> float:
    """A feed-forward block that every token passes; 0.0 for none."""
    if not width:
        return 0.0
    return gpu.grouped_gemm_s(
        [batch],
        model.hidden_size,
        width,
        matrices=model.expert_matrices,
        weight_bytes=model.other_weight_bytes,
        activation_bytes=model.activation_bytes,
        dtype=gpu.data_type(model.other_weight_bytes, model.activation_bytes),
    )
