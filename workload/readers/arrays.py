"""Plain numpy arrays: choices [T, L, K] (.npz or .npy), and counts [L, E] or [S, L, E] (.npy)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..counts import CountLoad, check_counts, named_file
from ..model import MoEModel
from ..trace import RoutingTrace, check_model, with_file
from .numpy_file import read_archive, read_array

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
    arrays = read_archive(path, _KEYS)
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


def read_plain(path: str | Path, model: MoEModel) -> RoutingTrace | CountLoad:
    """Read an .npy file: choices [T, L, K] of one request, or counts [L, E] or [S, L, E].

    The last axis tells which; axis L holds the model's MoE layers.
    Raises BadInput that names the file and its shape.
    """
    path = Path(path)
    array = read_array(path)
    if array.ndim == 3 and array.shape[2] == model.top_k != model.experts:
        trace = with_file(path, lambda: _build({"experts": array}, model, path.name, one_request=True))
        check_model(trace, model)
        return trace
    if array.ndim not in (2, 3) or array.shape[-1] != model.experts:
        raise BadInput(
            f"{str(path)!r} has the shape {array.shape}",
            allowed=f"counts [layers, {model.experts}] or [windows, layers, {model.experts}], "
            f"or choices [tokens, layers, {model.top_k}] of {model.name}",
            fix="name the model that was recorded",
        )
    return read_count_array(path, model=model)


def read_count_array(
    path: str | Path, layers: tuple[int, ...] | None = None, model: MoEModel | None = None
) -> CountLoad:
    """Read counts [L, E] or [S, L, E] from an .npy file.

    Axis L holds `layers`, else the model's MoE layers, else rows that are numbered from 0.
    Raises BadInput that names the file, and window, layer and expert.
    """
    path = Path(path)
    array = read_array(path)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise BadInput(
            f"{str(path)!r} has the shape {array.shape}",
            allowed="counts [layers, experts] or [windows, layers, experts]",
            fix="save an array of one of these shapes",
        )
    counts = array.reshape(-1, *array.shape[-2:])
    named = layers if layers is not None else model.moe_layers if model is not None else None
    if named is not None and len(named) != counts.shape[1]:
        raise BadInput(
            f"{str(path)!r} has {counts.shape[1]} layers, not {len(named)}",
            where=f"shape {array.shape}",
            fix="leave out dense layers; rows are the MoE layers in ascending order",
        )
    try:
        load = CountLoad(
            counts=counts,
            layers=named if named is not None else tuple(range(counts.shape[1])),
            windows=tuple(f"window {window}" for window in range(counts.shape[0])),
            model=model.name if model is not None else "",
            source=f"numpy array, {path.name}",
        )
        if model is not None:
            check_counts(load, model)
    except BadInput as error:
        raise named_file(error, path) from error
    return load


def _build(
    arrays: dict[str, NDArray[Any]], model: MoEModel, name: str, *, one_request: bool = False
) -> RoutingTrace:
    experts = arrays["experts"]
    if experts.ndim != 3:
        raise BadInput(
            f"key 'experts' must have the axes [tokens, layers, top-k], not the shape {experts.shape}"
        )
    layers = _layers(arrays, model, experts.shape[1])
    if one_request:
        arrays = {**arrays, "request": np.zeros(experts.shape[0], dtype=np.int32)}
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
