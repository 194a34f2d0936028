"""The files of SGLang's expert distribution recorder, and what all its modes share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..model import MoEModel
from .physical import check_map
from .torch_file import load_torch_file

Dump: TypeAlias = tuple[Path, dict[str, Any]]


def dump_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files, and those of the folders. Raises BadInput for an empty folder."""
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(path.glob("*.pt")) if path.is_dir() else [path]
        if not found:
            raise BadInput(f"folder {str(path)!r} holds no .pt files", fix="name the folder of the dumps")
        files += found
    return files


def load_dump(path: Path) -> Dump:
    """Load one file. Raises BadInput where it is no mapping, and as `load_torch_file` does."""
    data = load_torch_file(path)
    if not isinstance(data, dict):
        raise BadInput(f"{str(path)!r} holds no mapping, so it is no dump of SGLang's recorder")
    return path, {str(key): value for key, value in data.items()}


def hidden_rows(shape: tuple[int, ...], model: MoEModel, where: str) -> NDArray[np.int64]:
    """Return the rows of the MoE layers among rows of all layers. Raises BadInput where they are not all."""
    if shape[0] != model.layers:
        only_moe = shape[0] == len(model.moe_layers)
        raise BadInput(
            f"there are {shape[0]} layer rows, SGLang writes one for each of the {model.layers} hidden "
            f"layers of {model.name}" + (" (these look like its MoE layers alone)" if only_moe else ""),
            where=where,
            fix="name the model that was recorded",
        )
    return np.array(model.moe_layers, dtype=np.int64)


def recorded_map(dumps: list[Dump], model: MoEModel) -> NDArray[Any]:
    """Return the one map [layers, R] of all files. Raises BadInput where they disagree."""
    first, dump = dumps[0]
    slots = np.asarray(dump["last_physical_to_logical_map"])
    check_map(slots, model.experts, str(first))
    hidden_rows(slots.shape, model, str(first))
    for path, other in dumps[1:]:
        if not np.array_equal(slots, np.asarray(other["last_physical_to_logical_map"])):
            raise BadInput(
                "the ranks' maps of physical to logical experts differ",
                where=f"{first}, {path}",
                fix="import the files of one recording, made without rebalancing",
            )
    return slots


def integer(record: dict[str, Any], key: str, where: str) -> int:
    """Return a whole number of a record. Raises BadInput where it is missing or none."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"key {key!r} must be a whole number, not {value!r}", where=where)
    return value
