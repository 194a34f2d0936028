"""How long the tasks of one MoE layer take: shapes of the model, times of the machine, and a partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..common.errors import BadInput, UsageError
from ..workload.attention import decode_attention
from .layer import ALL_CHANNELS, FixedWork, GpuExperts, LayerWork, PimExperts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..hardware.gpu import Gpu
    from ..hardware.pim import Pim
    from ..hardware.platform import Platform
    from ..placement.partition.layer import PartitionLayer
    from ..placement.partition.problem import PartitionProblem
    from ..workload.model import MoEModel

_CHOICE_BYTES = 4
"""Of a routing map, per token and expert chosen: id and weight, 16 bits each."""


class Exchange(NamedTuple):
    """Seconds of the collectives of a layer; all 0.0 on one GPU."""

    all_gather_s: float = 0.0
    dispatch_s: float = 0.0
    combine_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Routed:
    """What one of N GPUs gets to do in a layer: experts are split evenly over GPUs, tokens too."""

    experts: NDArray[np.int64]
    """[e] ids of the GPU's own experts."""
    tokens: NDArray[np.int64]
    """[e] tokens of each, from all GPUs."""
    local_tokens: NDArray[np.int64]
    """[e] those of the GPU's own batch slots."""
    batch: int
    """Its own batch slots."""
    exchange: Exchange


def one_gpu(tokens: ArrayLike, top_k: int) -> Routed:
    """Return the work of a GPU that holds all experts and all tokens; `tokens` [E].

    Raises UsageError on counts that are negative or not whole.
    """
    counts = np.asarray(tokens)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
        raise UsageError("tokens per expert are a list of whole numbers of at least 0")
    counts = counts.astype(np.int64)
    batch = -(-int(counts.sum()) // top_k)
    return Routed(np.arange(counts.size), counts, counts, batch, Exchange())


def busiest_gpu(chosen: NDArray[np.int16], model: MoEModel, platform: Platform, gpus: int) -> Routed:
    """Return the work of the GPU with most routed tokens (lowest id on ties) under expert parallelism.

    `chosen` [B, K] holds the experts of every batch slot. Slots and experts lie on `gpus` GPUs in equal
    consecutive blocks. A token crosses to a GPU once, however many of its experts live there. Each
    collective takes the busiest GPU's bytes in one direction over NVLink, and the kernel constant. Raises
    UsageError where experts or slots cannot be split evenly, BadInput where the platform has no GPU.
    """
    if platform.gpu is None:
        raise BadInput(f"platform {platform.name!r} has no GPU", fix="take one, for example b200-hbmpim")
    slots = len(chosen)
    for what, count in (("experts", model.experts), ("batch slots", slots)):
        if count % gpus:
            raise UsageError(
                f"{count} {what} cannot be split evenly over {gpus} GPUs", fix="choose a divisor"
            )
    source = np.repeat(np.arange(slots) * gpus // slots, chosen.shape[1])
    counts = np.zeros((gpus, model.experts), dtype=np.int64)
    np.add.at(counts, (source, chosen.ravel()), 1)
    busiest = int(counts.sum(axis=0).reshape(gpus, -1).sum(axis=1).argmax())
    own = np.arange(model.experts).reshape(gpus, -1)[busiest]
    return Routed(
        own,
        counts[:, own].sum(axis=0),
        counts[busiest, own],
        slots // gpus,
        _exchange(chosen, model, platform.gpu, gpus),
    )


def _exchange(chosen: NDArray[np.int16], model: MoEModel, gpu: Gpu, gpus: int) -> Exchange:
    if gpus == 1:
        return Exchange()
    slots, top_k = chosen.shape
    visits = np.zeros((slots, gpus), dtype=np.bool_)
    np.put_along_axis(visits, chosen.astype(np.int64) * gpus // model.experts, True, axis=1)
    crossing = visits.reshape(gpus, slots // gpus, gpus).sum(axis=1)
    np.fill_diagonal(crossing, 0)
    busiest = max(crossing.sum(axis=0).max(), crossing.sum(axis=1).max())
    tokens_s = gpu.kernel_s + busiest * model.hidden_size * model.activation_bytes / gpu.nvlink_bytes_per_s
    map_bytes = slots // gpus * top_k * _CHOICE_BYTES
    return Exchange(gpu.kernel_s + (gpus - 1) * map_bytes / gpu.nvlink_bytes_per_s, tokens_s, tokens_s)


def layer_work(
    layer: PartitionLayer,
    problem: PartitionProblem,
    routed: Routed,
    on_gpu: ArrayLike,
    *,
    scheduler_s: float = 0.0,
) -> LayerWork:
    """Return the tasks of a partition: `on_gpu` bool [e], true for experts that the GPU runs.

    Times of experts and of attention are those of `problem`, posed for `routed.tokens`; experts without
    tokens have no task. `scheduler_s` is what the decision takes. Raises UsageError where shapes differ.
    """
    mask = np.asarray(on_gpu, dtype=np.bool_)
    if not mask.shape == problem.tokens.shape == routed.tokens.shape:
        raise UsageError(
            f"{routed.tokens.size} experts, {problem.tokens.size} in the problem, {mask.size} partitioned"
        )
    pim = layer.platform.pim
    assert pim is not None  # a PartitionLayer has both
    active = problem.tokens > 0
    return LayerWork(
        _fixed(layer, routed, problem.attention_s, scheduler_s, mask & active),
        _gpu_experts(layer, routed, np.flatnonzero(mask & active)),
        _pim_experts(layer, pim, problem, routed, np.flatnonzero(~mask & active)),
        second_row_buffer=pim.dual_row_buffer,
    )


def _fixed(
    layer: PartitionLayer,
    routed: Routed,
    attention_s: float,
    scheduler_s: float,
    on_gpu: NDArray[np.bool_],
) -> FixedWork:
    """Kernels cost their constant, and the roofline of what they move and compute for the local batch."""
    model, gpu = layer.model, layer.platform.gpu
    assert gpu is not None
    kernel_s, batch = gpu.kernel_s, routed.batch
    router = model.hidden_size * model.experts
    shared = model.expert_matrices * model.hidden_size * model.shared_intermediate_size * model.shared_experts
    through_bytes = 2 * batch * model.hidden_size * model.activation_bytes  # a vector in, and one out
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    router_bytes = router * model.other_weight_bytes + through_bytes
    shared_bytes = shared * model.other_weight_bytes + through_bytes
    return FixedWork(
        projections_s=_projections_s(layer, gpu, batch),
        attention_s=attention_s,
        router_s=kernel_s + gpu.roofline_s(router_bytes, 2 * batch * router, dtype),
        all_gather_s=routed.exchange.all_gather_s,
        metadata_s=kernel_s,
        scheduler_s=scheduler_s,
        dispatch_s=routed.exchange.dispatch_s,
        shared_load_s=gpu.roofline_s(shared_bytes, 0.0, dtype) if shared else 0.0,
        shared_gemm_s=kernel_s + gpu.roofline_s(0.0, 2 * batch * shared, dtype) if shared else 0.0,
        launch_s=kernel_s if on_gpu.any() else 0.0,
        commands_s=kernel_s if (routed.tokens[~on_gpu] > 0).any() else 0.0,
        permutation_s=kernel_s,
        combine_s=routed.exchange.combine_s,
        aggregation_s=kernel_s,
    )


def _projections_s(layer: PartitionLayer, gpu: Gpu, batch: int) -> float:
    """Return the time of attention's input and output projections, two kernels."""
    model = layer.model
    if not batch or (model.attention.cross_layers and layer.layer not in model.attention.cross_layers):
        return 0.0
    encoder_tokens = 1 if model.attention.cross_layers else 0
    work = decode_attention(model, [1] * batch, layers=[layer.layer], encoder_tokens=encoder_tokens)
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    return 2 * gpu.kernel_s + gpu.roofline_s(work.projection_bytes, work.projection_flop, dtype)


def _gpu_experts(layer: PartitionLayer, routed: Routed, chosen: NDArray[np.intp]) -> GpuExperts:
    """Weights move once, every routed token in and out once."""
    tokens = routed.tokens[chosen].astype(np.float64)
    return GpuExperts(
        ids=routed.experts[chosen],
        load_s=layer.gpu.expert_s + tokens * layer.gpu.token_s,
        gemm_s=tokens * layer.gpu.flop_s,
        early=routed.local_tokens[chosen] > 1,
    )


def _pim_experts(
    layer: PartitionLayer, pim: Pim, problem: PartitionProblem, routed: Routed, chosen: NDArray[np.intp]
) -> PimExperts:
    """Split every expert's table entry as the timing model splits one token."""
    sent, read = _transport_shares(layer, pim)
    seconds = problem.seconds[chosen]
    return PimExperts(
        ids=routed.experts[chosen],
        send_s=seconds * sent,
        compute_s=seconds * (1.0 - sent - read),
        read_s=seconds * read,
        channel=layer.home[chosen] if layer.layout == "ep" else np.full(chosen.size, ALL_CHANNELS),
    )


def _transport_shares(layer: PartitionLayer, pim: Pim) -> tuple[float, float]:
    """Return the shares of a token's time that writing its vector, and reading its result, take.

    The layout is the fastest split over banks, as in the cost table. What lies between the matrices counts
    as the banks' work.
    """
    model = layer.model
    groups = layer.platform.site_pseudo_channels
    if layer.layout == "tp" and layer.platform.topology is not None:
        groups *= layer.platform.topology.sites
    gemv = partial(
        pim.gemv, weight_bytes=model.weight_bytes, activation_bytes=model.activation_bytes, groups=groups
    )
    ups, up_shape = model.expert_matrices - 1, (model.expert_intermediate_size, model.hidden_size)
    splits = (k_banks for k_banks in range(1, pim.banks + 1) if pim.banks % k_banks == 0)
    pairs = [(gemv(*up_shape, k_banks=k), gemv(*reversed(up_shape), k_banks=k)) for k in splits]
    up, down = min(pairs, key=lambda pair: ups * pair[0].seconds() + pair[1].seconds())
    whole_s = ups * up.busy_s + down.busy_s
    return ups * up.input_write_s / whole_s, down.read_s / whole_s
