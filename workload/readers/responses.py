"""Routing that serving engines return with their answers: a JSON response, or one a line.

vLLM (`--enable-return-routed-experts`): `choices[i].routed_experts`, base64 of the bytes of an .npy file
[tokens - 1, layers, top-k] of logical ids. SGLang (`return_routed_experts`): `meta_info.routed_experts`,
base64 of bare int32 numbers, whose shape follows from the model: [tokens, hidden layers, top-k].
The last token of an answer is never routed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ..model import MoEModel
from ..trace import RoutingTrace, check_model, with_file
from .numpy_file import decode_array


def read_responses(responses: list[Any], path: Path, model: MoEModel) -> RoutingTrace:
    """Build a trace with a request for every answer that carries routing.

    Raises BadInput that names response and choice where the text is no base64, the array is damaged or
    pickled, or its shape is not that of the model.
    """
    requests = [_moe_rows(array, where, model) for array, where in _arrays(responses, path, model)]
    if not requests:
        raise BadInput(
            f"{str(path)!r} holds no routing",
            allowed="choices[i].routed_experts (vLLM), or meta_info.routed_experts (SGLang)",
            fix="serve with --enable-return-routed-experts (vLLM), or ask for return_routed_experts (SGLang)",
        )
    sizes = [array.shape[0] for array in requests]
    trace = with_file(
        path,
        lambda: RoutingTrace(
            experts=np.concatenate(requests),
            request=np.repeat(np.arange(len(requests)), sizes),
            position=np.concatenate([np.arange(size) for size in sizes]),
            model=model.name,
            layers=model.moe_layers,
            num_experts=model.experts,
            top_k=model.top_k,
            source=f"routed_experts of {len(requests)} answers, {path.name}",
        ),
    )
    check_model(trace, model)
    return trace


def _arrays(responses: list[Any], path: Path, model: MoEModel) -> Iterator[tuple[NDArray[Any], str]]:
    for number, response in enumerate(responses):
        where = f"{path}, response {number}"
        if not isinstance(response, dict):
            raise BadInput("a response must be a mapping", where=where)
        choices = response.get("choices")
        for index, choice in enumerate(choices if isinstance(choices, list) else []):
            if isinstance(choice, dict) and choice.get("routed_experts") is not None:
                place = f"{where}, choice {index}"
                content = _bytes(choice["routed_experts"], place)
                yield decode_array(content, place), place
        meta = response.get("meta_info")
        if isinstance(meta, dict) and meta.get("routed_experts") is not None:
            content = _bytes(meta["routed_experts"], where)
            width = model.layers * model.top_k * 4
            if not content or len(content) % width:
                raise BadInput(
                    f"{len(content)} bytes of routed_experts",
                    where=where,
                    allowed=f"a multiple of {width}: int32 [tokens, {model.layers} layers, {model.top_k}]",
                    fix="name the model that served",
                )
            yield np.frombuffer(content, "<i4").reshape(-1, model.layers, model.top_k), where


def _bytes(text: object, where: str) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("routed_experts is no base64 text", where=where) from error


def _moe_rows(array: NDArray[Any], where: str, model: MoEModel) -> NDArray[Any]:
    """Choices [tokens, MoE layers, top-k]; engines write either all hidden layers or the MoE layers."""
    sizes = {model.layers, len(model.moe_layers)}
    if array.ndim != 3 or array.shape[1] not in sizes or array.shape[2] != model.top_k:
        raise BadInput(
            f"routed_experts has the shape {array.shape}",
            where=where,
            allowed=f"[tokens, {' or '.join(map(str, sorted(sizes)))} layers, {model.top_k}] of {model.name}",
            fix="name the model that served",
        )
    return array[:, list(model.moe_layers)] if array.shape[1] == model.layers else array
