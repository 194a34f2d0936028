"""Counted loads: how many tokens every expert got in windows of time, where no single token is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import atomic_path, fingerprint
from .load import count_experts

if TYPE_CHECKING:
    from .model import MoEModel
    from .trace import RoutingTrace

FORMAT_VERSION: Final = 1
_HEADER: Final = "header"
#: Above this a number counts no tokens, and sums and single precision would overflow.
MOST_TOKENS: Final = 1e30


@dataclass(frozen=True, eq=False, kw_only=True)
class CountLoad:
    """Tokens of every expert, in S windows of time.

    - `counts` float64 [S, L, E]: tokens by logical expert; 0 to MOST_TOKENS, not all zero.
    - `layers`: absolute ids of axis L; without a model, rows 0 to L - 1 of the array they came from.
    - `windows`: S labels, in the order of axis S; that order is time only where `source` says so.
    - `model`: name of the model, empty where unknown; `source`: where the counts come from.
    - `remarks`: what a planner should know of them, one sentence each.

    On disk it is a numpy archive with the keys `counts` [S, L, E] and `header`, a JSON object with
    `version`, `model`, `layers`, `windows`, `source` and `remarks`.

    Construction raises BadInput naming window, layer and expert; the array is read-only.
    """

    counts: NDArray[np.float64]
    layers: tuple[int, ...]
    windows: tuple[str, ...]
    model: str
    source: str
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = self.counts.shape
        if len(shape) != 3 or 0 in shape:
            raise BadInput(f"counts must have the axes [windows, layers, experts], not the shape {shape}")
        if self.counts.dtype.kind not in "iuf":
            raise BadInput(
                f"counts must be numbers, not {self.counts.dtype}", fix="save whole numbers or floats"
            )
        if shape[:2] != (len(self.windows), len(self.layers)):
            raise BadInput(
                f"counts have {shape[0]} windows and {shape[1]} layers, "
                f"but {len(self.windows)} windows and {len(self.layers)} layers are declared"
            )
        if list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise BadInput(f"layer ids must be distinct, ascending and not negative: {list(self.layers)}")
        array = np.ascontiguousarray(self.counts, dtype=np.float64).view()
        _check_values(array, self.layers, self.windows)
        array.flags.writeable = False
        object.__setattr__(self, "counts", array)

    @property
    def num_experts(self) -> int:
        """E, the number of logical experts."""
        return int(self.counts.shape[2])

    @cached_property
    def total(self) -> NDArray[np.float64]:
        """Tokens over all windows [L, E]."""
        summed: NDArray[np.float64] = self.counts.sum(axis=0)
        return summed

    @property
    def empty_layers(self) -> tuple[int, ...]:
        """Ids of the layers without a single token."""
        return tuple(layer for layer, row in zip(self.layers, self.total, strict=True) if not row.any())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the counts, layers and the model's name; not over labels and source."""
        return fingerprint(self.model, self.layers, self.counts)


def _check_values(counts: NDArray[np.float64], layers: tuple[int, ...], windows: tuple[str, ...]) -> None:
    wrong = ~((counts >= 0) & (counts <= MOST_TOKENS))
    if wrong.any():
        window, layer, expert = np.unravel_index(int(wrong.argmax()), counts.shape)
        raise BadInput(
            f"count {counts[window, layer, expert]} is no number of tokens",
            where=f"window {windows[window]!r}, layer {layers[layer]}, expert {expert}",
            allowed=f"finite numbers that are not negative, up to {MOST_TOKENS:g}",
            fix="record the counts again",
        )
    if not counts.any():
        raise BadInput("all counts are zero", fix="record while the engine serves requests")


def count_trace(trace: RoutingTrace) -> CountLoad:
    """Count a whole trace as one window."""
    return CountLoad(
        counts=count_experts(trace.experts[None], trace.num_experts).astype(np.float64),
        layers=trace.layers,
        windows=("whole trace",),
        model=trace.model,
        source=trace.source,
    )


def check_counts(load: CountLoad, model: MoEModel) -> None:
    """Raise BadInput unless the counts fit the model: its number of experts, and MoE layers of it."""
    if load.num_experts != model.experts:
        raise BadInput(
            f"the counts have {load.num_experts} experts, {model.name} has {model.experts}",
            fix="name the model that was counted",
        )
    strangers = sorted(set(load.layers) - set(model.moe_layers))
    if strangers:
        raise BadInput(
            f"layer {strangers[0]} of the counts is no MoE layer of {model.name}",
            fix="name the model that was counted",
        )


def idle_experts(counts: NDArray[np.float64]) -> str:
    """Return a remark on experts that no window and layer of [S, L, E] knows; empty where there are none.

    Counts of a single rank, mistaken for those of all, leave the experts of the others at zero.
    """
    idle = np.flatnonzero(~counts.any(axis=(0, 1)))
    if not idle.size:
        return ""
    return (
        f"{idle.size} of {counts.shape[2]} experts have no token in any layer (first: {idle[0]}); "
        "counts of one rank only look like this"
    )


def write_counts(load: CountLoad, path: str | Path) -> None:
    """Write a numpy archive, atomically and with the same bytes for the same counts.

    Raises BadInput where `path` cannot be written.
    """
    header = {
        "version": FORMAT_VERSION,
        "model": load.model,
        "layers": list(load.layers),
        "windows": list(load.windows),
        "source": load.source,
        "remarks": list(load.remarks),
    }
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, counts=load.counts, header=np.array(json.dumps(header, sort_keys=True)))


def read_counts(path: str | Path) -> CountLoad:
    """Read and check a file of `write_counts`; pickles are never loaded. Raises BadInput that names it."""
    from .readers.numpy_file import read_archive

    path = Path(path)
    arrays = read_archive(path, ("counts", _HEADER))
    if set(arrays) != {"counts", _HEADER}:
        raise BadInput(
            f"{str(path)!r} holds no counted load",
            where="keys 'counts' and 'header'",
            fix="make one with moeplan trace import",
        )
    try:
        header: Any = json.loads(str(arrays[_HEADER][()]))
        version = header["version"]
        fields: dict[str, Any] = {
            "layers": tuple(int(layer) for layer in header["layers"]),
            "windows": tuple(str(window) for window in header["windows"]),
            "model": str(header["model"]),
            "source": str(header["source"]),
            "remarks": tuple(str(remark) for remark in header["remarks"]),
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(
            f"{str(path)!r} has a damaged header: {error}",
            where="key 'header'",
            fix="make it anew with moeplan trace import",
        ) from error
    if version != FORMAT_VERSION:
        raise BadInput(
            f"counts {str(path)!r} have format version {version}", allowed=f"version {FORMAT_VERSION}"
        )
    try:
        return CountLoad(counts=arrays["counts"], **fields)
    except BadInput as error:
        raise named_file(error, path) from error


def named_file(error: BadInput, path: Path) -> BadInput:
    """Return the same complaint with the file's name before it."""
    return BadInput(f"{str(path)!r}: {error.what}", where=error.where, allowed=error.allowed, fix=error.fix)
