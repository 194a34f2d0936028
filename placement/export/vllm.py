"""vLLM: the map files of its open proposals. Release 0.33.0 itself reads none.

`.json` is the list of pull request 49572 (`initial_expert_map_path`): [R] for all layers, or [MoE layers][R].
`.jsonl` is the mapping line of pull request 41141 (`initial_mapping_path`), whose layers are texts "0", "1",
... by MoE layer. Dense layers have no row in either.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ..verify import Finding
from .engine import Engine, Launch
from .layout import Deployment, Layout, rows_of
from .parsing import parse_json, parse_json_lines
from .rules import KEYS, LAYER_AXIS, Verdict, check_layer_count, check_table, rejected

LINES: Final = ".jsonl"
_RECORD: Final = "eplb_initial_mapping"
_OTHERS: Final = ("eplb_load_stats", "eplb_load_meta")
_VERSION: Final = 1
_ASSIGNMENTS: Final = "initial_global_assignments"


def write(layout: Layout, deployment: Deployment, path: Path, suffix: str) -> None:
    """Write a mapping line where `suffix` is .jsonl, else lists."""
    rows = rows_of(layout, deployment.moe_layers).tolist()
    content: Any = rows
    if suffix == LINES:
        content = {
            "record_type": _RECORD,
            "version": _VERSION,
            "num_redundant_experts": layout.redundant,
            "num_slots": layout.slots,
            _ASSIGNMENTS: {str(index): row for index, row in enumerate(rows)},
        }
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def parse(path: Path, suffix: str) -> Any:
    """Read lists as they are, and JSON Lines as the mapping with its record_type."""
    if suffix != LINES:
        return parse_json(path)
    records = [line for line in parse_json_lines(path) if _kind(line) not in _OTHERS]
    return records[0] if len(records) == 1 else {"records": len(records)}


def check(values: Any, deployment: Deployment) -> Verdict:
    """Judge lists, or a mapping line."""
    if isinstance(values, dict):
        return _check_line(values, deployment)
    if not isinstance(values, list) or not values:
        return rejected(KEYS, "neither a list of slots nor a mapping line")
    if not isinstance(values[0], list):
        axis = Finding(LAYER_AXIS, True, "one list for all layers")
        rows = [("the list", values)]
    else:
        axis = check_layer_count(values, deployment, dense=False)
        rows = [(f"MoE layer {index}", row) for index, row in enumerate(values)]
    verdict = check_table(rows, deployment, "tolerated", "vLLM")
    return Verdict((axis, *verdict.findings), verdict.physical_to_logical)


def _check_line(record: dict[str, Any], deployment: Deployment) -> Verdict:
    if record.get("record_type") != _RECORD or record.get("version") != _VERSION:
        return rejected(KEYS, f"not one line of record_type {_RECORD}, version {_VERSION}")
    table = record.get(_ASSIGNMENTS)
    if not isinstance(table, dict) or not table:
        return rejected(KEYS, f"key {_ASSIGNMENTS!r} must map layers to lists of slots")
    wanted = [str(index) for index in range(len(deployment.moe_layers))]
    axis = check_layer_count(list(table.values()), deployment, dense=False)
    if axis.ok and set(table) != set(wanted):
        absolute = set(table) == {str(layer) for layer in deployment.moe_layers}
        hint = "; these look like ids of the whole model: MoE layers count from 0" if absolute else ""
        strange = next(key for key in table if key not in wanted)
        axis = Finding(LAYER_AXIS, False, f"key {strange!r} is none of 0 to {len(wanted) - 1}{hint}")
    verdict = check_table(
        [(f"MoE layer {index}", row) for index, row in table.items()], deployment, "tolerated", "vLLM"
    )
    found = verdict.physical_to_logical
    keys = Finding(KEYS, True, f"{_RECORD}, version {_VERSION}")
    if found is not None:
        slots = int(found.shape[1])
        told = (record.get("num_slots"), record.get("num_redundant_experts"))
        if told != (slots, slots - deployment.experts):
            keys = Finding(KEYS, False, f"num_slots and num_redundant_experts are {told}, the lists differ")
        elif axis.ok:
            found = found[[list(table).index(key) for key in wanted]]
    return Verdict((keys, axis, *verdict.findings), found)


def _kind(line: Any) -> Any:
    return line.get("record_type") if isinstance(line, dict) else None


def launch(layout: Layout, deployment: Deployment, name: str) -> Launch:
    """How to start the server."""
    config: dict[str, Any] = {"num_redundant_experts": layout.redundant}
    if name.endswith(LINES):
        config |= {"initial_mapping_path": name, "disable_online_rebalancing": True}
        proposal = "41141 (later revisions rename disable_online_rebalancing to enable_online)"
    else:
        config |= {"initial_expert_map_path": name}
        proposal = "49572"
    return Launch(
        ("--enable-expert-parallel", "--enable-eplb", f"--eplb-config '{json.dumps(config)}'"),
        {},
        (
            f"vLLM with pull request {proposal}; it is open, and its format may still change",
            "release 0.33.0 reads no map file",
            f"data parallel size times tensor parallel size must be {layout.ranks}",
        ),
        ("replicas are chosen by a hash of the token's row, which is even only on average",),
    )


ENGINE: Final = Engine("vllm", (".json", LINES), False, False, write, parse, check, launch)
