"""Errors that a user can act on: what, where, what is allowed, how to fix it.

Every error that moeplan raises on purpose is a `MoeplanError`; the command line prints its
text and ends with its `exit_code`. Anything else that escapes is a bug of ours (exit code 1).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

#: Characters of a wrong value that an error repeats.
_SHOWN = 60


class MoeplanError(Exception):
    """Base of all errors raised on purpose; by itself it reports a bug of ours.

    `what` says in one sentence what is wrong, `where` names file, row or key, `allowed` what
    would have been accepted, `fix` the next thing to do. Empty parts are left out of the text.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", allowed: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.allowed = allowed
        self.fix = fix
        super().__init__(what, where, allowed, fix)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions between
        # worker processes.
        return _rebuild, (type(self), self.what, self.where, self.allowed, self.fix)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  where:   {self.where}"] if self.where else []
        lines += [f"  allowed: {self.allowed}"] if self.allowed else []
        lines += [f"fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


def _rebuild(kind: type[MoeplanError], what: str, where: str, allowed: str, fix: str) -> MoeplanError:
    return kind(what, where=where, allowed=allowed, fix=fix)


class Contradiction(MoeplanError):
    """A claim and a measurement disagree (a bound above a cost, say): a bug, never a bad input."""


class UsageError(MoeplanError):
    """The command or call cannot be meant as it was written (unknown name, option out of range)."""

    exit_code: ClassVar[int] = 2


class BadInput(MoeplanError):
    """A file, trace, model or platform that cannot be used as it is."""

    exit_code: ClassVar[int] = 3


class ProvenInfeasible(MoeplanError):
    """No decision can satisfy the constraints, and that is proven."""

    exit_code: ClassVar[int] = 4


class NothingFound(MoeplanError):
    """The budget ran out before any feasible decision was found; one may exist."""

    exit_code: ClassVar[int] = 5


class MissingLibrary(MoeplanError):
    """An optional library is needed for what was asked, and is not installed."""

    exit_code: ClassVar[int] = 6


def shown(value: object) -> str:
    """Write a value for a message, cut where it is long; Python refuses to write thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the closest of `names`, or the list of all of them."""
    known = sorted(names)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(known)}"
