"""DeepSeek EPLB: its three arrays in one numpy archive (.npz).

`phy2log` [L, R], `log2phy` [L, E, X] padded with -1 (X: most replicas of any expert), `logcnt` [L, E],
all int64, with a row for every MoE layer; replicas stand in the order of their slots. EPLB itself has no
file format: these are what `rebalance_experts` returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..verify import Finding
from .engine import Engine, Launch
from .layout import Deployment, Layout, rows_of
from .rules import KEYS, Verdict, check_layer_count, check_table, rejected

_KEYS: Final = ("phy2log", "log2phy", "logcnt")


def write(layout: Layout, deployment: Deployment, path: Path, suffix: str) -> None:
    """Write the arrays of every MoE layer."""
    slots = rows_of(layout, deployment.moe_layers)
    counts = np.array([np.bincount(row, minlength=layout.experts) for row in slots], dtype=np.int64)
    replicas = np.full((*counts.shape, int(counts.max())), -1, dtype=np.int64)
    order = np.argsort(slots, axis=1, kind="stable")
    for row, by_expert in enumerate(order):
        experts = slots[row, by_expert]
        first = np.searchsorted(experts, experts)
        replicas[row, experts, np.arange(slots.shape[1]) - first] = by_expert
    with path.open("wb") as stream:
        np.savez_compressed(stream, phy2log=slots, log2phy=replicas, logcnt=counts)


def parse(path: Path, suffix: str) -> Any:
    """Read the arrays; pickles are never loaded."""
    from ...workload.readers.numpy_file import read_archive

    return read_archive(path, _KEYS)


def check(values: Any, deployment: Deployment) -> Verdict:
    """Judge the arrays, and that they say the same."""
    missing = [key for key in _KEYS if key not in values]
    if missing:
        return rejected(KEYS, f"no array {missing[0]!r}")
    kinds = [key for key in _KEYS if values[key].dtype.kind not in "iu"]
    shapes = [key for key, axes in zip(_KEYS, (2, 3, 2), strict=True) if values[key].ndim != axes]
    if kinds or shapes:
        key = (kinds or shapes)[0]
        return rejected(KEYS, f"{key!r} is {values[key].dtype} of shape {values[key].shape}")
    table = values["phy2log"]
    axis = check_layer_count(table.tolist(), deployment, dense=False)
    verdict = check_table(
        [(f"MoE layer {index}", row) for index, row in enumerate(table.tolist())],
        deployment,
        "tolerated",
        "EPLB",
    )
    found = [Finding(KEYS, True, ", ".join(_KEYS)), axis, *verdict.findings]
    if all(one.ok is not False for one in verdict.findings):
        found.append(_inverse(table, values["log2phy"], values["logcnt"], deployment.experts))
    return Verdict(tuple(found), verdict.physical_to_logical)


def _inverse(slots: NDArray[Any], replicas: NDArray[Any], counts: NDArray[Any], experts: int) -> Finding:
    """Check that `log2phy` and `logcnt` are what `phy2log` says."""
    layers, size = slots.shape
    if counts.shape != (layers, experts) or replicas.shape[:2] != counts.shape:
        return Finding(
            "inverse", False, f"log2phy {replicas.shape} and logcnt {counts.shape} do not fit phy2log"
        )
    for layer in range(layers):
        for expert in range(experts):
            listed = replicas[layer, expert]
            held = np.flatnonzero(slots[layer] == expert)
            count = int(counts[layer, expert])
            if (
                count != held.size
                or sorted(listed[:count].tolist()) != held.tolist()
                or (listed[count:] != -1).any()
            ):
                return Finding(
                    "inverse",
                    False,
                    f"MoE layer {layer}, expert {expert}: log2phy or logcnt contradict phy2log",
                )
    return Finding("inverse", True, f"log2phy and logcnt agree with the {size} slots of phy2log")


def launch(layout: Layout, deployment: Deployment, name: str) -> Launch:
    """EPLB is a library: there is nothing to start."""
    return Launch(
        (),
        {"num_replicas": layout.slots, "num_nodes": layout.nodes, "num_gpus": layout.ranks},
        (f"{layout.slots // layout.ranks} slots on each of {layout.ranks} ranks, rank after rank",),
    )


ENGINE: Final = Engine("eplb", (".npz",), False, False, write, parse, check, launch)
