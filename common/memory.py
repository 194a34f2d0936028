"""How much memory this process holds, and has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def resident_bytes() -> int:
    """Return the memory that the process holds now; its largest so far where the system does not say."""
    return _status("VmRSS:") or _largest()


def peak_bytes() -> int:
    """Return the most memory that the process has held, since `reset_peak` where that worked.

    Linux hands the largest resident size that `getrusage` reports on from the process that forked to the
    one that it starts, so a small process begun by a large one would be charged with the large one's; what
    /proc says is the process's own.
    """
    return _status("VmHWM:") or _largest()


def reset_peak() -> bool:
    """Let `peak_bytes` begin at what is held now; False where the system cannot."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _status(key: str) -> int:
    try:
        text = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def _largest() -> int:
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
