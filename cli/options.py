"""From the text of command-line options to values; what cannot be meant raises UsageError."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ..common.errors import UsageError
from ..common.files import check_writable

if TYPE_CHECKING:
    import typer

    from ..placement.result import Budget

NumberT = TypeVar("NumberT", int, float)
NounT = TypeVar("NounT")


#: How files end that an option writes wherever it stands; `--output` differs from verb to verb.
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("--svg", "--figure"), (".svg",)),
    "--report": (".html", ".htm"),
    **dict.fromkeys(("--chrome", "--traffic", "--best-known"), (".json",)),
}
#: Inputs that are traces, whose kind of file is looked at before their name.
_TRACES: Final = ("--trace", "--held-out")

#: Tokens of context up to which attention is asked for: far beyond any model, far below integer overflow.
LONGEST_CONTEXT = 10**9


def parse_budget(text: str, gap: float = 0.0) -> Budget:
    """Parse "2s", "500ms", "20000it", or both kinds joined by a comma, of which the first reached stops."""
    from ..hardware.units import TIME, parse
    from ..placement.result import Budget

    time_s: float | None = None
    iterations: int | None = None
    for part in (part.strip() for part in text.split(",")):
        if part.endswith("it") and iterations is None:
            iterations = _positive(part.removesuffix("it"), text, int)
        elif not part.endswith("it") and time_s is None:
            time_s = _positive(part, text, lambda value: parse(value, TIME))
        else:
            raise _no_budget(text)
    return Budget(time_s=time_s, iterations=iterations, gap=gap)


def _positive(part: str, text: str, read: Callable[[str], NumberT]) -> NumberT:
    try:
        value = read(part)
    except (ValueError, UsageError) as error:
        raise _no_budget(text) from error
    if value <= 0:
        raise _no_budget(text)
    return value


def _no_budget(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is no budget",
        where="--budget",
        allowed="a positive time, a positive whole number of iterations (it), or both",
        fix="for example --budget 2s, --budget 500ms, --budget 20000it or --budget 2s,20000it",
    )


def parse_numbers(text: str, option: str, read: Callable[[str], NumberT], example: str) -> list[NumberT]:
    """Parse "256,288". Raises UsageError where a part is no number, or not a finite one above 0."""
    try:
        values = [read(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < math.inf for value in values):
        kind = "whole numbers" if read is int else "numbers"
        raise UsageError(f"{text!r} is no list of {kind} above 0", where=option, fix=f"for example {example}")
    return values


def parse_layers(text: str, known: tuple[int, ...], owner: str, option: str = "--layers") -> tuple[int, ...]:
    """Parse absolute layer ids such as "3-5,8" into ascending ids, all out of `known` (those of `owner`).

    Raises UsageError that names `option`.
    """
    from ..workload.model_file import expand_layers

    try:
        layers = tuple(sorted(set(expand_layers(text.replace(" ", "").split(",")))))
    except ValueError as error:
        raise UsageError(
            f"{text!r} names no layers", where=option, allowed='ids and ranges, as in "3-5,8"'
        ) from error
    strangers = [layer for layer in layers if layer not in known]
    if strangers or not layers:
        raise UsageError(
            f"{owner} has no MoE layer {strangers[0]}" if strangers else f"{text!r} names no layers",
            where=option,
            allowed=show_layers(known),
        )
    return layers


def show_layers(layers: tuple[int, ...]) -> str:
    """Write ids compactly: "0-3,8"."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_solver_options(pairs: list[str]) -> dict[str, object]:
    """Parse "key=value" pairs; values are numbers, true, false or null where they read as such, else text."""
    options: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise UsageError(
                f"{pair!r} is no solver option", where="--option", fix="write --option key=value"
            )
        if key in options:
            raise UsageError(f"solver option {key!r} is given twice", where="--option", fix="give it once")
        try:
            options[key] = json.loads(text)
        except json.JSONDecodeError:
            options[key] = text
    return options


def check_outputs(
    outputs: dict[str, Path | None],
    inputs: dict[str, str | Path | None],
    suffixes: tuple[str, ...] = (),
) -> None:
    """Raise before the work begins where an output cannot be written or would overwrite another file in use.

    Both map the option's name to its path; `suffixes` are those of `--output`. Raises UsageError or BadInput,
    also where an output is named like a file of another kind, or a trace is none.
    """
    taken = {os.path.realpath(path): name for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is None:
            continue
        other = taken.setdefault(os.path.realpath(path), name)
        if other != name:
            if other in _TRACES:
                from ..workload.readers.kinds import require_trace

                require_trace(path)  # what is wrong with the input comes first
            raise UsageError(
                f"{name} and {other} name the same file, {str(path)!r}", fix="choose another name"
            )
        check_suffix(path, suffixes if name == "--output" else _SUFFIXES.get(name, ()), name)
        check_writable(path)


def check_suffix(path: Path, allowed: tuple[str, ...], option: str, because: str = "") -> None:
    """Raise UsageError where a file would be named like one of another kind; no suffix at all is no claim.

    `because` says what the file would hold.
    """
    if allowed and path.suffix and path.suffix.lower() not in allowed:
        raise UsageError(
            f"{because}{because and ': '}{path.name!r} would be taken for something else",
            where=option,
            allowed=" or ".join(allowed),
            fix=f"name it {path.stem}{allowed[0]}",
        )


def flag_of(parameter: str) -> str:
    """Return how a parameter of a verb is written on the command line: "held_out" is "--held-out"."""
    return "--" + parameter.replace("_", "-")


def is_given(context: typer.Context, parameter: str) -> bool:
    """Tell whether an option was written on the command line, be it with its default."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def refuse_foreign(
    context: typer.Context, only: Mapping[str, tuple[str, ...]], family: str, platform: str
) -> None:
    """Raise UsageError on an option that the machine's family would silently ignore.

    `only` maps the options that not every family has to the families that do.
    """
    for name, families in only.items():
        if family not in families and is_given(context, name):
            option = flag_of(name)
            raise UsageError(f"{option} says nothing about {platform}", where=option, fix="leave it out")


def named_or_preset(
    load: Callable[[str], NounT], presets: tuple[str, ...], named: str | None, recorded: str | None
) -> NounT | None:
    """Load what the user names, else the preset that a file names; None where that is no preset."""
    if named is not None:
        return load(named)
    return load(recorded) if recorded in presets else None


def preset_for_yaml(name: str | None, what: str, *, json: bool) -> str:
    """Return `name` of `--yaml`. Raises UsageError where none was given, or another form is asked for too."""
    if json:
        raise UsageError("--json and --yaml are two forms of one answer", fix="leave one out")
    if name is None:
        raise UsageError(f"--yaml needs the name of {what}", fix="name a preset before it")
    return name
