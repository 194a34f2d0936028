"""vllm-ascend: the JSON of `expert_map_path`.

Layers are MoE layers in the order of the list, slots are listed device by device. All devices hold the same
number, none an expert twice: the map from expert to local slot keeps only the last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ..verify import Finding, finding
from .engine import Engine, Launch
from .layout import Deployment, Layout, rows_of
from .parsing import parse_json
from .rules import KEYS, LAYER_AXIS, SLOT_AXIS, Verdict, check_layer_count, check_table, rejected


def write(layout: Layout, deployment: Deployment, path: Path, suffix: str) -> None:
    """Write every MoE layer, device by device."""
    rows = rows_of(layout, deployment.moe_layers).reshape(len(deployment.moe_layers), layout.ranks, -1)
    layers = [
        {
            "layer_id": index,
            "device_count": layout.ranks,
            "device_list": [
                {"device_id": device, "device_expert": experts} for device, experts in enumerate(row)
            ],
        }
        for index, row in enumerate(rows.tolist())
    ]
    content = {"moe_layer_count": len(layers), "layer_list": layers}
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def parse(path: Path, suffix: str) -> Any:
    """Read JSON."""
    return parse_json(path)


def check(values: Any, deployment: Deployment) -> Verdict:
    """Judge a map; the engine reads the order of the lists, so ids that contradict it are refused."""
    layers = values.get("layer_list") if isinstance(values, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        return rejected(KEYS, "key 'layer_list' must hold a list of layers")
    keys = Finding(KEYS, True, "moe_layer_count and layer_list")
    axis = check_layer_count(layers, deployment, dense=False)
    if axis.ok and values.get("moe_layer_count") != len(layers):
        told = values.get("moe_layer_count")
        axis = Finding(LAYER_AXIS, False, f"moe_layer_count is {told!r}, layer_list has {len(layers)} layers")
    elif axis.ok and not _ascending(layers, "layer_id"):
        axis = Finding(LAYER_AXIS, False, "layer_id is not ascending; the engine goes by the list's order")
    faults = [fault for index, layer in enumerate(layers) for fault in _device_faults(index, layer)]
    if faults:
        return Verdict((keys, axis, finding(SLOT_AXIS, faults, "")))
    devices = [layer["device_list"] for layer in layers]
    wrong = [index for index, listed in enumerate(devices) if len(listed) != deployment.ranks]
    if wrong:
        fault = f"MoE layer {wrong[0]} has {len(devices[wrong[0]])} devices, not {deployment.ranks}"
        return Verdict((keys, axis, Finding("divisibility", False, fault)))
    rows = [
        (f"MoE layer {index}", [expert for device in listed for expert in device["device_expert"]])
        for index, listed in enumerate(devices)
    ]
    verdict = check_table(rows, deployment, "forbidden", "vllm-ascend")
    return Verdict((keys, axis, *verdict.findings), verdict.physical_to_logical)


def _device_faults(index: int, layer: dict[str, Any]) -> list[str]:
    """Return what is wrong with the devices of a layer, the first fault only."""
    name, devices = f"MoE layer {index}", layer.get("device_list")
    if not isinstance(devices, list) or not devices or not all(isinstance(one, dict) for one in devices):
        return [f"{name} has no device_list"]
    lists = [device.get("device_expert") for device in devices]
    flat = [item for item in lists if not isinstance(item, list) or any(isinstance(e, list) for e in item)]
    if flat:
        return [f"{name}: every device wants device_expert, a list of expert ids"]
    sizes = sorted({len(item) for item in lists if isinstance(item, list)})
    if len(sizes) > 1:
        return [f"{name}: devices hold {sizes[0]} to {sizes[-1]} experts; all must hold as many"]
    if layer.get("device_count") not in (None, len(devices)):
        return [f"{name}: device_count is {layer['device_count']!r}, device_list has {len(devices)}"]
    if not _ascending(devices, "device_id"):
        return [f"{name}: device_id is not ascending; the engine goes by the list's order"]
    return []


def _ascending(items: list[dict[str, Any]], key: str) -> bool:
    ids = [item[key] for item in items if isinstance(item.get(key), int)]
    return ids == sorted(set(ids))


def launch(layout: Layout, deployment: Deployment, name: str) -> Launch:
    """How to start the server."""
    config = json.dumps({"eplb_config": {"expert_map_path": name}})
    return Launch(
        ("--enable-expert-parallel", f"--additional-config '{config}'"),
        {},
        (
            f"{layout.ranks} expert-parallel ranks; the number of redundant experts follows from the file",
            "a release before 0.25.1, from which static maps are to be removed; model runner v2 refuses them",
        ),
        (
            "older releases take expert_map_path at the top of --additional-config",
            "every rank sends its tokens to one fixed replica, so replicas share a load by source rank",
        ),
    )


ENGINE: Final = Engine("vllm-ascend", (".json",), False, False, write, parse, check, launch)
