"""A bar on stderr for work that goes through tokens: how many a second, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
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
