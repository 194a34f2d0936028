"""The trace on disk: header and columns of both format versions, and experts as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput
from .checks import DROPPED

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 2
ROW_GROUP_ROWS: Final = 65_536
#: Columns with one number per token, in the order of the file; the last two are optional.
PLAIN_COLUMNS: Final = ("request", "position", "step", "phase")
METADATA_KEY: Final = b"moeplan.trace"
_READABLE: Final = (1, 2)
_INT32_MAX: Final = 2**31 - 1
_MOST_EXPERTS: Final = int(np.iinfo(np.int16).max)


class Described(Protocol):
    """What every trace says of itself, in memory or on disk."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Absolute layer ids."""

    @property
    def num_experts(self) -> int:
        """E, the experts of a layer."""

    @property
    def top_k(self) -> int:
        """K, the experts of a token."""

    @property
    def source(self) -> str:
        """Where the choices come from, for people."""


@dataclass(frozen=True, kw_only=True)
class TraceHeader:
    """The JSON object under the metadata key `moeplan.trace`.

    - `version`: 1 (one wide column) or 2 (one column per layer); `id_bytes`: bytes of an expert id.
    - The rest as in `RoutingTrace`.
    """

    model: str
    layers: tuple[int, ...]
    num_experts: int
    top_k: int
    source: str
    version: int = FORMAT_VERSION
    id_bytes: int = 2

    @property
    def id_type(self) -> np.dtype[Any]:
        """How ids are stored: uint8, or int16 in little-endian order."""
        return np.dtype(np.uint8) if self.id_bytes == 1 else np.dtype("<i2")

    @property
    def holds_dropped(self) -> bool:
        """Whether some code is left to stand for a dropped expert."""
        return self.id_bytes == 2 or self.num_experts < 256

    @property
    def dropped_code(self) -> int:
        """What stands for a dropped expert; no code at all where none is left."""
        if self.id_bytes == 2:
            return DROPPED
        return 255 if self.holds_dropped else 256

    def encode(self, experts: NDArray[np.int16]) -> NDArray[Any]:
        """Ids as they are stored. Raises BadInput where one was dropped and no code is left for that."""
        if not self.holds_dropped and (experts == DROPPED).any():
            raise BadInput(
                f"one byte cannot hold dropped experts beside {self.num_experts} experts",
                where="a dropped expert (-1) in a trace that was begun without",
                fix="begin the trace with dropped=True",
            )
        return experts.astype(self.id_type)

    def decode(self, codes: NDArray[Any]) -> NDArray[np.int16]:
        """Ids from how they are stored, a dropped one as -1."""
        ids = codes.astype(np.int16)
        if self.id_bytes == 1 and self.holds_dropped:
            ids[codes == self.dropped_code] = DROPPED
        return ids

    def to_json(self) -> str:
        """The header as it is written."""
        fields = {
            "version": self.version,
            "model": self.model,
            "layers": list(self.layers),
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "source": self.source,
            "id_bytes": self.id_bytes,
        }
        return json.dumps(fields, sort_keys=True)


def header_of(trace: Described, *, dropped: bool) -> TraceHeader:
    """The header to write: ids in the fewest bytes, with room for dropped experts where there may be some."""
    small = trace.num_experts <= 255 or (trace.num_experts == 256 and not dropped)
    return TraceHeader(
        model=trace.model,
        layers=trace.layers,
        num_experts=trace.num_experts,
        top_k=trace.top_k,
        source=trace.source,
        id_bytes=1 if small else 2,
    )


def check_axes(layers: tuple[int, ...], num_experts: int, top_k: int) -> None:
    """Raise BadInput unless layer ids ascend and top-k of that many experts is possible."""
    if list(layers) != sorted(set(layers)) or min(layers, default=-1) < 0:
        raise BadInput(f"layer ids must be distinct, ascending and not negative: {list(layers)}")
    if not 1 <= top_k <= num_experts <= _MOST_EXPERTS:
        raise BadInput(
            f"top-{top_k} of {num_experts} experts is not possible",
            allowed=f"1 <= top-k <= experts <= {_MOST_EXPERTS}",
        )


def read_header(metadata: Mapping[bytes, bytes], path: Path) -> TraceHeader:
    """Read the header of either version. Raises BadInput where it is missing, damaged or of a later one."""
    if METADATA_KEY not in metadata:
        raise BadInput(
            f"{str(path)!r} is a Parquet file, but no trace of moeplan",
            where="metadata key 'moeplan.trace' is missing",
            fix="make a trace with moeplan trace import",
        )
    try:
        fields = json.loads(metadata[METADATA_KEY])
        version = fields["version"]
        header = TraceHeader(
            version=version if version in _READABLE else 0,
            model=str(fields["model"]),
            layers=tuple(int(layer) for layer in fields["layers"]),
            num_experts=int(fields["num_experts"]),
            top_k=int(fields["top_k"]),
            source=str(fields["source"]),
            id_bytes=int(fields["id_bytes"]) if version == 2 else 2,
        )
        if not 1 <= len(header.layers) * header.top_k <= _INT32_MAX:
            raise ValueError(f"{len(header.layers)} layers and top-{header.top_k}")
        if header.id_bytes not in (1, 2) or (header.id_bytes == 1 and header.num_experts > 256):
            raise ValueError(f"{header.id_bytes} bytes for an id of {header.num_experts} experts")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(
            f"trace {str(path)!r} has a damaged header: {error}",
            where="metadata key 'moeplan.trace'",
            fix="make the trace anew with moeplan trace import",
        ) from error
    if header.version == 0:
        raise BadInput(
            f"trace {str(path)!r} has format version {version}",
            allowed=f"version {' or '.join(map(str, _READABLE))}",
            fix="make the trace anew with moeplan trace import, or use the moeplan that wrote it",
        )
    try:
        check_axes(header.layers, header.num_experts, header.top_k)
    except BadInput as error:
        raise BadInput(f"trace {str(path)!r}: {error.what}", allowed=error.allowed) from error
    return header


def layer_columns(header: TraceHeader, what: str, layers: tuple[int, ...]) -> list[str]:
    """Names of the columns that hold `what` ("experts" or "weights") of these layers."""
    return [what] if header.version == 1 else [f"{what}_{layer}" for layer in layers]


def column_types(header: TraceHeader) -> dict[str, pa.DataType]:
    """All columns that a trace may have, in the order of the file."""
    import pyarrow as pa

    width = len(header.layers) * header.top_k
    if header.version == 1:
        wide = {"experts": pa.list_(pa.int16(), width), "weights": pa.list_(pa.float32(), width)}
    else:
        wide = {
            name: pa.binary(header.top_k * size)
            for what, size in (("experts", header.id_bytes), ("weights", 4))
            for name in layer_columns(header, what, header.layers)
        }
    plain = {name: pa.int8() if name == "phase" else pa.int32() for name in PLAIN_COLUMNS}
    return {**wide, **plain}


def check_schema(schema: pa.Schema, header: TraceHeader, path: Path) -> tuple[str, ...]:
    """Optional columns that are there; raises BadInput where one is missing or of another type."""
    types = column_types(header)
    weights = layer_columns(header, "weights", header.layers)
    optional = {"weights": weights, "step": ["step"], "phase": ["phase"]}
    present = tuple(name for name, columns in optional.items() if set(columns) & set(schema.names))
    absent = {column for name, columns in optional.items() if name not in present for column in columns}
    missing = [name for name in types if name not in schema.names and name not in absent]
    if missing:
        raise BadInput(
            f"trace {str(path)!r} has no column {missing[0]!r}",
            allowed="experts, request, position; optionally weights, step, phase",
            fix="make the trace anew with moeplan trace import",
        )
    for name, kind in types.items():
        if name in schema.names and schema.field(name).type != kind:
            raise BadInput(
                f"trace {str(path)!r}: column {name!r} has the type {schema.field(name).type}",
                allowed=str(kind),
                fix="make the trace anew with moeplan trace import",
            )
    return present
