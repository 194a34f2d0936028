"""TensorRT-LLM: the YAML of `moe_config.load_balancer`.

`initial_global_assignments` maps absolute layer ids, as numbers, to lists of `num_slots` expert ids; a MoE
layer that is missing is an error when the model is built. Unknown keys are refused, by a strict class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..verify import Finding
from .engine import Engine, Launch
from .layout import Deployment, Layout, rows_of
from .parsing import parse_yaml
from .rules import KEYS, LAYER_AXIS, SLOT_AXIS, Verdict, check_table, rejected

_SLOTS: Final = "num_slots"
_ASSIGNMENTS: Final = "initial_global_assignments"
_UPDATES: Final = "layer_updates_per_iter"
_KEYS: Final = (_SLOTS, _ASSIGNMENTS, _UPDATES, "mode")  # `mode` since 1.4


def write(layout: Layout, deployment: Deployment, path: Path, suffix: str) -> None:
    """Write a static map, one layer a line."""
    rows = rows_of(layout, deployment.moe_layers).tolist()
    lines = [f"{_SLOTS}: {layout.slots}", f"{_ASSIGNMENTS}:"]
    lines += [f"  {layer}: {row}" for layer, row in zip(deployment.moe_layers, rows, strict=True)]
    lines.append(f"{_UPDATES}: 0")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def parse(path: Path, suffix: str) -> Any:
    """Read YAML."""
    return parse_yaml(path)


def check(values: Any, deployment: Deployment) -> Verdict:
    """Judge a configuration of the load balancer."""
    if not isinstance(values, dict):
        return rejected(KEYS, "not a mapping of keys to values")
    keys = _check_keys(values)
    slots = values.get(_SLOTS)
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        return rejected(SLOT_AXIS, f"{_SLOTS} must be a number of slots, not {slots!r}", keys)
    table = values.get(_ASSIGNMENTS)
    if table is None:
        absent = "absent: every rank starts from consecutive experts"
        return Verdict((keys, Finding(LAYER_AXIS, None, absent), _even(slots, deployment)))
    if not isinstance(table, dict) or not table:
        return rejected(LAYER_AXIS, f"{_ASSIGNMENTS} must map layer ids to lists of slots", keys)
    axis = _check_layers(table, deployment)
    rows = [(f"layer {layer}", row) for layer, row in table.items()]
    short = [name for name, row in rows if isinstance(row, list) and len(row) != slots]
    if short:
        return Verdict(
            (keys, axis, Finding(SLOT_AXIS, False, f"{short[0]} has not {_SLOTS} = {slots} slots"))
        )
    verdict = check_table(rows, deployment, "tolerated", "TensorRT-LLM")
    found = verdict.physical_to_logical
    if found is not None and axis.ok:
        found = found[[list(table).index(layer) for layer in deployment.moe_layers]]
    return Verdict((keys, axis, *verdict.findings), found)


def _check_keys(values: dict[Any, Any]) -> Finding:
    unknown = [key for key in values if key not in _KEYS]
    updates = values.get(_UPDATES, 0)
    if unknown:
        return Finding(KEYS, False, f"key {unknown[0]!r} is no field of the load balancer")
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < 0:
        return Finding(KEYS, False, f"{_UPDATES} must be 0 (static) or more, not {updates!r}")
    kind = "static" if updates == 0 else "rebalanced while serving"
    return Finding(KEYS, True, f"known keys; {kind}")


def _check_layers(table: dict[Any, Any], deployment: Deployment) -> Finding:
    wanted = deployment.moe_layers
    text = [key for key in table if isinstance(key, bool) or not isinstance(key, int)]
    if text:
        return Finding(LAYER_AXIS, False, f"layer {text[0]!r} is a {type(text[0]).__name__}, not a number")
    missing = [layer for layer in wanted if layer not in table]
    strange = [layer for layer in table if layer not in wanted]
    if not missing and not strange:
        return Finding(LAYER_AXIS, True, f"absolute ids {wanted[0]} to {wanted[-1]}")
    counted = sorted(table) == list(range(len(wanted)))
    hint = "; these count MoE layers from 0, the engine wants the model's own ids" if counted else ""
    fault = f"layer {missing[0]} is missing" if missing else f"layer {strange[0]} is no MoE layer"
    return Finding(LAYER_AXIS, False, f"{fault}{hint}")


def _even(slots: int, deployment: Deployment) -> Finding:
    fits = slots % deployment.ranks == 0
    return Finding("divisibility", fits, f"{slots} slots on {deployment.ranks} ranks")


def launch(layout: Layout, deployment: Deployment, name: str) -> Launch:
    """How to start the server."""
    return Launch(
        (f"--ep_size {layout.ranks}", "--config serve.yaml (with the keys of `config`)"),
        {
            "moe_expert_parallel_size": layout.ranks,
            "enable_attention_dp": True,
            "moe_config": {"load_balancer": name},
        },
        (
            "attention data parallelism is on and more than one expert-parallel rank runs; else the section "
            "is ignored without a warning",
            "the model's architecture is one that the load balancer supports; else the section is ignored",
        ),
    )


ENGINE: Final = Engine("tensorrt-llm", (".yaml", ".yml"), True, False, write, parse, check, launch)
