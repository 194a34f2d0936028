"""The sidecar of an exported file, read again: what the file was made for, and whose file one is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...common.errors import BadInput
from ...common.files import fingerprint, read_text, require_file
from ..verify import Finding
from .parsing import parse_json

FORMAT: Final = "moeplan.export"
#: Keys of a JSON file by which its engine is told.
_KEYS: Final = {
    "physical_to_logical_map": "sglang",
    "logical_count": "sglang",
    "layer_list": "vllm-ascend",
    "moe_layer_count": "vllm-ascend",
}


@dataclass(frozen=True)
class Sidecar:
    """What stands beside an exported file. `ranks`, `nodes`: None for counts, which have none.

    `same_file`: whether the file is still the one that was exported.
    """

    path: Path
    engine: str
    model: str | None
    ranks: int | None
    nodes: int | None
    same_file: bool


def sidecar_path(path: str | Path) -> Path:
    """Return where the metadata of an exported file stands, which the engines must not see."""
    return Path(f"{path}.moeplan.json")


def file_fingerprint(path: Path) -> str:
    """Return the fingerprint of a file's bytes, as a sidecar has it."""
    require_file(path)
    return fingerprint(path.read_bytes().hex())


def read_sidecar(path: str | Path) -> Sidecar | None:
    """Read what stands beside `path`; None where nothing does, or what does is no sidecar of moeplan."""
    beside = sidecar_path(path)
    try:
        told: Any = json.loads(read_text(beside))
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            return None
        same = told.get("file_fingerprint") == file_fingerprint(Path(path))
    except (BadInput, ValueError, RecursionError, OSError):
        return None
    engine, model = told.get("engine"), told.get("model")
    return Sidecar(
        beside,
        engine if isinstance(engine, str) else "",
        model if isinstance(model, str) else None,
        _count(told.get("ranks")),
        _count(told.get("nodes")),
        same,
    )


def sidecar_findings(sidecar: Sidecar, engine: str, ranks: int, nodes: int) -> list[Finding]:
    """Hold what is asked against what the file was made for; None, a warning, where they differ."""
    beside = sidecar.path.name
    if not sidecar.same_file:
        return [Finding("sidecar", None, f"the file is not the one that {beside} was written for")]
    told = {
        "engine": (sidecar.engine, engine),
        "ranks": (sidecar.ranks, ranks),
        "nodes": (sidecar.nodes, nodes),
    }
    other = [
        f"{name} {made} there, {asked} here" for name, (made, asked) in told.items() if made and made != asked
    ]
    if other:
        return [Finding("sidecar", None, f"{beside} says otherwise: {', '.join(other)}")]
    return [Finding("sidecar", True, f"as {beside} says: {engine}, {ranks} ranks on {nodes} nodes")]


def engine_of(path: str | Path) -> str | None:
    """Return the engine whose file this looks like, by its sidecar or its keys; None where nothing tells."""
    beside = read_sidecar(path)
    if beside is not None and beside.engine:
        return beside.engine
    try:
        values = parse_json(Path(path))
    except BadInput:
        return None
    if isinstance(values, dict):
        return next((engine for key, engine in _KEYS.items() if key in values), None)
    lists = isinstance(values, list) and bool(values) and isinstance(values[0], list | int)
    return "vllm" if lists else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None
