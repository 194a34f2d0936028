"""The help of every verb, and errors about options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from moeplan.cli.main import build

#: What Rich could take for markup: `[tokens]`, `[L, E]`.
BRACKETS = re.compile(r"\[[\w#/@][^\[\]]*\]")


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, verb in getattr(command, "commands", {}).items():
        yield from verbs(verb, (*path, name))


def in_source(command: Any) -> set[str]:
    """Bracketed words of a verb's help as its source has them: docstring and options."""
    function = getattr(command, "callback", None)
    texts = []
    if function is not None and not getattr(command, "commands", {}):
        texts.append(inspect.getdoc(inspect.unwrap(function)) or "")
        hints = inspect.get_annotations(inspect.unwrap(function), eval_str=True)
        for hint in hints.values():
            texts += [part.help or "" for part in getattr(hint, "__metadata__", ()) if hasattr(part, "help")]
    return {" ".join(found.split()) for text in texts for found in BRACKETS.findall(text)}


VERBS = dict(verbs(build()))


def test_there_are_shapes_to_look_for():
    shapes = set().union(*(in_source(command) for command in VERBS.values()))
    assert {"[tokens, layers, top-k]", "[tokens]", "[layers, experts]", "[L, E]", "[L, R]"} <= shapes


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_help_prints_every_bracket_of_its_source(cli, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "400")
    ended = cli(*path, "--help")
    assert ended.code == 0
    printed = " ".join(ended.out.split())
    missing = {shape for shape in in_source(VERBS[path]) if shape not in printed}
    assert not missing
    assert "\\[" not in printed


def test_help_of_one_verb_in_the_list_of_all_keeps_its_brackets(cli, monkeypatch):
    def shaped() -> None:
        """Counts [layers, experts] in, [slots] out."""

    from moeplan.cli.verbs import Verb, as_written

    app = typer.Typer(rich_markup_mode="rich")
    app.command("shaped", cls=Verb)(shaped)
    app.command("other", cls=Verb)(lambda: None)
    monkeypatch.setattr("moeplan.cli.main.build", lambda: as_written(typer.main.get_command(app)))
    assert "Counts [layers, experts] in, [slots] out." in cli("--help").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "--suite", "smal"), "'smal' is not one of 'quick', 'full'"),
        (("bench", "scale", "--what", "everything"), "'everything' is not one of 'tokens'"),
        (("trace", "import", "x", "--model", "m", "-o", "t", "--format", "no"), "'no' is not one of 'auto'"),
    ],
)
def test_errors_about_options_are_in_our_words(cli, arguments, said):
    ended = cli(*arguments)
    assert ended.code == 2
    assert said in " ".join(ended.err.replace("│", " ").split())
    assert "Value error" not in ended.err
