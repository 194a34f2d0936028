"""How long an expert with so many tokens keeps PIM busy: observed times, and a timing model until then."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.errors import BadInput, UsageError
from .problem import as_numbers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: Token counts that a table covers from the start; beyond its end, times grow in proportion to the tokens.
DEFAULT_SIZE = 4096
#: Largest count that an observation may have, so that one outlier does not fill the memory.
_LARGEST = 1 << 20


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A table as it was at one moment. `seconds` [N + 1] and `observed` [N + 1] are read-only."""

    seconds: NDArray[np.float64]
    """What planners read."""
    means: NDArray[np.float64]
    """Moving averages; the timing model where nothing was observed."""
    observed: NDArray[np.bool_]


class CostTable:
    """PIM seconds by token count: exponential moving averages of what was observed (Sieve section 5).

    Before the first observation of a count, its time is that of `model`, a function that gives `[n + 1]`
    seconds of 0 to n tokens. A new mean is `weight` of the observation and the rest of the old mean.
    With `never_decreasing`, planners read the running maximum over smaller counts.

    `snapshot` may be read from any thread while another observes: snapshots never change, they are replaced.
    """

    def __init__(
        self,
        model: Callable[[int], NDArray[np.float64]],
        *,
        weight: float = 0.25,
        never_decreasing: bool = False,
        size: int = DEFAULT_SIZE,
    ) -> None:
        if not 0.0 < weight <= 1.0:
            raise UsageError(f"the weight of an observation lies in (0, 1], not {weight!r}")
        if size < 1:
            raise UsageError(f"a cost table covers at least 1 token, not {size}")
        self._model = model
        self._weight = weight
        self._never_decreasing = never_decreasing
        self._writing = threading.Lock()
        means = _seconds(model(size))
        self._snapshot = self._freeze(means, np.zeros(len(means), dtype=np.bool_))

    @property
    def snapshot(self) -> Snapshot:
        """The table now."""
        return self._snapshot

    def observe(self, tokens: ArrayLike, seconds: ArrayLike) -> None:
        """Take in PIM times of experts with so many tokens (numbers or lists); of equal counts in order.

        Raises BadInput on counts below 1 or beyond 2^20, times that are negative, infinite or NaN, what is no
        number, and lists of different length.
        """
        counts = np.atleast_1d(as_numbers(tokens, "observed token counts"))
        times = np.atleast_1d(as_numbers(seconds, "observed times"))
        if counts.shape != times.shape or counts.ndim != 1:
            raise BadInput(f"{counts.size} token counts are observed with {times.size} times")
        if counts.size == 0:
            return
        if counts.dtype.kind not in "iu" or counts.min() < 1 or counts.max() > _LARGEST:
            raise BadInput("observed token counts must be whole numbers", allowed=f"1 to {_LARGEST}")
        times = _seconds(times)
        with self._writing:
            means, observed = self._copy(int(counts.max()))
            for n, took_s in zip(counts.tolist(), times.tolist(), strict=True):
                means[n] += (self._weight if observed[n] else 1.0) * (took_s - means[n])
                observed[n] = True
            self._snapshot = self._freeze(means, observed)

    def save(self, path: str | Path) -> None:
        """Write the observed means as .npz, atomically."""
        from ...common.files import atomic_path

        now = self._snapshot
        counts = np.flatnonzero(now.observed)
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, tokens=counts, seconds=now.means[counts])

    def load(self, path: str | Path) -> None:
        """Take over the observed means of a saved table. Raises BadInput where the file holds none."""
        from ...workload.readers.numpy_file import read_archive

        arrays = read_archive(Path(path), ("tokens", "seconds"))
        counts, times = (arrays.get(key, np.empty(())) for key in ("tokens", "seconds"))
        vectors = counts.shape == times.shape and counts.ndim == 1
        if not vectors or counts.dtype.kind not in "iu" or times.dtype.kind not in "iuf":
            raise BadInput(f"{str(path)!r} is no cost table", fix="name a file that CostTable.save wrote")
        if counts.size and (counts.min() < 1 or counts.max() > _LARGEST):
            raise BadInput(f"{str(path)!r} has a token count out of range", allowed=f"1 to {_LARGEST}")
        times = _seconds(times, repr(str(path)))
        with self._writing:
            means, observed = self._copy(int(counts.max(initial=1)))
            means[counts], observed[counts] = times, True
            self._snapshot = self._freeze(means, observed)

    def _copy(self, most: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return means and flags that can be changed, long enough for `most` tokens."""
        now = self._snapshot
        if most < len(now.means):
            return now.means.copy(), now.observed.copy()
        means = _seconds(self._model(max(most, 2 * len(now.means))))
        observed = np.zeros(len(means), dtype=np.bool_)
        observed[: len(now.observed)] = now.observed
        known = np.flatnonzero(observed)
        means[known] = now.means[known]
        return means, observed

    def _freeze(self, means: NDArray[np.float64], observed: NDArray[np.bool_]) -> Snapshot:
        seconds = np.maximum.accumulate(means) if self._never_decreasing else means
        for array in (means, observed, seconds):
            array.flags.writeable = False
        return Snapshot(seconds, means, observed)


def _seconds(times: NDArray[Any], where: str = "") -> NDArray[np.float64]:
    """Return a copy; raises BadInput where a time is negative, infinite or NaN."""
    if times.size and not (times.min() >= 0.0 and math.isfinite(times.max())):
        raise BadInput("PIM times must be finite and at least 0 s", where=where)
    return np.array(times, dtype=np.float64)
