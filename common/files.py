"""Files: whole or not at all, and known by their content.

Writes go to a temporary file beside the target and are renamed over it, so that a reader, a full
disk or Ctrl-C never meets half a file. Fingerprints are SHA-256 over content, not over paths or
times, so that the same inputs carry the same fingerprint on every machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import BadInput

if TYPE_CHECKING:
    import numpy as np


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it over `path` when the block ends well.

    Raises BadInput where the folder does not exist or cannot be written. If the block raises,
    `path` stays as it was and the temporary file is gone.
    """
    target, temporary = _beside(path)
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(Path(path), error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, atomically. Raises BadInput where `path` cannot be written."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_file(path: str | Path, what: str = "file") -> None:
    """Raise BadInput that names `what` where there is no regular file to read; call it before opening.

    A folder cannot be read, and a pipe or device blocks for ever or never ends.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(f"{what} {str(path)!r} does not exist", fix="check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise _unreadable(path, what, error) from error
    if stat.S_ISDIR(mode):
        raise BadInput(
            f"{what} {str(path)!r} is no regular file: it is a folder", fix="name a file, not its folder"
        )
    if not stat.S_ISREG(mode):
        raise BadInput(
            f"{what} {str(path)!r} is no regular file: it is a pipe, socket or device",
            fix="write what it holds to a file, and name that",
        )


def read_text(path: str | Path, what: str = "file") -> str:
    """Read UTF-8 text. Raises BadInput that names `what` where it is missing, unreadable or not text."""
    require_file(path, what)
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{what} {str(path)!r} is not UTF-8 text",
            where=f"byte {error.start}",
            fix="name a text file: this one holds other bytes",
        ) from error
    except OSError as error:
        raise _unreadable(path, what, error) from error


def check_writable(path: str | Path) -> None:
    """Raise BadInput now, before hours of work, if `path` could not be written at the end."""
    _, temporary = _beside(path)
    temporary.unlink()


def _beside(path: str | Path) -> tuple[Path, Path]:
    """Return the file that `path` means, links followed, and a new empty file in the same folder."""
    target = Path(os.path.realpath(path))
    if str(path).endswith(os.sep) or target.is_dir():
        raise BadInput(f"cannot write {str(path)!r}: it is a folder", fix="name a file")
    try:
        if target.exists() and not target.is_file():
            raise BadInput(f"cannot write {str(path)!r}: it is not a regular file", fix="name a file")
        handle, name = tempfile.mkstemp(prefix=".moeplan-", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _unwritable(Path(path), error) from error
    os.close(handle)
    return target, Path(name)


def fingerprint(*parts: Any) -> str:
    """Return `sha256:<16 hex digits>` over JSON-able values and numpy arrays, in order."""
    digest = hashlib.sha256()
    for part in parts:
        if hasattr(part, "tobytes"):
            array: np.ndarray[Any, Any] = part
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
        digest.update(b"\0")
    return f"sha256:{digest.hexdigest()[:16]}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unreadable(path: str | Path, what: str, error: OSError | ValueError) -> BadInput:
    reason = getattr(error, "strerror", None) or error
    return BadInput(
        f"cannot read {what} {str(path)!r}: {reason}", fix="check the path, and that you may read it"
    )


def _unwritable(target: Path, error: OSError) -> BadInput:
    return BadInput(
        f"cannot write {str(target)!r}: {error.strerror or error}",
        fix="name a file in an existing folder that you may write to",
    )
