"""A page of sections with sortable tables and pictures, for comparisons and reproduced figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Column:
    """Head of a column that holds words or numbers."""

    name: str
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Cells as text. A row's flag marks the plan's own."""

    head: tuple[Column, ...]
    rows: tuple[tuple[bool, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Section:
    """A part of a page: what it is about, pictures, and a table whose columns can be sorted."""

    title: str
    about: str = ""
    charts: tuple[Markup, ...] = ()
    table: Table | None = None


def render_sheet(kind: str, title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return one self-contained HTML page: no network, the same bytes for the same input.

    A click on a column's head sorts its table; so does a link that ends in `#sort=TABLE:COLUMN` (from 0).
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("sheet.html.j2").render(
        kind=kind, title=title, lead=lead, sections=sections
    )
