"""Finished points in a folder, so that a study goes on where it was stopped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from ...common.errors import BadInput
from ...common.files import fingerprint, read_text, write_text
from ..compare.cell import code
from .point import Failed, Finished, Measured, Point


class Store:
    """A file for every measured point, under a key of the question and of the code that answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, point: Point) -> Finished | None:
        """Return a measured point, or None. Raises BadInput where its file is damaged."""
        path = self._path(point)
        if not path.is_file():
            return None
        try:
            return Finished(point, Measured(**json.loads(read_text(path, "measured point"))["outcome"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{str(path)!r} is no measured point: {error}", fix="delete it; it is measured again"
            ) from error

    def write(self, finished: Finished) -> None:
        """Keep a measured point; a failed one is tried again the next time."""
        if isinstance(finished.outcome, Failed):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot make the folder {str(self.folder)!r}: {error.strerror}") from error
        row = {"point": asdict(finished.point), "outcome": asdict(finished.outcome)}
        write_text(self._path(finished.point), json.dumps(row, indent=1) + "\n")

    def _path(self, point: Point) -> Path:
        key = fingerprint(code(), *asdict(point).values()).removeprefix("sha256:")
        return self.folder / f"{key}.json"
