"""What is printed where: the answer on stdout, everything else on stderr; colour only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

#: Columns that tables may take where stdout is a file or a pipe.
_PIPE_WIDTH = 140


class _Answer(Console):
    """Stdout, whose reader may leave early (`| head`)."""

    def on_broken_pipe(self) -> None:
        """End quietly: the reader has seen enough."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)


def show(*parts: RenderableType) -> None:
    """Print the answer for people: tables, or lines of text, which are never wrapped or interpreted."""
    console = _Answer(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str | Text))


def show_json(answer: object) -> None:
    """Print the answer for programs: one JSON object."""
    _Answer().out(json.dumps(answer, indent=2, allow_nan=False, default=str), highlight=False)


def table(
    columns: Iterable[str], rows: Iterable[Iterable[object]], *, left: int = 1, title: str = ""
) -> Table:
    """Lay out rows; the first `left` columns hold text, the others numbers."""
    built = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for index, name in enumerate(columns):
        built.add_column(name, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        built.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return built


def stderr() -> Console:
    """Return the console for everything that is not the answer."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def note(text: str) -> None:
    """Print a remark on stderr."""
    stderr().print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    stderr().print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)


def fail(text: str) -> None:
    """Print an error on stderr."""
    stderr().print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
