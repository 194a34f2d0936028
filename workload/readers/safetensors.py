"""The safetensors format, as far as counts need it: whole numbers and floats, read without the library.

Layout: 8 bytes, the header's length N as a little-endian number; N bytes of JSON that map names to
`dtype`, `shape` and `data_offsets` [begin, end) into the rest of the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ...common.files import require_file

_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "I8": "<i1",
        "U8": "<u1",
        "I16": "<i2",
        "U16": "<u2",
        "I32": "<i4",
        "U32": "<u4",
        "I64": "<i8",
        "U64": "<u8",
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
    }
)
_LARGEST_HEADER: Final = 100_000_000  # the format's own limit


def read_safetensors(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read all tensors. Raises BadInput where the file is missing, cut, or not what its header says."""
    path = Path(path)
    require_file(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {str(path)!r}: {error.strerror}", fix="check the path") from error
    length = int.from_bytes(content[:8], "little") if len(content) >= 8 else _LARGEST_HEADER + 1
    if length > min(_LARGEST_HEADER, len(content) - 8):
        raise _damaged(path, "its header is longer than the file")
    try:
        header = json.loads(content[8 : 8 + length])
        entries = {str(name): entry for name, entry in header.items() if name != "__metadata__"}
        data = memoryview(content)[8 + length :]
        return {name: _tensor(data, entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, str(error)) from error


def _tensor(data: memoryview, entry: Any) -> NDArray[Any]:
    kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _KINDS:
        raise ValueError(f"a tensor of kind {kind!r} holds no counts")
    if not all(isinstance(size, int) and size >= 0 for size in (*shape, begin, end)):
        raise ValueError(f"impossible shape {shape} or place {begin} to {end}")
    dtype = np.dtype(_KINDS[kind])
    if end > len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {begin} to {end} cannot hold {kind} of shape {shape}")
    return np.frombuffer(data[begin:end], dtype=dtype).reshape(shape)


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{str(path)!r} is not a whole safetensors file: {why}", fix="copy it again")
