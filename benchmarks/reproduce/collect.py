"""The sources there are, and the rows of each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .rows import Row

#: In the order in which they are shown; a module of this package each.
SOURCES = ("sieve", "spimoe", "rexpert", "eplb")


def collect(source: str) -> list[Row]:
    """Make the tables and figures of one source again."""
    make: Callable[[], Iterator[Row]] = importlib.import_module(f".{source}", __package__).collect
    return list(make())
