"""The border where files are read: strict pydantic models, and their errors in our own form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from .errors import BadInput, did_you_mean, shown
from .files import read_text

SpecT = TypeVar("SpecT", bound="Spec")


class Spec(BaseModel):
    """A file's section: unknown keys and infinite or NaN numbers are refused, instances are immutable.

    `parse` also refuses true and false where a number is meant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def whole(low: int, high: int) -> WrapValidator:
    """Return the check of a whole number, for Annotated[int, ...]: `low` to `high`, both included."""
    return within(low, high, "a whole number from ")


def within(low: float, high: float, kind: str = "from ") -> WrapValidator:
    """Return the check of a number, for Annotated[float, ...]: `low` to `high`, both included."""

    def check(value: Any, convert: ValidatorFunctionWrapHandler) -> Any:
        # Before converting too: of a number that fits nothing, the range says more than pydantic.
        given = value if isinstance(value, int | float) else convert(value)
        if not low <= given <= high:
            raise ValueError(f"must be {kind}{low:.15g} to {high:.15g}")
        return convert(value)

    return WrapValidator(check)


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
    if not text.strip():
        raise _empty(path, what)
    try:
        data = json.loads(text) if str(path).endswith(".json") else yaml.load(text, _Loader)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{what} {str(path)!r} is not JSON: {error.msg}",
            where=f"line {error.lineno}",
            fix="correct it there, or make the file anew",
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise BadInput(
            f"{what} {str(path)!r} is not YAML: {problem}",
            where=where,
            fix="correct it there, or make the file anew",
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        # What the parsers let through: impossible dates and numbers, thousands of brackets.
        raise BadInput(
            f"{what} {str(path)!r} cannot be read: {type(error).__name__}",
            fix="write plain mappings, lists, numbers and texts",
        ) from error
    if data is None:
        raise _empty(path, what)  # comments, or the word null
    if not isinstance(data, dict):
        raise BadInput(
            f"{what} {str(path)!r} must be a mapping of keys to values, not {type(data).__name__}",
            fix="start from one that ships with moeplan",
        )
    return data


def _empty(path: str | Path, what: str) -> BadInput:
    return BadInput(
        f"{what} {str(path)!r} is empty: it holds no keys and values",
        fix="check the path, or make the file anew",
    )


def parse(kind: type[SpecT], data: dict[str, Any], where: str) -> SpecT:
    """Validate `data` as `kind`. Raises one BadInput that lists every faulty key with its path."""
    truths = dict(_truths(kind, data, ()))
    rows = [_row(path, f"must be a number (got {value})") for path, value in truths.items()]
    try:
        parsed = kind.model_validate(data)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)
        rows += [_sentence(kind, item) for item in items if item["loc"] not in truths]
        raise _wrong(rows, where) from error
    if rows:
        raise _wrong(rows, where)
    return parsed


def _wrong(rows: list[str], where: str) -> BadInput:
    return BadInput(
        f"{where}: {rows[0]}" if len(rows) == 1 else f"{where}: {len(rows)} values are wrong",
        where="" if len(rows) == 1 else "\n           ".join(rows),
        fix="correct the named keys" if len(rows) > 1 else "correct the named key",
    )


def _sentence(kind: type[Spec], item: Any) -> str:
    if item["type"] == "extra_forbidden":
        owners = [part for part in _kinds_at(kind, item["loc"][:-1]) if _is_section(part)]
        known = [name for owner in owners for name in owner.model_fields]
        hint = f"; {did_you_mean(str(item['loc'][-1]), known)}" if known else ""
        return _row(item["loc"], f"unknown key{hint}")
    message = str(item["msg"]).removeprefix("Value error, ")
    given = "" if isinstance(item["input"], dict | list) else f" (got {shown(item['input'])})"
    return _row(item["loc"], f"{message}{given}")


def _row(path: tuple[Any, ...], message: str) -> str:
    return ": ".join((*([".".join(str(part) for part in path)] if path else ()), message))


def _truths(kind: type[Spec], node: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield path and value of every true or false that stands for a number; pydantic takes it for 1 or 0."""
    if isinstance(node, bool):
        kinds = _kinds_at(kind, path)
        if kinds & {int, float} and not kinds & {bool, str, Any}:
            yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _truths(kind, value, (*path, key))
    elif isinstance(node, list) and not {type(value) for value in node} <= {int, float, str}:
        for index, value in enumerate(node):
            yield from _truths(kind, value, (*path, index))


def _kinds_at(kind: type[Spec], path: tuple[Any, ...]) -> set[Any]:
    """Return what may stand at `path`, through nested sections, lists and mappings; empty: nothing known."""
    kinds: set[Any] = {kind}
    for part in path:
        kinds = {inner for outer in kinds for inner in _inside(outer, part)}
    return kinds


def _inside(kind: Any, part: Any) -> Iterator[Any]:
    """Yield what may stand under key or index `part` of a section, list or mapping."""
    origin = get_origin(kind)
    if _is_section(kind) and str(part) in kind.model_fields:
        yield from _options(kind.model_fields[str(part)].annotation)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _options(get_args(kind)[1])
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        for item in get_args(kind):
            yield from _options(item)


def _options(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation allows: int and NoneType of Annotated[int, ...] | None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _options(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for option in get_args(annotation):
            yield from _options(option)
    else:
        yield annotation


def _is_section(kind: Any) -> bool:
    return get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, Spec)
