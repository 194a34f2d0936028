"""Routing traces: which experts every token chose, in every MoE layer; Parquet on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from ..common.files import atomic_path, fingerprint
from .checks import check_choices, check_column, check_weights
from .model import MoEModel

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 1
ROW_GROUP_ROWS: Final = 65_536
PHASES: Final = ("prefill", "think", "answer")
_METADATA_KEY: Final = b"moeplan.trace"
_INT32_MAX: Final = 2**31 - 1


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

    Rows are in the order of recording. On disk it is one Parquet file with a row per token: columns
    `experts` (fixed-size list of L*K int16, K fastest), `weights` (the same of float32; optional),
    `request`, `position`, `step` (int32; step optional), `phase` (int8; optional), in row groups of
    65,536 rows, and under the metadata key `moeplan.trace` a JSON object with `version`, `model`,
    `layers`, `num_experts`, `top_k` and `source`.

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
    if list(trace.layers) != sorted(set(trace.layers)) or min(trace.layers, default=-1) < 0:
        raise BadInput(f"layer ids must be distinct, ascending and not negative: {list(trace.layers)}")
    if not 1 <= trace.top_k <= trace.num_experts <= np.iinfo(np.int16).max:
        raise BadInput(
            f"top-{trace.top_k} of {trace.num_experts} experts is not possible",
            allowed=f"1 <= top-k <= experts <= {np.iinfo(np.int16).max}",
        )
    if trace.weights is not None and trace.weights.shape != shape:
        raise BadInput(f"'weights' must have the shape of 'experts', {shape}, not {trace.weights.shape}")
    if trace.weights is not None and trace.weights.dtype.kind != "f":
        raise BadInput(f"'weights' must hold floating-point numbers, not {trace.weights.dtype}")


def check_model(trace: RoutingTrace, model: MoEModel) -> None:
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = {
        "version": FORMAT_VERSION,
        "model": trace.model,
        "layers": list(trace.layers),
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
        "source": trace.source,
    }
    types = _column_types(len(trace.layers) * trace.top_k)
    columns = {name: getattr(trace, name) for name in types if getattr(trace, name) is not None}
    schema = pa.schema(
        [pa.field(name, types[name], nullable=False) for name in columns],
        metadata={_METADATA_KEY: json.dumps(header, sort_keys=True)},
    )
    arrays = [_to_arrow(values, types[name]) for name, values in columns.items()]
    with atomic_path(path) as temporary:
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=schema),
            temporary,
            row_group_size=ROW_GROUP_ROWS,
            compression="zstd",
            write_page_checksum=True,
        )


def _column_types(width: int) -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "experts": pa.list_(pa.int16(), width),
        "weights": pa.list_(pa.float32(), width),
        "request": pa.int32(),
        "position": pa.int32(),
        "step": pa.int32(),
        "phase": pa.int8(),
    }


def _to_arrow(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values, type=kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind)


def read_trace(path: str | Path) -> RoutingTrace:
    """Read and check a trace.

    Raises BadInput where the file is missing, truncated, no trace of moeplan, of another format
    version, lacks a column, or holds impossible choices (row and layer are named).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise BadInput(f"trace {str(path)!r} does not exist", fix="check the path")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            header = _read_header(file.schema_arrow.metadata or {}, path)
            names = _check_schema(file.schema_arrow, header, path)
            table = file.read(columns=names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(
            f"trace {str(path)!r} is not a whole Parquet file: {str(error).splitlines()[0]}",
            fix="copy it again, or make it anew with moeplan trace import",
        ) from error
    shape = (table.num_rows, len(header["layers"]), header["top_k"])
    arrays: dict[str, Any] = {name: _to_numpy(table.column(name), name, path) for name in names}
    arrays |= {name: arrays[name].reshape(shape) for name in ("experts", "weights") if name in arrays}
    return with_file(path, lambda: RoutingTrace(**arrays, **header))


def with_file(path: Path, build: Callable[[], RoutingTrace]) -> RoutingTrace:
    """Build a trace; where that raises BadInput, let it name the file too."""
    try:
        return build()
    except BadInput as error:
        raise BadInput(
            f"trace {str(path)!r}: {error.what}", where=error.where, allowed=error.allowed, fix=error.fix
        ) from error


def _read_header(metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Any]:
    if _METADATA_KEY not in metadata:
        raise BadInput(
            f"{str(path)!r} is a Parquet file, but no trace of moeplan",
            where="metadata key 'moeplan.trace' is missing",
            fix="make a trace with moeplan trace import",
        )
    try:
        header = json.loads(metadata[_METADATA_KEY])
        version = header["version"]
        fields = {
            "model": str(header["model"]),
            "layers": tuple(int(layer) for layer in header["layers"]),
            "num_experts": int(header["num_experts"]),
            "top_k": int(header["top_k"]),
            "source": str(header["source"]),
        }
        if not 1 <= len(header["layers"]) * int(header["top_k"]) <= _INT32_MAX:
            raise ValueError(f"{len(header['layers'])} layers and top-{header['top_k']}")
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"trace {str(path)!r} has a damaged header: {error}",
            where="metadata key 'moeplan.trace'",
            fix="make the trace anew with moeplan trace import",
        ) from error
    if version != FORMAT_VERSION:
        raise BadInput(
            f"trace {str(path)!r} has format version {version}",
            allowed=f"version {FORMAT_VERSION}",
            fix="make the trace anew with moeplan trace import, or use the moeplan that wrote it",
        )
    return fields


def _check_schema(schema: pa.Schema, header: dict[str, Any], path: Path) -> list[str]:
    """Names of the columns to read; raises BadInput where one is missing or of another type."""
    types = _column_types(len(header["layers"]) * header["top_k"])
    missing = [name for name in ("experts", "request", "position") if name not in schema.names]
    if missing:
        raise BadInput(
            f"trace {str(path)!r} has no column {missing[0]!r}",
            allowed="experts, request, position; optionally weights, step, phase",
            fix="make the trace anew with moeplan trace import",
        )
    names = [name for name in types if name in schema.names]
    for name in names:
        if schema.field(name).type != types[name]:
            raise BadInput(
                f"trace {str(path)!r}: column {name!r} has the type {schema.field(name).type}",
                allowed=str(types[name]),
                fix="make the trace anew with moeplan trace import",
            )
    return names


def _to_numpy(column: pa.ChunkedArray, name: str, path: Path) -> NDArray[Any]:
    import pyarrow as pa

    values = column.combine_chunks()
    nulls = values.null_count
    if pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
        nulls += values.null_count
    if nulls:
        raise BadInput(f"trace {str(path)!r}: column {name!r} has {nulls} empty values")
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array
