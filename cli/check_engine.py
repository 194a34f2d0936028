"""`moeplan check --engine`: whether an engine would load a file, and as what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import UsageError

if TYPE_CHECKING:
    from ..placement.verify import Finding


def engine_findings(
    path: Path, engine: str, model: str | None, ep_size: int | None, nodes: int, redundant: int | None
) -> list[Finding]:
    """Judge a file by the rules of an engine.

    Raises UsageError where the engine is unknown, or model or number of ranks are missing; BadInput where
    the file cannot be read at all.
    """
    from ..placement.export.engines import check_file, find_engine
    from ..placement.export.layout import Deployment
    from ..workload.model import load_model

    wanted = find_engine(engine)
    if model is None or ep_size is None:
        missing = "--model" if model is None else "--ep-size"
        raise UsageError(
            "a file of an engine says neither its model nor its ranks",
            where=missing,
            fix=f"add {missing}",
        )
    shapes = load_model(model)
    deployment = Deployment(
        shapes.name, shapes.layers, shapes.moe_layers, shapes.experts, ep_size, nodes, redundant
    )
    return list(check_file(path, wanted, deployment).findings)
