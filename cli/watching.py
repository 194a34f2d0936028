"""Bars on stderr, drawn where it is a terminal: for work that ends piece by piece, or goes through tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from .console import stderr


class _Rate(ProgressColumn):
    """Tokens per second, in thousands or millions."""

    def render(self, task: Task) -> Text:
        """Nothing is known before the first tokens."""
        if not task.speed:
            return Text("")
        unit, name = (1e6, "M") if task.speed >= 1e6 else (1e3, "k")
        return Text(f"{task.speed / unit:.1f} {name} tokens/s")


@contextmanager
def count(what: str, total: int, *, visible: bool = True) -> Iterator[Callable[[str], None]]:
    """Yield what to call as each of `total` pieces ends, with what to say beside the bar."""
    console = stderr()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        TextColumn("{task.fields[said]}"),
        console=console,
        transient=True,
        disable=not (visible and console.is_terminal),
    ) as bar:
        task = bar.add_task("", total=total, said="")
        yield lambda said: bar.update(task, advance=1, said=said)


@contextmanager
def watch(what: str, tokens: int) -> Iterator[Callable[[int, int], None]]:
    """Yield what takes the tokens done so far and all of them; draws where stderr is a terminal."""
    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), _Rate(), TextColumn("time left"))
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=tokens)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield on_progress
