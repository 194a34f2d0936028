"""How long the tasks of one MoE layer take: shapes of the model, times of the machine, and a partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from ..common.errors import UsageError
from .layer import ALL_CHANNELS, FixedWork, GpuExperts, LayerWork, PimExperts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ..hardware.gpu import Gpu
    from ..hardware.pim import Pim
    from ..hardware.platform import Platform
    from ..workload.model import MoEModel

    Floats = NDArray[np.float64]

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


def busiest_gpu(chosen: NDArray[np.int16], model: MoEModel, gpu: Gpu, gpus: int) -> Routed:
    """Return the work of the GPU with most routed tokens (lowest id on ties) under expert parallelism.

    `chosen` [B, K] holds the experts of every batch slot. Slots and experts lie on `gpus` GPUs in equal
    consecutive blocks. A token crosses to a GPU once, however many of its experts live there. Each
    collective takes the busiest GPU's bytes in one direction over NVLink, and the kernel constant. Raises
    UsageError where experts or slots cannot be split evenly.
    """
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
        _exchange(chosen, model, gpu, gpus),
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
    model: MoEModel,
    platform: Platform,
    routed: Routed,
    on_gpu: ArrayLike,
    *,
    layout: Literal["tp", "ep"] = "tp",
    attention_s: float = 0.0,
    scheduler_s: float = 0.0,
    pim_s: ArrayLike | None = None,
) -> LayerWork:
    """Return the tasks' seconds for a partition: `on_gpu` bool [e], true for experts that the GPU runs.

    Experts without tokens have no task. In layout "tp" an expert lies on all channels, in "ep" expert i
    of the GPU on channel i modulo their number. `pim_s` float [e] replaces the timing model where a cost
    table knows better; how it splits into steps stays the model's. `attention_s` is decode attention on
    PIM, `scheduler_s` the time of the partition's decision. Raises UsageError where the platform lacks a
    GPU or PIM.
    """
    gpu, pim = platform.gpu, platform.pim
    if gpu is None or pim is None or platform.topology is None:
        raise UsageError(
            f"platform {platform.name} has no {'GPU' if gpu is None else 'PIM'}",
            fix="use a GPU with computing memory, such as b200-hbmpim",
        )
    mask = np.asarray(on_gpu, dtype=np.bool_)
    if mask.shape != routed.tokens.shape:
        raise UsageError(f"a partition of {routed.tokens.size} experts has shape {mask.shape}")
    on_pim = np.flatnonzero(~mask & (routed.tokens > 0))
    mask = mask & (routed.tokens > 0)
    sites = platform.topology.sites
    groups = platform.site_pseudo_channels * (sites if layout == "tp" else 1)
    seconds = _pim_seconds(model, pim, groups, routed.tokens) if pim_s is None else np.asarray(pim_s)
    return LayerWork(
        _fixed(model, gpu, routed, mask, bool(on_pim.size), attention_s, scheduler_s),
        _gpu_experts(model, gpu, routed, mask),
        _pim_experts(
            model, pim, groups, routed.experts[on_pim], seconds[on_pim],
            np.full(on_pim.size, ALL_CHANNELS) if layout == "tp" else on_pim % sites,
        ),
        second_row_buffer=pim.dual_row_buffer,
    )  # fmt: skip


def gemm_dtype(model: MoEModel, gpu: Gpu) -> str:
    """Return the type in which experts are multiplied: FP8 weights in fp8 where the GPU can, else bf16."""
    return "fp8" if model.weight_bytes == 1.0 and "fp8" in gpu.peak_flop_per_s else "bf16"


def _fixed(
    model: MoEModel,
    gpu: Gpu,
    routed: Routed,
    on_gpu: NDArray[np.bool_],
    any_on_pim: bool,
    attention_s: float,
    scheduler_s: float,
) -> FixedWork:
    """Small kernels cost their constant and the traffic of what they touch; results stay on chip."""
    hidden, batch = model.hidden_size, routed.batch
    shared = model.expert_matrices * hidden * model.shared_intermediate_size * model.shared_experts
    router = hidden * model.experts
    router_bytes = router * model.other_weight_bytes + batch * hidden * model.activation_bytes
    shared_bytes = shared * model.other_weight_bytes
    return FixedWork(
        attention_s=attention_s,
        router_s=gpu.kernel_s + gpu.roofline_s(router_bytes, 2.0 * batch * router, "bf16"),
        all_gather_s=routed.exchange.all_gather_s,
        metadata_s=gpu.kernel_s,
        scheduler_s=scheduler_s,
        dispatch_s=routed.exchange.dispatch_s,
        shared_load_s=gpu.roofline_s(shared_bytes, 0.0, "bf16"),
        shared_gemm_s=_kernel(gpu, gpu.roofline_s(0.0, 2.0 * batch * shared, gemm_dtype(model, gpu))),
        launch_s=gpu.kernel_s if on_gpu.any() else 0.0,
        commands_s=gpu.kernel_s if any_on_pim else 0.0,
        permutation_s=gpu.kernel_s,
        combine_s=routed.exchange.combine_s,
        aggregation_s=gpu.kernel_s,
    )


def _kernel(gpu: Gpu, seconds: float) -> float:
    return gpu.kernel_s + seconds if seconds else 0.0


def _gpu_experts(model: MoEModel, gpu: Gpu, routed: Routed, on_gpu: NDArray[np.bool_]) -> GpuExperts:
    """Weights once, every routed token in and out once; the parts of `Gpu.grouped_gemm_s`."""
    tokens = routed.tokens[on_gpu]
    traffic_bytes = model.expert_bytes + 2 * tokens * model.hidden_size * model.activation_bytes
    flops = 2.0 * tokens * model.expert_params
    dtype = gemm_dtype(model, gpu)
    return GpuExperts(
        ids=routed.experts[on_gpu],
        load_s=np.array([gpu.roofline_s(moved, 0.0, dtype) for moved in traffic_bytes.tolist()]),
        gemm_s=np.array([gpu.roofline_s(0.0, flop, dtype) for flop in flops.tolist()]),
        early=routed.local_tokens[on_gpu] > 1,
    )


def _pim_seconds(model: MoEModel, pim: Pim, groups: int, tokens: NDArray[np.int64]) -> Floats:
    """Return float64 [e] the PIM seconds of every expert."""
    different, which = np.unique(tokens, return_inverse=True)
    seconds = [
        pim.expert_s(
            model.hidden_size,
            model.expert_intermediate_size,
            matrices=model.expert_matrices,
            weight_bytes=model.weight_bytes,
            activation_bytes=model.activation_bytes,
            groups=groups,
            tokens=count,
        )
        for count in different.tolist()
    ]
    return np.array(seconds, dtype=np.float64)[which]


def _pim_experts(
    model: MoEModel,
    pim: Pim,
    groups: int,
    ids: NDArray[np.int64],
    seconds: Floats,
    channel: NDArray[np.int64],
) -> PimExperts:
    """Split every expert's time as one token's: input of the first matrices, banks, result of the last."""
    gemv = partial(
        pim.gemv, weight_bytes=model.weight_bytes, activation_bytes=model.activation_bytes, groups=groups
    )
    up = gemv(model.expert_intermediate_size, model.hidden_size)
    down = gemv(model.hidden_size, model.expert_intermediate_size)
    ups = model.expert_matrices - 1
    whole_s = ups * up.busy_s + down.busy_s
    send_s = seconds * (ups * up.input_write_s / whole_s)
    read_s = seconds * (down.read_s / whole_s)
    return PimExperts(ids, send_s, seconds - send_s - read_s, read_s, channel)
