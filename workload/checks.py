"""What the arrays of a routing trace must satisfy; every complaint names the place."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput


def check_column(name: str, values: NDArray[Any], tokens: int, largest: int) -> None:
    """Check a column [T] of whole numbers from 0 to `largest`. Raises BadInput with column and row."""
    if values.shape != (tokens,):
        raise BadInput(f"{name!r} must have one value per token, shape ({tokens},), not {values.shape}")
    if values.dtype.kind not in "iu":
        raise BadInput(f"{name!r} must hold whole numbers, not {values.dtype}")
    wrong = (values < 0) | (values > largest)
    if wrong.any():
        row = int(wrong.argmax())
        raise BadInput(
            f"{name!r} value {values[row]} is out of range", where=f"row {row}", allowed=f"0 to {largest}"
        )


#: Stands in the place of an expert that adaptive routing dropped.
DROPPED: Final = -1


def check_choices(
    experts: NDArray[Any], layers: tuple[int, ...], num_experts: int, *, first_row: int = 0
) -> None:
    """Check ids [T, L, K]: in range or dropped, distinct within a token and layer, and one at least kept.

    Raises BadInput that names row (counted from `first_row`) and absolute layer.
    """
    wrong = (experts < DROPPED) | (experts >= num_experts)
    if wrong.any():
        row, layer, place = _first(wrong)
        raise BadInput(
            f"expert id {experts[row, layer, place]} is out of range",
            where=f"row {first_row + row}, layer {layers[layer]}",
            allowed=f"0 to {num_experts - 1}, or {DROPPED} for a dropped expert",
            fix=f"check that the trace comes from a model with {num_experts} experts",
        )
    ordered = np.sort(experts, axis=-1)
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != DROPPED)
    if twice.any():
        row, layer, place = _first(twice)
        raise BadInput(
            f"expert {ordered[row, layer, place + 1]} appears twice in the choices of one token",
            where=f"row {first_row + row}, layer {layers[layer]}",
            allowed="top-k distinct experts per token and layer",
            fix="record logical expert ids, not physical slots",
        )
    idle = ordered[..., -1:] == DROPPED
    if idle.any():
        row, layer, _ = _first(idle)
        raise BadInput(
            "all experts of a token are dropped",
            where=f"row {first_row + row}, layer {layers[layer]}",
            allowed="at least one expert per token and layer",
            fix="keep the expert with the largest router weight",
        )


def check_weights(
    weights: NDArray[Any], experts: NDArray[Any], layers: tuple[int, ...], *, first_row: int = 0
) -> None:
    """Check router weights [T, L, K]: finite and not negative, and 0 where `experts` [T, L, K] is dropped.

    Raises BadInput with row and layer.
    """
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float32).max))  # true for nan as well
    if wrong.any():
        row, layer, place = _first(wrong)
        raise BadInput(
            f"router weight {weights[row, layer, place]} is not a probability",
            where=f"row {first_row + row}, layer {layers[layer]}",
            allowed="finite numbers that are not negative",
            fix="record the weights again, or leave them out",
        )
    ghost = (weights > 0) & (experts == DROPPED)
    if ghost.any():
        row, layer, place = _first(ghost)
        raise BadInput(
            f"a dropped expert has the router weight {weights[row, layer, place]}",
            where=f"row {first_row + row}, layer {layers[layer]}",
            allowed="0 where the expert is -1",
            fix="set the weights of dropped experts to 0",
        )


def _first(mask: NDArray[np.bool_]) -> tuple[int, int, int]:
    row, layer, place = np.unravel_index(int(mask.argmax()), mask.shape)
    return int(row), int(layer), int(place)
