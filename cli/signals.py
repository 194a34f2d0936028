"""Ctrl-C and SIGTERM: the first keeps the best so far where there is one, the second stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds after which a program that was told to stop, and has not, is ended. The exit is raised wherever the
#: program happens to be: inside an import it may be caught, or leave a lock that is waited for for ever.
_GRACE_S = 5.0


class _Told:
    """Whether this program was told to stop."""

    to_stop = False


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """End the program with exit code 130 on Ctrl-C or SIGTERM, undoing what is half written."""
    _Told.to_stop = False
    try:
        with _handled_by(_stop):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if _Told.to_stop:
            raise SystemExit(EXIT_INTERRUPTED)


def end_at_once_on_signals() -> None:
    """End the process on Ctrl-C or SIGTERM where nothing else handles them: as it starts.

    For a process that does nothing but run a command line; there is nothing left to undo.
    """
    for number in _SIGNALS:
        signal.signal(number, _end)


def ignore_signals() -> None:
    """Let a signal that comes while the interpreter ends not change the exit code: all is done and said."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def keep_best_on_signals() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; a second one stops the program at once."""
    if _Told.to_stop:
        raise SystemExit(EXIT_INTERRUPTED)
    interrupt = threading.Event()

    def keep_best(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set():
            _stop(number, frame)
        interrupt.set()
        _say("interrupted: finishing with the best found so far (once more to stop at once)")

    with _handled_by(keep_best):
        yield interrupt


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    # Not a KeyboardInterrupt: searches take that as the wish to keep the best.
    if not _Told.to_stop:
        _Told.to_stop = True
        _say("stopped")
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
    raise SystemExit(EXIT_INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def _say(text: str) -> None:
    # Unbuffered: a handler may run while the main thread is inside a write to sys.stderr.
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())
