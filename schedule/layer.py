"""One MoE layer of one GPU with computing memory as a graph of tasks (Sieve, section 6 and figure 8).

Attention, router, all-gather of the routing maps and metadata come one after the other; then tokens are
dispatched while the scheduler decides. Experts on the GPU: weights, then their part of the grouped GEMM.
Experts on PIM: tokens are written to the banks, the banks compute, results are read back. Permutation waits
for all of them, then results travel home and are added up, with those of the shared experts, whose weights
start to load when the router has run. So do the weights of experts that have several local tokens.

What holds what is ours to choose, because the paper does not say: kernels hold the GPU's compute, weights its
memory, collectives the interconnect. All three steps of an expert hold its PIM device, whose banks obey one
command stream. Tokens that go to all channels hold the memory as well; tokens of one channel do not keep the
others from serving the GPU. Banks without a second row buffer either serve the GPU or compute. A step stands
for all tokens of an expert, though in truth the steps of its tokens alternate; so tokens of the next expert
may be sent before the banks have worked on the last, and no token interrupts a load of weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..common.errors import UsageError, did_you_mean
from .timeline import TaskGraph, task_graph

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    Floats = NDArray[np.float64]

COMPUTE, MEMORY, LINK, PIM = "GPU compute", "GPU memory", "interconnect", "PIM"
ALL_CHANNELS = -1
MODES = ("serial", "per-device", "overlapped")
"""serial: one task at a time; per-device: GPU, interconnect and PIM do one thing each; overlapped: the GPU
also computes while it loads."""


class Kind(StrEnum):
    """Sorts of work in a layer."""

    CONTROL = "control"
    ATTENTION = "attention"
    EXCHANGE = "exchange"
    WEIGHTS = "weights"
    GEMM = "GEMM"
    TOKENS = "tokens"
    PIM = "PIM"


@dataclass(frozen=True)
class FixedWork:
    """Seconds of what a layer does once, however its experts are split; 0.0 where it does not do it."""

    projections_s: float = 0.0
    """GPU work before the router: projections, norms."""
    attention_s: float = 0.0
    """Decode attention on PIM."""
    router_s: float = 0.0
    all_gather_s: float = 0.0
    """Local routing maps to all GPUs."""
    metadata_s: float = 0.0
    scheduler_s: float = 0.0
    """The decision which expert runs where."""
    dispatch_s: float = 0.0
    shared_load_s: float = 0.0
    shared_gemm_s: float = 0.0
    launch_s: float = 0.0
    """Constant cost of the grouped GEMM's kernel."""
    commands_s: float = 0.0
    """Constant cost of the kernel that issues PIM commands."""
    permutation_s: float = 0.0
    combine_s: float = 0.0
    aggregation_s: float = 0.0
    """Weighted sum of every token's results."""


@dataclass(frozen=True, eq=False)
class GpuExperts:
    """G experts that run on the GPU."""

    ids: NDArray[np.int64]
    """[G]"""
    load_s: Floats
    """[G] weights and activations over the memory bus."""
    gemm_s: Floats
    """[G] their part of the grouped GEMM."""
    early: NDArray[np.bool_]
    """[G] several local tokens: loading starts when the router has run."""

    def __post_init__(self) -> None:
        _settle(self)


@dataclass(frozen=True, eq=False)
class PimExperts:
    """P experts that run on PIM; what a cost table says of one is the sum of its three steps."""

    ids: NDArray[np.int64]
    """[P]"""
    send_s: Floats
    """[P] writing token vectors to the banks' buffers."""
    compute_s: Floats
    """[P] the banks' work."""
    read_s: Floats
    """[P] reading results back."""
    channel: NDArray[np.int64]
    """[P] channel that holds the expert, or ALL_CHANNELS."""

    def __post_init__(self) -> None:
        _settle(self)


@dataclass(frozen=True, eq=False)
class LayerWork:
    """All that one GPU and its PIM do in one layer and step."""

    fixed: FixedWork
    gpu: GpuExperts
    pim: PimExperts
    second_row_buffer: bool = True
    """Banks serve reads and writes of the GPU while they compute (NeuPIMs)."""


class Estimate(NamedTuple):
    """What max(T_comm, T_gpu, T_pim) expects of a layer (Sieve, eq. 1)."""

    t_comm_s: float
    t_gpu_s: float
    """The longer of memory traffic and computing."""
    t_pim_s: float
    """Attention, and the experts of the busiest channel."""

    @property
    def total_s(self) -> float:
        """The largest of the three."""
        return max(self)


def layer_graph(work: LayerWork) -> TaskGraph:
    """Flatten `layer_digraph`; resources are COMPUTE, MEMORY, LINK, and one PIM device per channel used."""
    return task_graph(layer_digraph(work), (COMPUTE, MEMORY, LINK, *_pim_devices(work)))


def layer_digraph(work: LayerWork) -> nx.DiGraph[str]:
    """Return tasks by name with `duration_s`, `kind` and `resources`; edges say what comes first.

    Tasks of 0 s hold no resource.
    """
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, kind, seconds, resources in _fixed_tasks(work.fixed, _pim_devices(work)):
        _add(graph, name, kind, seconds, resources)
    nx.add_path(graph, ("projections", "attention", "router", "all-gather", "metadata", "scheduler"))
    nx.add_path(graph, ("metadata", "dispatch", "permutation", "combine", "aggregation"))
    nx.add_path(graph, ("router", "shared weights", "shared GEMM", "aggregation"))
    nx.add_path(graph, ("scheduler", "launch", "permutation"))
    nx.add_path(graph, ("scheduler", "PIM commands", "permutation"))
    _add_gpu_experts(graph, work.gpu)
    _add_pim_experts(graph, work)
    return graph


def device_map(graph: TaskGraph, mode: str) -> Mapping[str, str]:
    """Return the device that each resource is a part of in one of `MODES`. Raises UsageError on another."""
    if mode == "serial":
        return MappingProxyType(dict.fromkeys(graph.resources, "everything"))
    if mode == "per-device":
        return MappingProxyType({COMPUTE: "GPU", MEMORY: "GPU"})
    if mode == "overlapped":
        return MappingProxyType({})
    raise UsageError(f"there is no mode {mode!r}", allowed=", ".join(MODES), fix=did_you_mean(mode, MODES))


def in_mode(graph: TaskGraph, mode: str) -> TaskGraph:
    """Return the layer's tasks on the devices of one of `MODES`."""
    return graph.on_devices(device_map(graph, mode))


def estimate(graph: TaskGraph) -> Estimate:
    """Return what eq. 1 of Sieve expects of a `layer_graph`.

    The durations are those of the graph, so that a longer timeline is longer because tasks wait for each
    other, and because eq. 1 leaves out control: router, metadata, scheduler, kernel launches, permutation
    and the final sum. A timeline is never shorter: a resource serves one task at a time.
    """
    counted = [kind for kind in Kind if kind is not Kind.CONTROL]
    busy_s = dict(zip(graph.resources, graph.busy_with(counted).tolist(), strict=True))
    compute_s, memory_s, link_s = (busy_s.pop(name) for name in (COMPUTE, MEMORY, LINK))
    return Estimate(link_s, max(compute_s, memory_s), t_pim_s=max(busy_s.values()))


def _fixed_tasks(
    fixed: FixedWork, pim: tuple[str, ...]
) -> Iterator[tuple[str, Kind, float, tuple[str, ...]]]:
    yield "projections", Kind.GEMM, fixed.projections_s, (COMPUTE, MEMORY)
    yield "attention", Kind.ATTENTION, fixed.attention_s, pim
    yield "router", Kind.CONTROL, fixed.router_s, (COMPUTE, MEMORY)
    yield "all-gather", Kind.EXCHANGE, fixed.all_gather_s, (LINK,)
    yield "metadata", Kind.CONTROL, fixed.metadata_s, (COMPUTE,)
    yield "scheduler", Kind.CONTROL, fixed.scheduler_s, (COMPUTE,)
    yield "dispatch", Kind.EXCHANGE, fixed.dispatch_s, (LINK,)
    yield "shared weights", Kind.WEIGHTS, fixed.shared_load_s, (MEMORY,)
    yield "shared GEMM", Kind.GEMM, fixed.shared_gemm_s, (COMPUTE,)
    yield "launch", Kind.CONTROL, fixed.launch_s, (COMPUTE,)
    yield "PIM commands", Kind.CONTROL, fixed.commands_s, (COMPUTE,)
    yield "permutation", Kind.CONTROL, fixed.permutation_s, (COMPUTE,)
    yield "combine", Kind.EXCHANGE, fixed.combine_s, (LINK,)
    yield "aggregation", Kind.CONTROL, fixed.aggregation_s, (COMPUTE,)


def _add_gpu_experts(graph: nx.DiGraph[str], gpu: GpuExperts) -> None:
    for expert, load_s, gemm_s, early in zip(*_columns(gpu), strict=True):
        load, gemm = f"weights {expert}", f"GEMM {expert}"
        _add(graph, load, Kind.WEIGHTS, load_s, (MEMORY,), after=("router" if early else "scheduler",))
        _add(graph, gemm, Kind.GEMM, gemm_s, (COMPUTE,), after=(load, "launch", "dispatch"))
        graph.add_edge(gemm, "permutation")


def _add_pim_experts(graph: nx.DiGraph[str], work: LayerWork) -> None:
    """Chain send, compute and read back; commands are issued while tokens are sent."""
    everywhere = _pim_devices(work)
    bank_users = () if work.second_row_buffer else (MEMORY,)
    for expert, send_s, compute_s, read_s, channel in zip(*_columns(work.pim), strict=True):
        send, compute, read = f"send {expert}", f"PIM {expert}", f"read {expert}"
        devices = everywhere if channel == ALL_CHANNELS else (_device(channel),)
        bus = (MEMORY,) if channel == ALL_CHANNELS else ()
        _add(graph, send, Kind.TOKENS, send_s, (*devices, *bus), after=("scheduler", "dispatch"))
        _add(graph, compute, Kind.PIM, compute_s, (*devices, *bank_users), after=(send, "PIM commands"))
        _add(graph, read, Kind.TOKENS, read_s, (*devices, *bus), after=(compute,))
        graph.add_edge(read, "permutation")


def _add(
    graph: nx.DiGraph[str],
    name: str,
    kind: Kind,
    seconds: float,
    resources: tuple[str, ...],
    after: tuple[str, ...] = (),
) -> None:
    graph.add_node(name, kind=kind.value, duration_s=seconds, resources=resources if seconds else ())
    graph.add_edges_from((other, name) for other in after)


def _pim_devices(work: LayerWork) -> tuple[str, ...]:
    """Return all PIM devices that appear: one, or one per channel that holds an expert."""
    return tuple(_device(channel) for channel in np.unique(work.pim.channel).tolist()) or (PIM,)


def _device(channel: int) -> str:
    return PIM if channel == ALL_CHANNELS else f"{PIM} {channel}"


def _columns(experts: GpuExperts | PimExperts) -> list[list[Any]]:
    return [getattr(experts, field.name).tolist() for field in fields(experts)]


def _settle(experts: GpuExperts | PimExperts) -> None:
    """Make the columns read-only arrays of one length. Raises UsageError where they are not."""
    types: dict[str, DTypeLike] = {"ids": np.int64, "channel": np.int64, "early": np.bool_}
    for field in fields(experts):
        given: ArrayLike = getattr(experts, field.name)
        column: NDArray[Any] = np.array(given, dtype=types.get(field.name, np.float64))
        column.flags.writeable = False
        object.__setattr__(experts, field.name, column)
    sizes = {field.name: getattr(experts, field.name).shape for field in fields(experts)}
    if len(set(sizes.values())) > 1 or len(experts.ids.shape) != 1:
        raise UsageError(f"columns of experts differ in shape: {sizes}")
    if np.unique(experts.ids).size < experts.ids.size:
        raise UsageError("an expert is listed twice")
