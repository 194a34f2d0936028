"""What an engine's module offers to the export: writing, checking, and what to launch it with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .layout import Deployment, Layout
from .rules import Verdict


@dataclass(frozen=True)
class Launch:
    """How an engine is started with a file.

    `flags` are arguments of its command line, `config` keys of its configuration file (empty where it
    takes none), `preconditions` what must hold at run time for the file to be used and to be right,
    `notes` what else to know.
    """

    flags: tuple[str, ...]
    config: dict[str, Any]
    preconditions: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """An engine and its file.

    - `write(layout, deployment, path)`: write the file.
    - `parse(path, suffix)`: read its plain values; `suffix` is that of the file's final name.
    - `check(values, deployment)`: judge them by the engine's rules.
    - `launch(layout, deployment, name)`: how to start the engine with the file called `name`.
    - `suffixes`: of the files it takes; `needs_model`: True where dense layers or absolute ids matter;
      `dense`: True where dense layers have a row.
    """

    name: str
    suffixes: tuple[str, ...]
    needs_model: bool
    dense: bool
    write: Callable[[Layout, Deployment, Path, str], None]
    parse: Callable[[Path, str], Any]
    check: Callable[[Any, Deployment], Verdict]
    launch: Callable[[Layout, Deployment, str], Launch]
