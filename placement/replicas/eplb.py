"""DeepSeek's expert-parallel load balancer, hierarchical and global, as it was published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def eplb(
    weight: NDArray[np.float64], *, slots: int, groups: int, nodes: int, ranks: int
) -> NDArray[np.int32]:
    """Return the logical expert of every physical slot, int32 `[R]`, for loads `weight` `[E]` of one layer.

    Groups of consecutive experts are packed onto nodes, experts are replicated inside each node, and the
    replicas packed onto the node's ranks (hierarchical); without a number of groups that divides by the
    nodes, all ranks are one node (global). Replica counts, and loads of the ranks, are those of
    `rebalance_experts` in deepseek-ai/EPLB: everything in float32, ties to the lowest index. Two replicas of
    an expert may share a rank. `slots` must divide by `ranks`, and R and E by the nodes of the hierarchy.
    """
    from .eplb_kernel import pack, replicate

    load: NDArray[np.float32] = np.ascontiguousarray(weight, dtype=np.float32)
    if groups % nodes:
        groups = nodes = 1
    node_experts, node_slots = len(load) // nodes, slots // nodes
    order = _by_node(load, groups, nodes)
    rank_slots, node_ranks = slots // ranks, ranks // nodes
    plan = np.empty(slots, dtype=np.int32)
    for node in range(nodes):
        members = order[node * node_experts : (node + 1) * node_experts]
        expert_of = np.empty(node_slots, dtype=np.int64)
        count = replicate(load[members], node_slots, expert_of)
        each = (load[members] / count.astype(np.float32))[expert_of].astype(np.float32)
        rank_of, place_of = _packed(each, node_ranks, pack)
        plan[node * node_slots + rank_of * rank_slots + place_of] = members[expert_of]
    return plan


def _by_node(load: NDArray[np.float32], groups: int, nodes: int) -> NDArray[np.int64]:
    """Return the experts `[E]` node by node, group by group in the order of their arrival there."""
    from .eplb_kernel import pack

    size = len(load) // groups
    total = load.reshape(groups, size).sum(axis=1, dtype=np.float32)
    node_of, place_of = _packed(total, nodes, pack)
    start = (node_of * (groups // nodes) + place_of) * size
    order = np.empty(len(load), dtype=np.int64)
    order[(start[:, None] + np.arange(size)).ravel()] = np.arange(len(load))
    return order


def _packed(
    weight: NDArray[np.float32], packs: int, pack: object
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pack and place of every item; with one item a pack nothing is sorted, as published."""
    items = len(weight)
    if items == packs:
        return np.arange(items), np.zeros(items, dtype=np.int64)
    pack_of, place_of = np.empty(items, dtype=np.int64), np.empty(items, dtype=np.int64)
    assert callable(pack)
    pack(weight, np.argsort(-weight, kind="stable"), packs, pack_of, place_of)
    return pack_of, place_of
