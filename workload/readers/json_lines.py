"""JSON and JSON Lines: one value, or one a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from ...common.errors import BadInput
from ...common.files import read_text


def read_json_lines(path: str | Path) -> list[tuple[int, Any]]:
    """Return (line number, value): the items of one JSON list, one JSON value, or a value for every line.

    NaN and Infinity, which are no JSON, are refused. Raises BadInput that names file and line.
    """
    path = Path(path)
    text = read_text(path, "JSON file")
    try:
        whole = _parse(text)
    except (ValueError, RecursionError):
        lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
        return [(number, _line(line, number, path)) for number, line in lines]
    return [(1, item) for item in whole] if isinstance(whole, list) else [(1, whole)]


def _line(text: str, number: int, path: Path) -> Any:
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise BadInput(f"{str(path)!r} is not JSON: {reason}", where=f"line {number}") from error


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
