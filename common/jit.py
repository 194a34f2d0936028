"""How kernels are compiled, in one place and with their types kept.

Compiled code is cached beside the source (or in the user's cache where that cannot be written), so only
the first call on a machine pays for it; where neither can be written, every process compiles anew. The GIL
is released: layers run side by side in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

KernelT = TypeVar("KernelT", bound=Callable[..., Any])


def kernel(function: KernelT) -> KernelT:
    """Compile with strict floating-point arithmetic."""
    return _compiled(function, fastmath=False)


def kernel_without_nan(function: KernelT) -> KernelT:
    """Compile a running maximum so that it can be vectorised: no NaN and no sign of zero to keep.

    Sums are still added in the order they are written, so results do not depend on the machine.
    """
    return _compiled(function, fastmath={"nnan", "nsz"})


def _compiled(function: KernelT, fastmath: bool | set[str]) -> KernelT:
    try:
        return cast(KernelT, njit(cache=True, nogil=True, fastmath=fastmath)(function))
    except RuntimeError:  # numba found no folder for its cache
        return cast(KernelT, njit(nogil=True, fastmath=fastmath)(function))
