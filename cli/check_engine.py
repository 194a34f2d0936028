"""`moeplan check --engine`: whether an engine would load a file, and as what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import BadInput, UsageError
from .console import note

if TYPE_CHECKING:
    from ..placement.verify import Finding


def engine_findings(
    path: Path, engine: str, model: str | None, ep_size: int | None, nodes: int | None, redundant: int | None
) -> list[Finding]:
    """Judge a file by the rules of an engine, and by the sidecar of its export where that stands beside it.

    What is not given is taken from the sidecar, which is said; `ok` is None where a file is loaded but does
    not do what it should. Raises UsageError where the engine is unknown, or model or number of ranks are
    missing; BadInput where the file cannot be read at all.
    """
    from ..placement.export.engines import check_file, find_engine
    from ..placement.export.layout import Deployment
    from ..placement.export.sidecar import read_sidecar, sidecar_findings
    from ..workload.model import load_model, model_names

    wanted, beside = find_engine(engine), read_sidecar(path)
    if beside is not None and beside.same_file:
        if model is None and beside.model in model_names():
            model = beside.model
            note(f"--model {model}, from {beside.path.name}")
        if ep_size is None and beside.ranks is not None:
            ep_size = beside.ranks
            note(f"--ep-size {ep_size}, from {beside.path.name}")
        if nodes is None and beside.nodes not in (None, 1) and ep_size == beside.ranks:
            nodes = beside.nodes
            note(f"--nodes {nodes}, from {beside.path.name}")
    if not path.exists():
        raise BadInput(f"{str(path)!r} does not exist", fix="check the path")
    if model is None or ep_size is None:
        missing = "--model" if model is None else "--ep-size"
        raise UsageError(
            "a file of an engine says neither its model nor its ranks",
            where=missing,
            fix=f"add {missing}",
        )
    shapes = load_model(model)
    deployment = Deployment(
        shapes.name, shapes.layers, shapes.moe_layers, shapes.experts, ep_size, nodes or 1, redundant
    )
    found = list(check_file(path, wanted, deployment).findings)
    if beside is not None:
        found += sidecar_findings(beside, engine, ep_size, nodes or 1)
    return found
