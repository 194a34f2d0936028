"""From a platform and a model to the ranks, links and rates that a replica problem is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...common.errors import BadInput, UsageError
from ...common.files import fingerprint
from .rates import Rates

if TYPE_CHECKING:
    from ...hardware.platform import Platform
    from ...hardware.topology import Topology
    from ...workload.model import MoEModel


def resized(
    platform: Platform,
    *,
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    inside_bytes_per_s: float | None = None,
    across_bytes_per_s: float | None = None,
) -> Platform:
    """Return the cluster with other numbers or bandwidths; unchanged where all are None.

    Raises BadInput where the platform is no cluster, UsageError where several nodes have no network, a
    single one has, or a bandwidth is zero.
    """
    from ...hardware.topology import gpu_cluster

    topology = cluster_of(platform)
    changes = (nodes, ranks_per_node, inside_bytes_per_s, across_bytes_per_s)
    if changes == (None,) * 4:
        return platform
    if 0.0 in (inside_bytes_per_s, across_bytes_per_s):
        raise UsageError("a link without bandwidth carries nothing", fix="give a positive bandwidth")
    inside, across = _link(topology, 0), _link(topology, -1)
    single = cluster_nodes(topology) == 1
    count = nodes or cluster_nodes(topology)
    per = ranks_per_node or topology.sites // cluster_nodes(topology)
    network = across_bytes_per_s or (None if single else across[0])
    if count == 1 and across_bytes_per_s is not None:
        raise UsageError("a single node has no network", fix="leave out --inter-bandwidth, or give --nodes")
    if count > 1 and network is None:
        raise UsageError(f"{count} nodes need a network", fix="give --inter-bandwidth, for example '50 GB/s'")
    built = gpu_cluster(
        count,
        per,
        nvlink_bandwidth_bytes_per_s=inside_bytes_per_s or inside[0],
        nvlink_latency_s=inside[1],
        network_bandwidth_bytes_per_s=network,
        network_latency_s=inside[1] if single else across[1],
    )
    key = fingerprint(platform.fingerprint, count, per, inside_bytes_per_s, network)
    return replace(platform, topology=built, fingerprint=key)


def cluster_of(platform: Platform) -> Topology:
    """Return the topology of a GPU cluster. Raises BadInput where the platform is none."""
    if platform.topology is None or platform.topology.kind != "gpu_cluster":
        raise BadInput(
            f"platform {platform.name!r} is no GPU cluster", fix="take one that is, for example gpu-cluster"
        )
    return platform.topology


def cluster_nodes(topology: Topology) -> int:
    """Number of nodes of a GPU cluster: its switches but for the network's."""
    switches = topology.nodes - topology.sites
    return max(1, switches - 1)


def link_rates(platform: Platform) -> tuple[float, float | None]:
    """Bytes per second of a rank's link inside its node, and to other nodes (None where it is alone)."""
    topology = cluster_of(platform)
    across = _link(topology, -1)[0] if cluster_nodes(topology) > 1 else None
    return _link(topology, 0)[0], across


def rates_of(model: MoEModel, platform: Platform) -> Rates:
    """Return seconds per unit of work by the GPU's roofline, and per token on the links.

    As `Gpu.grouped_gemm_s`: weights of an active expert are read once, a routed token is read and written at
    the hidden width; dispatch and combine carry a token at the activations' width. Raises BadInput where the
    platform has no GPU or no cluster.
    """
    gpu, topology = platform.gpu, cluster_of(platform)
    if gpu is None:
        raise BadInput(f"platform {platform.name!r} has no GPU", fix="give its file a section gpu")
    memory = gpu.memory_bandwidth_bytes_per_s * gpu.memory_efficiency
    compute = gpu.peak(gpu.data_type(model.weight_bytes, model.activation_bytes)) * gpu.compute_efficiency
    token_bytes = model.hidden_size * model.activation_bytes
    inside, across = _link(topology, 0), _link(topology, -1)
    several = cluster_nodes(topology) > 1
    return Rates(
        kernel_s=gpu.kernel_s,
        expert_s=model.expert_bytes / memory,
        token_memory_s=2 * token_bytes / memory,
        token_compute_s=2 * model.expert_params / compute,
        inside_s=token_bytes / inside[0],
        across_s=token_bytes / across[0] if several else 0.0,
        inside_latency_s=inside[1],
        across_latency_s=across[1] if several else 0.0,
    )


def _link(topology: Topology, which: int) -> tuple[float, float]:
    """Bandwidth, and latency from end to end, of the first (NVLink) or the last (network) link."""
    return (
        float(topology.link_bandwidth_bytes_per_s[which]),
        2 * float(topology.link_latency_s[which]),
    )
