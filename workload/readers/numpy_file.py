"""Numpy files (.npy, .npz) that others wrote: damage and pickles end in BadInput."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ...common.files import require_file
from .kinds import WORDS, kind_of


def read_archive(path: Path, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read those of `keys` that an .npz archive has. Raises BadInput for damage and for pickled objects."""
    archive = _open(path, "a whole numpy archive (.npz)")
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise BadInput(f"{str(path)!r} holds one array, not an archive", fix="save it with numpy.savez")
    with archive:
        return {key: _read_key(archive, key, path) for key in archive.files if key in keys}


def read_array(path: Path) -> NDArray[Any]:
    """Read the one array of an .npy file. Raises BadInput for damage and for pickled objects."""
    array = _open(path, "a whole numpy array (.npy)")
    if not isinstance(array, np.ndarray):
        raise BadInput(f"{str(path)!r} is an archive, not one array", fix="save it with numpy.save")
    return array


def decode_array(content: bytes, where: str) -> NDArray[Any]:
    """Read the bytes of an .npy file. Raises BadInput that names `where`."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # damage has many kinds; a claimed shape can exceed memory
        raise BadInput(f"{where}: not the bytes of a numpy array (.npy)") from error
    if not isinstance(array, np.ndarray):
        raise BadInput(f"{where}: an archive, not one numpy array")
    return array


def _open(path: Path, kind: str) -> Any:
    require_file(path)
    try:
        return np.load(path, allow_pickle=False)
    except Exception as error:  # numpy, zipfile and zlib answer damage with many kinds
        found = kind_of(path)
        if found not in (None, "archive", "array", "counts"):
            fix = "a trace is named with --trace" if found == "trace" else "name a file that numpy wrote"
            raise BadInput(f"{str(path)!r} is {WORDS[found]}, not {kind}", fix=fix) from error
        raise BadInput(f"{str(path)!r} is not {kind}", fix="copy it again, or save it anew") from error


def _read_key(archive: Any, key: str, path: Path) -> NDArray[Any]:
    try:
        array = archive[key]
    except Exception as error:  # see _open; ValueError for pickled objects
        raise BadInput(f"{str(path)!r}: key {key!r} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise BadInput(f"{str(path)!r}: key {key!r} is no array")
    return array
