"""What a GPU and its PIM channels need for the parts of an MoE layer, as the coefficients of T_gpu and T_pim.

Sieve section 5, timing models: T_gpu is the larger of the bytes that the GPU moves over its bandwidth and the
operations that it computes over its peak. Both are what kernels reach, and one kernel constant is added where
the GPU has anything to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...hardware.gpu import Gpu
    from ...hardware.pim import Pim
    from ...hardware.platform import Platform
    from ...workload.model import MoEModel


@dataclass(frozen=True)
class GpuWork:
    """GPU work of a layer besides the routed experts: weights once, and per token of the batch."""

    memory_s: float = 0.0
    compute_s: float = 0.0
    token_memory_s: float = 0.0
    token_compute_s: float = 0.0

    def __add__(self, other: GpuWork) -> GpuWork:
        """Return the work of both."""
        return GpuWork(
            self.memory_s + other.memory_s,
            self.compute_s + other.compute_s,
            self.token_memory_s + other.token_memory_s,
            self.token_compute_s + other.token_compute_s,
        )


@dataclass(frozen=True)
class GpuCosts:
    """Seconds that make up T_gpu of a layer.

    A routed expert on the GPU adds `expert_s` of memory time for its weights, each of its tokens `token_s` of
    memory time for activations and `flop_s` of computation; `work` is what the GPU does besides.
    """

    kernel_s: float
    expert_s: float
    token_s: float
    flop_s: float
    work: GpuWork

    def coefficients(self, batch: float) -> NDArray[np.float64]:
        """Return the coefficients `[7]` that kernels read, for a batch of so many tokens."""
        memory_s = self.work.memory_s + batch * self.work.token_memory_s
        compute_s = self.work.compute_s + batch * self.work.token_compute_s
        busy = any(value > 0.0 for value in vars(self.work).values())
        fixed_s, first_s = (self.kernel_s, 0.0) if busy else (0.0, self.kernel_s)
        return np.array([fixed_s, first_s, memory_s, compute_s, self.expert_s, self.token_s, self.flop_s])


def gpu_costs(model: MoEModel, platform: Platform, layer: int) -> GpuCosts:
    """Return T_gpu's parts on the platform's GPU, with the layer's other work on it.

    Sieve counts all operations of the layer but attention in decode and the experts on PIM: router, shared
    experts, projections of attention. Raises BadInput where the platform has no GPU.
    """
    gpu = _gpu(platform)
    shared = model.shared_experts * model.expert_matrices * model.shared_intermediate_size
    router_and_shared = _matrices(model, gpu, model.hidden_size * (model.experts + shared), 4)
    return GpuCosts(
        kernel_s=gpu.kernel_s,
        expert_s=gpu.roofline_s(model.expert_bytes, 0.0, "bf16"),
        token_s=gpu.roofline_s(2 * model.hidden_size * model.activation_bytes, 0.0, "bf16"),
        flop_s=gpu.roofline_s(
            0.0, 2 * model.expert_params, gpu.data_type(model.weight_bytes, model.activation_bytes)
        ),
        work=router_and_shared + _projections(model, gpu, layer),
    )


def attention_on_pim_s(model: MoEModel, platform: Platform, contexts: Sequence[int], layer: int) -> float:
    """Return the seconds for which a layer's attention in decode keeps every PIM channel busy.

    `contexts` [B] are the tokens that each request attends to. Scores and weighted sums are GEMVs on cached
    keys and values that lie evenly over all channels (Sieve 7.1, NeuPIMs): every query head reads its own
    pass over the cache, a column per MAC interval, and rows turn over in between. Softmax and the transport
    of queries are left out. Raises BadInput where the platform has no PIM.
    """
    from ...workload.attention import decode_attention

    pim = _pim(platform)
    if not len(contexts) or layer not in _decoding(model):
        return 0.0
    encoder = 1 if model.attention.cross_layers else 0
    work = decode_attention(model, contexts, layers=[layer], encoder_tokens=encoder)
    per_column = pim.column_bytes / model.activation_bytes
    columns = work.cache_flop / 2 / per_column / (_groups(platform, "tp") * pim.banks)
    rows = columns * pim.column_bytes / pim.row_bytes
    busy_s = columns * pim.mac_interval_s(model.activation_bytes) + rows * (pim.open_s + pim.close_s)
    return pim.refresh.stretch(busy_s)


def expert_on_pim(model: MoEModel, platform: Platform, layout: str) -> Callable[[int], NDArray[np.float64]]:
    """Return a function that gives PIM seconds `[n + 1]` of an expert with 0 to n tokens.

    Tokens are GEMVs one after the other. In layout `tp` an expert lies over all channels, in `ep` on one; its
    inputs are split over the banks in the way that is fastest for one token. Raises BadInput without PIM.
    """
    pim = _pim(platform)
    groups = _groups(platform, layout)

    def table(tokens: int, k_banks: int) -> NDArray[np.float64]:
        table: NDArray[np.float64] = pim.expert_table(
            model.hidden_size,
            model.expert_intermediate_size,
            matrices=model.expert_matrices,
            weight_bytes=model.weight_bytes,
            activation_bytes=model.activation_bytes,
            groups=groups,
            tokens=tokens,
            factors=(1,),
            k_banks=k_banks,
        )[0]
        return table

    splits = [k for k in range(1, pim.banks + 1) if pim.banks % k == 0]
    fastest = min(splits, key=lambda k_banks: float(table(1, k_banks)[1]))
    return lambda tokens: table(tokens, fastest)


def homes(platform: Platform, layout: str) -> int:
    """Number of places that a channel-resident expert can live at: 1 in layout `tp`, the sites in `ep`."""
    assert platform.topology is not None
    return 1 if layout == "tp" else platform.topology.sites


def _projections(model: MoEModel, gpu: Gpu, layer: int) -> GpuWork:
    from ...workload.attention import decode_attention

    if layer not in _decoding(model):
        return GpuWork()
    encoder = 1 if model.attention.cross_layers else 0
    work = decode_attention(model, [1], layers=[layer], encoder_tokens=encoder)
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    return GpuWork(
        memory_s=gpu.roofline_s(work.weight_bytes, 0.0, "bf16"),
        token_memory_s=gpu.roofline_s(work.activation_bytes, 0.0, "bf16"),
        token_compute_s=gpu.roofline_s(0.0, work.projection_flop, dtype),
    )


def _matrices(model: MoEModel, gpu: Gpu, params: int, vectors: int) -> GpuWork:
    """Work of matrices that all tokens pass, which read or write `vectors` hidden vectors per token."""
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    return GpuWork(
        memory_s=gpu.roofline_s(params * model.other_weight_bytes, 0.0, "bf16"),
        token_memory_s=gpu.roofline_s(vectors * model.hidden_size * model.activation_bytes, 0.0, "bf16"),
        token_compute_s=gpu.roofline_s(0.0, 2 * params, dtype),
    )


def _decoding(model: MoEModel) -> tuple[int, ...]:
    return model.attention.cross_layers or tuple(range(model.layers))


def _groups(platform: Platform, layout: str) -> int:
    """Lock-step groups that hold an expert."""
    assert platform.topology is not None
    return platform.site_pseudo_channels * (platform.topology.sites if layout == "tp" else 1)


def _gpu(platform: Platform) -> Gpu:
    if platform.gpu is None:
        raise BadInput(
            f"platform {platform.name!r} has no GPU to share the experts with",
            fix="take one that has GPU and PIM, for example b200-hbmpim",
        )
    return platform.gpu


def _pim(platform: Platform) -> Pim:
    if platform.pim is None:
        raise BadInput(
            f"platform {platform.name!r} has no PIM to share the experts with",
            fix="take one that has GPU and PIM, for example b200-hbmpim",
        )
    return platform.pim
