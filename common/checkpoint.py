"""A work folder: what a long job has finished, kept piece by piece, so that the same job can go on later.

The folder holds `inputs.json`, which says what the job was asked, and a file for every finished piece, each
written atomically: whatever ends the job, and a full disk too, a piece is there whole or not at all. A lock
that the operating system takes back when the process ends keeps two jobs out of one folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .errors import BadInput
from .files import read_text, write_text

FORMAT: Final = "moeplan.work"
_EMPTY: Final = {"inputs.json", "lock"}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class WorkFolder:
    """The finished pieces of one job. Open it with `open_work`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> str | None:
        """Return a finished piece, or None where it is not finished."""
        path = self._path(name)
        return read_text(path, "finished piece") if path.is_file() else None

    def keep(self, name: str, text: str) -> None:
        """Keep a finished piece. Raises BadInput where it cannot be written; what was kept before stays."""
        write_text(self._path(name), text)

    def discard(self) -> None:
        """Delete the folder: the job is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a piece")
        return self.folder / f"{name}.json"


@contextmanager
def open_work(folder: Path, inputs: Mapping[str, str], *, fresh: bool = False) -> Iterator[WorkFolder]:
    """Open a job's folder, make it where it is missing, and hold it alone until the block ends.

    `inputs` names everything that the result depends on. With `fresh`, what an earlier job left is deleted.
    Raises BadInput where another process holds the folder, where its job had other inputs (which are named),
    or where it is no work folder.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot make the work folder {str(folder)!r}: {error.strerror}", fix="name another with --work"
        ) from error
    with _alone(folder):
        if fresh:
            for path in folder.glob("*.json"):
                path.unlink()
        _check_inputs(folder, dict(inputs))
        try:
            yield WorkFolder(folder)
        finally:
            if made and folder.is_dir() and {path.name for path in folder.iterdir()} <= _EMPTY:
                shutil.rmtree(folder, ignore_errors=True)  # nothing was finished: nothing is left behind


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"another process works in {str(folder)!r}",
                where=f"process {os.pread(lock, 32, 0).decode(errors='replace') or 'unknown'}",
                fix="wait for it, or name another folder with --work",
            ) from error
        with suppress(OSError):  # who holds it is a kindness to readers, nothing depends on it
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _check_inputs(folder: Path, inputs: dict[str, str]) -> None:
    path = folder / "inputs.json"
    if not path.is_file():
        strangers = [p.name for p in folder.iterdir() if p.name != "lock"]
        if strangers:
            raise BadInput(
                f"{str(folder)!r} is no work folder of moeplan",
                where=f"it holds {sorted(strangers)[0]!r}",
                fix="name another with --work",
            )
        write_text(path, json.dumps({"format": FORMAT, "inputs": inputs}, indent=1) + "\n")
        return
    before = _read_inputs(path)
    changed = [name for name in {**before, **inputs} if before.get(name) != inputs.get(name)]
    if changed:
        raise BadInput(
            f"the job in {str(folder)!r} was begun with other inputs",
            where="; ".join(
                f"{name}: then {before.get(name, 'none')}, now {inputs.get(name, 'none')}" for name in changed
            ),
            fix="give the same inputs to go on, or begin anew with --fresh",
        )


def _read_inputs(path: Path) -> dict[str, str]:
    try:
        data = json.loads(read_text(path, "work folder"))
        if data["format"] != FORMAT:
            raise ValueError
        return {str(name): str(value) for name, value in data["inputs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{str(path)!r} does not say what the job was asked", fix="begin anew with --fresh"
        ) from error
