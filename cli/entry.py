"""The process of a command line: signals are listened to before anything is imported, and until it ends."""

from __future__ import annotations

from typing import NoReturn

from .signals import end_at_once_on_signals, ignore_signals

end_at_once_on_signals()


def script() -> NoReturn:
    """Run the command line of this process, which ends with it."""
    from .main import run

    try:
        run()
    finally:
        ignore_signals()
