"""What a file is by its first bytes, whatever it is called, and what to do with one of another kind."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final, Literal

from ...common.errors import BadInput
from ...common.files import require_file

Kind = Literal["trace", "archive", "counts", "array", "torch", "plan", "json"]

#: How each kind is called.
WORDS: Final[dict[Kind, str]] = {
    "trace": "a Parquet file, as traces are",
    "archive": "a numpy archive (.npz)",
    "counts": "a file of counts (.npz)",
    "array": "a numpy array (.npy)",
    "torch": "a PyTorch file (.pt)",
    "plan": "a plan of moeplan",
    "json": "JSON",
}
_HEAD_BYTES: Final = 4096
_PLAN: Final = b'"moeplan.plan"'
#: Members of an archive that moeplan itself wrote counts into.
_COUNTS: Final = {"counts.npy", "header.npy"}


def kind_of(path: str | Path) -> Kind | None:
    """Return what a file is; None where it is none of these, or cannot be read."""
    try:
        require_file(path)
        with Path(path).open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, BadInput):
        return None
    if head.startswith(b"PAR1"):
        return "trace"
    if head.startswith(b"\x93NUMPY"):
        return "array"
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith((b"{", b"[")):
        return None
    return "plan" if text.startswith(b"{") and _PLAN in text else "json"


def _archive(path: str | Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (OSError, zipfile.BadZipFile):  # cut off: its reader says so
        return "archive"
    if any(member.endswith("data.pkl") for member in members):
        return "torch"
    return "counts" if set(members) >= _COUNTS else "archive"


def require_trace(path: str | Path) -> None:
    """Raise BadInput on a file that is known to be something else than a trace; it says what to do with it.

    Files of no known kind pass: what reads traces says what is wrong with them.
    """
    kind, name = kind_of(path), str(path)
    if kind is None or kind == "trace":
        return
    imported = f"moeplan trace import {name} --model MODEL -o {Path(path).stem}.parquet"
    fixes: dict[Kind, str] = {
        "archive": imported,
        "array": f"choices of experts: {imported}; counts [layers, experts]: plan from them with --load",
        "counts": "plan from them with --load, on a GPU cluster",
        "torch": f"{imported}, where an engine recorded it",
        "plan": "name the trace (.parquet) that was planned on",
        "json": f"{imported}, where an engine recorded it",
    }
    raise BadInput(f"{name!r} is {WORDS[kind]}, no trace", allowed="traces (.parquet)", fix=fixes[kind])


def require_plan(path: str | Path) -> None:
    """Raise BadInput on a file that is known to be something else than JSON, which plans are."""
    kind = kind_of(path)
    if kind not in (None, "plan", "json"):
        raise BadInput(
            f"{str(path)!r} is {WORDS[kind]}, no plan",
            allowed="plans (.json)",
            fix="name a plan; moeplan plan makes one",
        )
