"""Routing traces: which experts every token chose, in every MoE layer; Parquet on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import fingerprint
from .checks import check_choices, check_column, check_weights
from .model import MoEModel
from .trace_format import ROW_GROUP_ROWS, Described, check_axes

PHASES: Final = ("prefill", "think", "answer")
_INT32_MAX: Final = 2**31 - 1

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, eq=False, kw_only=True)
class RoutingTrace:
    """Choices of T tokens in L MoE layers with top-K routing.

    - `experts` int16 [T, L, K]: logical expert ids, distinct within one token and layer; -1 in the place of
      an expert that was dropped (`workload.pruning`), never of all experts of a token and layer.
    - `weights` float32 [T, L, K]: router probabilities, not negative (0 is legal), or None.
    - `request` int32 [T] and `position` int32 [T]: whose token it is, and which of that request.
    - `step` int32 [T]: decode step of the recording engine, or None.
    - `phase` int8 [T]: index into `PHASES`, or None.
    - `layers`: absolute layer ids of axis L; `num_experts`: E; `top_k`: K.
    - `model`: name of the model; `source`: where the choices come from, for people.

    Rows are in the order of recording. On disk (format version 2) it is one Parquet file with a row per
    token, in row groups of 65,536 rows: a column `experts_<layer>` for every layer, so that layers can be
    read one by one, holding the K ids as bytes (one byte each where that is enough, 255 for a dropped
    expert; otherwise two, little-endian, -1 for a dropped one); optionally `weights_<layer>`, K
    little-endian float32; `request`, `position`, `step` (int32; step optional), `phase` (int8; optional).
    Under the metadata key `moeplan.trace` lies a JSON object with `version`, `model`, `layers`,
    `num_experts`, `top_k`, `source` and `id_bytes`. Version 1, which is still read, has one column
    `experts` (fixed-size list of L*K int16, K fastest) and one `weights` (the same of float32).

    Construction checks everything and raises BadInput naming row and layer; arrays are read-only.
    """

    experts: NDArray[np.int16]
    weights: NDArray[np.float32] | None = None
    request: NDArray[np.int32]
    position: NDArray[np.int32]
    step: NDArray[np.int32] | None = None
    phase: NDArray[np.int8] | None = None
    model: str
    layers: tuple[int, ...]
    num_experts: int
    top_k: int
    source: str

    def __post_init__(self) -> None:
        shape = self.experts.shape
        _check_shapes(self)
        for first in range(0, shape[0], ROW_GROUP_ROWS):
            rows = slice(first, first + ROW_GROUP_ROWS)
            check_choices(self.experts[rows], self.layers, self.num_experts, first_row=first)
            if self.weights is not None:
                check_weights(self.weights[rows], self.experts[rows], self.layers, first_row=first)
        self._freeze("experts", self.experts, np.int16)
        if self.weights is not None:
            self._freeze("weights", self.weights, np.float32)
        for name, kind in (
            ("request", np.int32),
            ("position", np.int32),
            ("step", np.int32),
            ("phase", np.int8),
        ):
            values = getattr(self, name)
            if values is not None:
                check_column(name, values, shape[0], len(PHASES) - 1 if name == "phase" else _INT32_MAX)
                self._freeze(name, values, kind)

    @property
    def tokens(self) -> int:
        """T, the number of rows."""
        return int(self.experts.shape[0])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all arrays, layers, expert count and the model's name; not over `source`."""
        columns = (self.experts, self.weights, self.request, self.position, self.step, self.phase)
        return fingerprint(self.model, self.layers, self.num_experts, self.top_k, *columns)

    def take(self, rows: NDArray[np.int64]) -> RoutingTrace:
        """The trace of these rows, in this order."""
        return replace(
            self,
            experts=self.experts[rows],
            weights=None if self.weights is None else self.weights[rows],
            request=self.request[rows],
            position=self.position[rows],
            step=None if self.step is None else self.step[rows],
            phase=None if self.phase is None else self.phase[rows],
        )

    def _freeze(self, name: str, values: NDArray[Any], kind: type[np.generic]) -> None:
        array = np.ascontiguousarray(values, dtype=kind).view()
        array.flags.writeable = False
        object.__setattr__(self, name, array)


def _check_shapes(trace: RoutingTrace) -> None:
    """Check what the header says against the arrays' shapes and kinds."""
    shape = trace.experts.shape
    if len(shape) != 3:
        raise BadInput(f"'experts' must have three axes [tokens, layers, top-k], not {len(shape)}")
    if trace.experts.dtype.kind not in "iu":
        raise BadInput(f"'experts' must hold whole numbers, not {trace.experts.dtype}")
    if shape[0] == 0:
        raise BadInput("the trace holds no tokens")
    if shape[1:] != (len(trace.layers), trace.top_k):
        raise BadInput(
            f"'experts' has {shape[1]} layers and top-{shape[2]}, "
            f"but {len(trace.layers)} layers and top-{trace.top_k} are declared"
        )
    check_axes(trace.layers, trace.num_experts, trace.top_k)
    if trace.weights is not None and trace.weights.shape != shape:
        raise BadInput(f"'weights' must have the shape of 'experts', {shape}, not {trace.weights.shape}")
    if trace.weights is not None and trace.weights.dtype.kind != "f":
        raise BadInput(f"'weights' must hold floating-point numbers, not {trace.weights.dtype}")


def check_model(trace: Described, model: MoEModel) -> None:
    """Raise BadInput unless the trace fits the model: experts, top-k, and layers that are MoE layers.

    A trace may hold a part of the model's MoE layers. The names need not agree, so that a fine-tuned
    model's trace can be planned with its base model.
    """
    strangers = sorted(set(trace.layers) - set(model.moe_layers))
    differences = []
    if trace.num_experts != model.experts:
        differences.append(f"the trace has {trace.num_experts} experts, the model {model.experts}")
    if trace.top_k != model.top_k:
        differences.append(f"the trace has top-{trace.top_k}, the model top-{model.top_k}")
    if strangers:
        differences.append(f"layer {strangers[0]} of the trace is no MoE layer of the model")
    if differences:
        recorded = f" of {trace.model}" if trace.model != model.name else ""
        raise BadInput(
            f"the trace{recorded} does not fit {model.name}: {'; '.join(differences)}",
            allowed=f"{model.experts} experts, top-{model.top_k}, layers out of {_ranges(model.moe_layers)}",
            fix="name the model that the trace was recorded from, or record a trace of this one",
        )


def _ranges(layers: tuple[int, ...]) -> str:
    if layers == tuple(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]} to {layers[-1]}"
    return ", ".join(map(str, layers))


def write_trace(trace: RoutingTrace, path: str | Path) -> None:
    """Write Parquet, atomically and with the same bytes for the same trace.

    Raises BadInput where `path` cannot be written.
    """
    from .trace_writer import has_dropped, write_blocks

    write_blocks([trace], path, dropped=has_dropped(trace))


def read_trace(path: str | Path) -> RoutingTrace:
    """Read and check a trace: a file, or a folder of files (see `stream.open_trace`).

    Raises BadInput where a file is missing, truncated, no trace of moeplan, of another format
    version, lacks a column, or holds impossible choices (row and layer are named).
    """
    from .stream import open_trace

    return open_trace(path).read()


def with_file(path: Path, build: Callable[[], ResultT]) -> ResultT:
    """Do something with a trace of a file; where that raises BadInput, let it name the file too."""
    try:
        return build()
    except BadInput as error:
        raise BadInput(
            f"trace {str(path)!r}: {error.what}", where=error.where, allowed=error.allowed, fix=error.fix
        ) from error
