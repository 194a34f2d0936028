"""How kernels are compiled, in one place and with their types kept.

Compiled code is cached beside the source (or in the user's cache where that cannot be written), so only
the first call on a machine pays for it. The GIL is released: layers run side by side in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

KernelT = TypeVar("KernelT", bound=Callable[..., Any])


def kernel(function: KernelT) -> KernelT:
    """Compile with strict floating-point arithmetic."""
    return cast(KernelT, njit(cache=True, nogil=True)(function))


def kernel_without_nan(function: KernelT) -> KernelT:
    """Compile a running maximum so that it can be vectorised: no NaN and no sign of zero to keep.

    Sums are still added in the order they are written, so results do not depend on the machine.
    """
    return cast(KernelT, njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})(function))
