"""From the bytes of an engine's file to plain values; what no engine could read ends in BadInput."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from ...common.errors import BadInput
from ...common.files import read_text


def parse_json(path: Path, text: str | None = None, where: str = "") -> Any:
    """Parse one JSON value (of `path`, unless `text` is given); keys given twice and NaN are refused."""
    try:
        return json.loads(
            read_text(path) if text is None else text,
            parse_constant=_refuse_constant,
            object_pairs_hook=_distinct,
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            reason, where = error.msg, where or f"line {error.lineno}"
        else:
            reason = str(error)
        raise BadInput(f"{str(path)!r} is not JSON: {reason}", where=where) from error


def parse_json_lines(path: Path) -> list[Any]:
    """Parse a JSON value for every line that is not empty."""
    lines = enumerate(read_text(path).splitlines(), start=1)
    return [parse_json(path, line, f"line {number}") for number, line in lines if line.strip()]


def parse_yaml(path: Path) -> Any:
    """Parse YAML without aliases and without keys given twice (readers would keep the last alone)."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = read_text(path)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise BadInput(f"{str(path)!r} uses aliases", fix="write the lists in full")
        root = yaml.compose(text, Loader=loader)
        repeated = _repeated(root)
        if repeated:
            raise BadInput(f"{str(path)!r}: key {repeated!r} is given twice", fix="give it once")
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise BadInput(
            f"{str(path)!r} is not YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}", where=where
        ) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{str(path)!r} cannot be read: {type(error).__name__}") from error


def _repeated(root: Any) -> str:
    """Return a key that a mapping of the two upper levels gives twice, or nothing."""
    levels = [root, *(value for _, value in root.value)] if hasattr(root, "value") and _maps(root) else []
    for node in filter(_maps, levels):
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                return str(key.value)
            seen.add(str(key.value))
    return ""


def _maps(node: Any) -> bool:
    return type(node).__name__ == "MappingNode"


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return found
