"""What one decode step asks of attention and of the feed-forward experts: bytes and FLOP, at FP8.

Two accounts of attention. `published` is ReXpert's (Table XI): every layer reads a cache that grows with the
context, projections are read once per step and never compute-bound, and there are no output gates.
`checkpoint` is what the model's configuration says: linear layers keep a state of fixed size, an indexer
picks latents, projections compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from ..common.errors import UsageError

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..workload.attention import AttentionWork
    from ..workload.model import MoEModel

Account = Literal["published", "checkpoint"]
ACCOUNTS: Final[tuple[Account, ...]] = ("published", "checkpoint")
DTYPE: Final = "fp8"
LATENT_BYTES: Final = 2 * 2
"""Per element of a latent that ReXpert counts: 2048 bytes per layer and token of GLM-5.2, whose latents have
512. Not printed; it follows from the difference between the rows of Table XI."""
KERNELS_PER_LAYER: Final = 3
"""Input projection, pass over the cache, output projection (see `Gpu.attention_s`)."""


@dataclass(frozen=True)
class DecodeStep:
    """One token for each of `batch` requests."""

    batch: int
    attention: tuple[AttentionWork, ...]
    """By layer."""
    ffn_bytes: float
    """Read once per step: weights of activated experts, and routers."""
    ffn_flop: float
    resident_bytes: float
    """Of the feed-forward blocks: what the pool holds."""
    attention_resident_bytes: float
    """Of attention: projections and the caches of all requests."""
    hidden_size: int

    def attention_s(self, gpu: Gpu, gpus: float) -> float:
        """Return the time of attention, split evenly over `gpus` GPUs; transfers between them not counted."""
        return self._busy_attention_s(gpu) / gpus + self.kernels_s(gpu)

    def kernels_s(self, gpu: Gpu) -> float:
        """Return the part of `attention_s` that no further GPU shortens: constants of kernels."""
        return len(self.attention) * KERNELS_PER_LAYER * gpu.kernel_s

    def ffn_gpu_s(self, gpu: Gpu, gpus: float) -> float:
        """Return the time of the feed-forward blocks, one grouped kernel per layer, split over GPUs."""
        constant_s = len(self.attention) * gpu.kernel_s
        return gpu.roofline_s(self.ffn_bytes, self.ffn_flop, DTYPE) / gpus + constant_s

    def _busy_attention_s(self, gpu: Gpu) -> float:
        """Time of one GPU without the constants of its kernels."""
        ideal = replace(gpu, kernel_s=0.0)
        return sum(
            ideal.attention_s(
                projection_bytes=work.projection_bytes,
                projection_flop=work.projection_flop,
                cache_bytes=work.cache_bytes,
                cache_flop=work.cache_flop,
                projection_dtype=DTYPE,
                cache_dtype=DTYPE,
            )
            for work in self.attention
        )


def decode_step(
    model: MoEModel, *, batch: int, context: int, union: float, account: Account = "published"
) -> DecodeStep:
    """Return what a step of `batch` requests with `context` tokens each asks for.

    `union`: experts of a layer that the batch activates, on average (U in ReXpert). The feed-forward pool
    reads L (U P_e + d E) bytes (section VI) and holds routed and shared experts, at one byte per weight.
    Raises UsageError where a value is out of range.
    """
    if account not in ACCOUNTS:
        raise UsageError(f"unknown account of attention {account!r}", allowed=", ".join(ACCOUNTS))
    if batch < 1 or context < 1:
        raise UsageError(f"a step needs a token and a context, not {batch} and {context}")
    if model.attention.cross_layers:
        raise UsageError(
            f"{model.name} has an encoder, whose work is not part of a decode step",
            allowed="models that only decode",
        )
    most = min(model.experts, batch * model.top_k)
    if not 1 <= union <= most:
        raise UsageError(
            f"a batch cannot activate {union} experts",
            allowed=f"1 to {most}: {batch} tokens choose {model.top_k} of {model.experts} each",
        )
    fp8 = replace(model, weight_bytes=1.0, other_weight_bytes=1.0)
    layers = len(model.moe_layers)
    attention, resident = (_published if account == "published" else _checkpoint)(fp8, batch, context)
    return DecodeStep(
        batch=batch,
        attention=attention,
        ffn_bytes=layers * union * fp8.expert_bytes + model.router_params,
        ffn_flop=2.0 * layers * batch * model.top_k * model.expert_params,
        resident_bytes=ffn_bytes(model),
        attention_resident_bytes=resident,
        hidden_size=model.hidden_size,
    )


def ffn_bytes(model: MoEModel) -> float:
    """Return the bytes of routed and shared experts at FP8, which a pool holds; block scales not counted."""
    return float(model.routed_params + model.shared_params)


def _published(model: MoEModel, batch: int, context: int) -> tuple[tuple[AttentionWork, ...], float]:
    from ..workload.attention import AttentionWork, decode_attention

    shape = replace(model.attention, linear_layers=(), index_layers=(), sliding_layers=(), output_gate=False)
    plain = replace(model, attention=shape)
    works = []
    for layer in model.moe_layers:
        work = decode_attention(plain, [context] * batch, layers=(layer,), cache_element_bytes=1.0)
        cache = work.cache_read_bytes
        if shape.kind == "mla":
            cache = float(LATENT_BYTES * shape.kv_lora_rank * context * batch)
        works.append(AttentionWork(weight_bytes=work.weight_bytes, cache_read_bytes=cache))
    return tuple(works), sum(work.weight_bytes + work.cache_read_bytes for work in works)


def _checkpoint(model: MoEModel, batch: int, context: int) -> tuple[tuple[AttentionWork, ...], float]:
    from ..workload.attention import decode_attention

    works = tuple(
        decode_attention(model, [context] * batch, layers=(layer,), cache_element_bytes=1.0)
        for layer in range(model.layers)
    )
    # Whatever an indexer passes over stays in memory all the same.
    everything = replace(model, attention=replace(model.attention, index_top_k=context))
    held = decode_attention(everything, [context] * batch, cache_element_bytes=1.0)
    return works, held.weight_bytes + held.cache_read_bytes
