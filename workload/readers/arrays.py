"""Routing choices from a numpy archive (.npz)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..model import MoEModel
from ..trace import RoutingTrace, check_model, with_file

_KEYS: Final = ("experts", "weights", "request", "position", "step", "phase", "layers", "num_experts")


def read_arrays(path: str | Path, model: MoEModel) -> RoutingTrace:
    """Read an .npz archive and check that it fits `model`.

    Keys: `experts` [T, L, K] whole numbers; optional `weights` [T, L, K] floats, `request` [T],
    `position` [T], `step` [T], `phase` [T] (0 prefill, 1 think, 2 answer), `layers` [L] absolute ids,
    `num_experts` (one number). Other keys are ignored; pickled objects are never loaded.

    Without `layers` the model's MoE layers are taken, if their number fits. Without `position` the
    rows of a request are taken to be in order. Without `request` every row is a request of its own:
    its tokens count, but nothing is claimed about which of them follow each other.

    Raises BadInput naming the file and the key, or row and layer.
    """
    path = Path(path)
    arrays = _load(path)
    if "experts" not in arrays:
        raise BadInput(
            f"{str(path)!r} has no key 'experts'",
            where=f"its known keys are: {', '.join(sorted(arrays)) or 'none'}",
            allowed=", ".join(_KEYS),
            fix="save the choices [tokens, layers, top-k] under the key 'experts'",
        )
    trace = with_file(path, lambda: _build(arrays, model, path.name))
    check_model(trace, model)
    return trace


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        archive = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} does not exist", fix="check the path") from error
    except Exception as error:  # numpy, zipfile and zlib answer damage with many kinds
        raise BadInput(
            f"{str(path)!r} is not a whole numpy archive (.npz)", fix="copy it again, or save it anew"
        ) from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise BadInput(f"{str(path)!r} holds one array, not an archive", fix="save it with numpy.savez")
    with archive:
        return {key: _load_key(archive, key, path) for key in archive.files if key in _KEYS}


def _load_key(archive: Mapping[str, Any], key: str, path: Path) -> NDArray[Any]:
    try:
        array = archive[key]
    except Exception as error:  # see _load; ValueError for pickled objects
        raise BadInput(f"{str(path)!r}: key {key!r} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise BadInput(f"{str(path)!r}: key {key!r} is no array")
    return array


def _build(arrays: dict[str, NDArray[Any]], model: MoEModel, name: str) -> RoutingTrace:
    experts = arrays["experts"]
    if experts.ndim != 3:
        raise BadInput(
            f"key 'experts' must have the axes [tokens, layers, top-k], not the shape {experts.shape}"
        )
    layers = _layers(arrays, model, experts.shape[1])
    request, position = _requests(arrays, experts.shape[0])
    return RoutingTrace(
        experts=experts,
        weights=arrays.get("weights"),
        request=request,
        position=position,
        step=arrays.get("step"),
        phase=arrays.get("phase"),
        model=model.name,
        layers=layers,
        num_experts=_number(arrays, "num_experts", model.experts),
        top_k=experts.shape[2],
        source=f"numpy arrays, {name}",
    )


def _layers(arrays: dict[str, NDArray[Any]], model: MoEModel, count: int) -> tuple[int, ...]:
    if "layers" not in arrays:
        if count != len(model.moe_layers):
            raise BadInput(
                f"'experts' has {count} layers, but {model.name} has {len(model.moe_layers)} MoE layers",
                fix="add the key 'layers' with the absolute layer ids",
            )
        return model.moe_layers
    layers = arrays["layers"]
    if layers.shape != (count,) or layers.dtype.kind not in "iu":
        raise BadInput(
            f"key 'layers' must hold {count} whole numbers (one per layer of 'experts'), "
            f"not {layers.dtype} of shape {layers.shape}"
        )
    return tuple(int(layer) for layer in layers)


def _number(arrays: dict[str, NDArray[Any]], key: str, default: int) -> int:
    value = arrays.get(key)
    if value is None:
        return default
    if value.size != 1 or value.dtype.kind not in "iu":
        raise BadInput(f"key {key!r} must hold one whole number, not {value.dtype} of shape {value.shape}")
    return int(value.reshape(-1)[0])


def _requests(arrays: dict[str, NDArray[Any]], tokens: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns `request` and `position`; checks of their values are left to the trace."""
    request = arrays.get("request")
    if request is None:
        if "position" in arrays:
            raise BadInput(
                "key 'position' means nothing without 'request'", fix="add 'request', or leave both out"
            )
        return np.arange(tokens), np.zeros(tokens, dtype=np.int32)
    if "position" in arrays or request.shape != (tokens,):
        return request, arrays.get("position", request)
    order = np.argsort(request, kind="stable")
    _, start, length = np.unique(request[order], return_index=True, return_counts=True)
    position = np.empty(tokens, dtype=np.int64)
    position[order] = np.arange(tokens) - np.repeat(start, length)
    return request, position
