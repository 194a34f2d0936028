"""SGLang: the file of `--init-expert-location`.

Either the map {"physical_to_logical_map": [hidden layers][R]}: the engine passes the whole mapping on as
arguments, so any other key is an error; it builds the inverse map of every row, so dense layers need a row
in which every expert occurs. Or {"logical_count": ...}, from which the engine plans by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..verify import Finding
from .engine import Engine, Launch
from .layout import Deployment, Layout, rows_of
from .parsing import parse_json
from .rules import KEYS, Verdict, check_layer_count, check_table, rejected

if TYPE_CHECKING:
    from ...workload.counts import CountLoad

MAP: Final = "physical_to_logical_map"
COUNT: Final = "logical_count"


def write(layout: Layout, deployment: Deployment, path: Path, suffix: str) -> None:
    """Write the bare map, with the trivial row for dense and unplanned layers."""
    rows = rows_of(layout, tuple(range(deployment.layers)))
    path.write_text(json.dumps({MAP: rows.tolist()}) + "\n", encoding="utf-8")


def write_counts(load: CountLoad, deployment: Deployment, path: Path) -> None:
    """Write `logical_count` [hidden layers][E], the tokens of all windows, zero in layers without counts."""
    total = np.zeros((deployment.layers, deployment.experts))
    total[list(load.layers)] = load.total
    rows = np.rint(total).astype(np.int64).tolist()
    path.write_text(json.dumps({COUNT: rows}) + "\n", encoding="utf-8")


def parse(path: Path, suffix: str) -> Any:
    """Read JSON, or a .pt file through the weights-only guard of torch."""
    if suffix == ".pt":
        from ...workload.readers.torch_file import load_torch_file

        data = load_torch_file(path)
        if not isinstance(data, dict):
            return data
        return {
            key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in data.items()
        }
    return parse_json(path)


def check(values: Any, deployment: Deployment) -> Verdict:
    """Judge a map, or counts."""
    if not isinstance(values, dict) or not {MAP, COUNT} & set(values):
        return rejected(KEYS, f"neither key {MAP!r} nor {COUNT!r}")
    if MAP not in values:
        return _check_counts(values[COUNT], deployment)
    others = sorted(set(values) - {MAP})
    if others:
        return rejected(KEYS, f"key {others[0]!r} stands beside {MAP!r}; the engine takes that key alone")
    keys = Finding(KEYS, True, f"{MAP} alone")
    rows = values[MAP]
    if not isinstance(rows, list) or not rows:
        return rejected("layer axis", f"{MAP} is no list of layers", keys)
    axis = check_layer_count(rows, deployment, dense=True)
    verdict = check_table(
        [(f"layer {layer}", row) for layer, row in enumerate(rows)], deployment, "tolerated", "SGLang"
    )
    return Verdict((keys, axis, *verdict.findings), verdict.physical_to_logical)


def _check_counts(values: Any, deployment: Deployment) -> Verdict:
    """Judge [layers][E] or [steps][layers][E]; further keys of the file are ignored by the engine."""
    keys = Finding(KEYS, True, f"{COUNT}: the engine plans from it")
    try:
        counts = np.asarray(values)
    except ValueError:
        return rejected("slot axis", f"{COUNT} has rows of different lengths", keys)
    if counts.ndim not in (2, 3) or counts.dtype.kind not in "iuf":
        return rejected(
            "slot axis", f"{COUNT} must hold numbers [layers][experts] or [steps][layers][experts]", keys
        )
    axis = check_layer_count(range(counts.shape[-2]), deployment, dense=True)
    fits = counts.shape[-1] == deployment.experts
    found = [
        Finding("slot axis", fits, f"{counts.shape[-1]} experts, {deployment.experts} in the model"),
        Finding("counts", bool((counts >= 0).all()), "finite numbers that are not negative"),
    ]
    if axis.ok:
        silent = np.flatnonzero(~counts.reshape(-1, *counts.shape[-2:]).any(axis=(0, 2)))
        empty = sorted(set(silent.tolist()) & set(deployment.moe_layers))
        found.append(
            Finding("empty layers", None if empty else True, f"MoE layers without a count: {empty or 'none'}")
        )
    return Verdict((keys, axis, *found))


def launch_counts(name: str) -> Launch:
    """How to start a server that plans from counts by itself."""
    return Launch(
        (f"--init-expert-location {name}", "--eplb-algorithm auto"),
        {},
        (
            "redundant experts (--ep-num-redundant-experts) need an all-to-all backend "
            "(--moe-a2a-backend): without one, answers get worse without a warning",
        ),
        ("groups come from the model and nodes from --nnodes; no replica count or duplicate is checked",),
    )


def launch(layout: Layout, deployment: Deployment, name: str) -> Launch:
    """How to start the server."""
    flags = [
        f"--init-expert-location {name}",
        f"--ep-size {layout.ranks}",
        f"--ep-num-redundant-experts {layout.redundant}",
        "--ep-dispatch-algorithm static",
        "--moe-a2a-backend deepep",
    ]
    if layout.nodes > 1:
        flags.append(f"--nnodes {layout.nodes}")
    return Launch(
        tuple(flags),
        {},
        (
            "redundant experts need an all-to-all backend (--moe-a2a-backend): without one, answers get "
            "worse without a warning",
            f"--ep-size must be {layout.ranks} and --ep-num-redundant-experts {layout.redundant}",
        ),
        (
            "static dispatch sends each rank's tokens to the nearest replica; dynamic spreads them at random",
            "--enable-eplb would replace the map after its first rebalancing; leave it out",
            "the recorder's modes per_pass and per_token cannot run together with --enable-eplb",
        ),
    )


ENGINE: Final = Engine("sglang", (".json",), True, True, write, parse, check, launch)
