"""The border where files are read: strict pydantic models, and their errors in our own form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import BadInput, did_you_mean
from .files import read_text

SpecT = TypeVar("SpecT", bound="Spec")


class Spec(BaseModel):
    """A file's section: unknown keys and infinite or NaN numbers are refused, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Loader(yaml.SafeLoader):
    """YAML without aliases, which can grow a small file beyond any memory, and without repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_mapping(path: str | Path, what: str) -> dict[str, Any]:
    """Read a YAML or JSON file whose top level is a mapping. Raises BadInput with line and column."""
    text = read_text(path, what)
    try:
        data = json.loads(text) if str(path).endswith(".json") else yaml.load(text, _Loader)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{what} {str(path)!r} is not JSON: {error.msg}", where=f"line {error.lineno}"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise BadInput(f"{what} {str(path)!r} is not YAML: {problem}", where=where) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        # What the parsers let through: impossible dates and numbers, thousands of brackets.
        raise BadInput(
            f"{what} {str(path)!r} cannot be read: {type(error).__name__}",
            fix="write plain mappings, lists, numbers and texts",
        ) from error
    if not isinstance(data, dict):
        raise BadInput(
            f"{what} {str(path)!r} must be a mapping of keys to values, not {type(data).__name__}",
            fix="start from one that ships with moeplan",
        )
    return data


def parse(kind: type[SpecT], data: dict[str, Any], where: str) -> SpecT:
    """Validate `data` as `kind`. Raises one BadInput that lists every faulty key with its path."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        rows = [_sentence(kind, item) for item in error.errors(include_url=False)]
        raise BadInput(
            f"{where}: {rows[0]}" if len(rows) == 1 else f"{where}: {len(rows)} values are wrong",
            where="" if len(rows) == 1 else "\n           ".join(rows),
            fix="correct the named keys",
        ) from error


def _sentence(kind: type[Spec], item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        owner = _owner(kind, item["loc"][:-1])
        known = list(owner.model_fields) if owner else []
        hint = f"; {did_you_mean(str(item['loc'][-1]), known)}" if known else ""
        return f"{path}: unknown key{hint}"
    message = str(item["msg"]).removeprefix("Value error, ")
    given = "" if isinstance(item["input"], dict | list) else f" (got {item['input']!r})"
    return f"{path}: {message}{given}" if path else f"{message}{given}"


def _owner(kind: type[Spec], path: tuple[Any, ...]) -> type[Spec] | None:
    """Follow `path` through nested Spec fields; None where it leaves them (a union, a list)."""
    for part in path:
        field = kind.model_fields.get(str(part))
        if field is None:
            return None
        options = [field.annotation, *getattr(field.annotation, "__args__", ())]
        nested = [o for o in options if isinstance(o, type) and issubclass(o, Spec)]
        if not nested:
            return None
        kind = nested[0]
    return kind
