"""The engines by name; exporting a layout, and judging a file that someone else made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...common.errors import BadInput, Contradiction, UsageError, did_you_mean
from ...common.files import atomic_path, write_text
from . import eplb, sglang, tensorrt_llm, vllm, vllm_ascend
from .engine import Engine, Launch
from .layout import Deployment, Layout, deployment_of, rows_of
from .rules import Verdict
from .sidecar import FORMAT, file_fingerprint, sidecar_path

if TYPE_CHECKING:
    from ...workload.counts import CountLoad
    from ...workload.model import MoEModel

VERSION: Final = 1
ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        engine.name: engine
        for engine in (sglang.ENGINE, vllm.ENGINE, vllm_ascend.ENGINE, tensorrt_llm.ENGINE, eplb.ENGINE)
    }
)


def find_engine(name: str) -> Engine:
    """Return an engine. Raises UsageError for an unknown name."""
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}", where="--engine", fix=did_you_mean(name, ENGINES))
    return ENGINES[name]


def export_layout(
    layout: Layout, engine: Engine, path: str | Path, *, model: MoEModel | None = None, source: str = ""
) -> dict[str, Any]:
    """Write the file of an engine, and beside it a sidecar with metadata and launch flags; return the latter.

    The file is read back and judged by the engine's rules before it takes its name. `source` says where the
    layout comes from.

    Raises UsageError where the engine needs the model or takes another suffix; BadInput where the layout
    breaks a rule of the engine (each is named), or a file cannot be written; Contradiction where the file
    reads otherwise than what was written.
    """
    path, suffix = Path(path), _suffix(engine, path)
    if model is None and engine.needs_model:
        raise UsageError(
            f"{engine.name} wants layers by their place in the whole model",
            where="--model",
            fix="name the model",
        )
    deployment = deployment_of(layout, model)
    with atomic_path(path) as temporary:
        engine.write(layout, deployment, temporary, suffix)
        verdict = _judge(engine, temporary, suffix, deployment)
        layers = tuple(range(deployment.layers)) if engine.dense else deployment.moe_layers
        read = verdict.physical_to_logical
        if read is None or not np.array_equal(read, rows_of(layout, layers)):
            raise Contradiction(f"the file for {engine.name} reads otherwise than the plan")
    filled = sorted(set(deployment.moe_layers) - set(layout.layers))
    described = {
        "ranks": layout.ranks,
        "nodes": layout.nodes,
        "slots": layout.slots,
        "redundant": layout.redundant,
        "planned_layers": list(layout.layers),
        "unplanned_layers": filled,
    }
    launch = engine.launch(layout, deployment, path.name)
    return _write_sidecar(path, engine.name, deployment, source, described, verdict, launch)


def export_counts(load: CountLoad, path: str | Path, *, model: MoEModel, source: str = "") -> dict[str, Any]:
    """Write counts that SGLang plans from by itself (`logical_count`), with a sidecar as `export_layout`."""
    from ...workload.counts import check_counts

    check_counts(load, model)
    path, engine = Path(path), sglang.ENGINE
    suffix = _suffix(engine, path)
    deployment = Deployment(model.name, model.layers, model.moe_layers, model.experts, 1)
    with atomic_path(path) as temporary:
        sglang.write_counts(load, deployment, temporary)
        verdict = _judge(engine, temporary, suffix, deployment)
    described = {"counted_layers": list(load.layers), "windows": len(load.windows)}
    launch = sglang.launch_counts(path.name)
    return _write_sidecar(path, engine.name, deployment, source, described, verdict, launch)


def check_file(path: str | Path, engine: Engine, deployment: Deployment) -> Verdict:
    """Judge a file by the engine's rules. Raises BadInput where it cannot be read at all."""
    path = Path(path)
    return engine.check(engine.parse(path, path.suffix.lower()), deployment)


def _suffix(engine: Engine, path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in engine.suffixes:
        raise UsageError(
            f"{engine.name} does not read files named *{suffix or path.name}",
            where="--output",
            allowed=", ".join(engine.suffixes),
            fix=f"name it {path.stem}{engine.suffixes[0]}",
        )
    return suffix


def _judge(engine: Engine, path: Path, suffix: str, deployment: Deployment) -> Verdict:
    verdict = engine.check(engine.parse(path, suffix), deployment)
    faults = [found for found in verdict.findings if found.ok is False]
    if faults:
        raise BadInput(
            f"{engine.name} cannot be given this plan: {faults[0].check}",
            where="; ".join(found.detail for found in faults),
            fix="plan again within the rules of the engine",
        )
    return verdict


def _write_sidecar(
    path: Path,
    engine: str,
    deployment: Deployment,
    source: str,
    described: dict[str, Any],
    verdict: Verdict,
    launch: Launch,
) -> dict[str, Any]:
    sidecar = {
        "format": FORMAT,
        "version": VERSION,
        "engine": engine,
        "file": path.name,
        "file_fingerprint": file_fingerprint(path),
        "source": source,
        "model": deployment.model or None,
        "layers": deployment.layers,
        "moe_layers": list(deployment.moe_layers),
        "experts": deployment.experts,
        **described,
        "launch": {"flags": list(launch.flags), "config": launch.config},
        "preconditions": list(launch.preconditions),
        "notes": list(launch.notes),
        "checks": [asdict(found) for found in verdict.findings],
    }
    write_text(sidecar_path(path), json.dumps(sidecar, indent=1) + "\n")
    return sidecar
