"""Refresh of DRAM: how often a lock-step group stands still, and how long work takes that it disturbs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..common.errors import UsageError

REFRESH_RULES = ("off", "average", "interrupt", "deadline")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise UsageError where `value` is not one of `allowed`."""
    if value not in allowed:
        raise UsageError(f"unknown {name} {value!r}", allowed=", ".join(allowed))


class Operation(NamedTuple):
    """A buffer fill or a DRAM row, `times` in a row: what a controller starts only if it can end it."""

    seconds: float
    times: int
    is_row: bool


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """How refresh stretches work. Every `interval_s` the group stands still for `cycle_s`."""

    rule: str = "off"
    """off; average: the mean of long runs, a constant factor; interrupt: each refresh halts the work
    where it is; deadline: an operation that would not end before the refresh waits for it. The last
    two count whole refreshes, the first one `interval_s` after the start, as a simulator's run does."""
    interval_s: float = math.inf
    """tREFI; or tREFI / ranks, where ranks take turns and the whole group waits for each."""
    cycle_s: float = 0.0
    """tRFC."""
    guard_s: float = 0.0
    """Lost besides tRFC, closing and reopening rows. Under the rule deadline: by how much the
    controller's estimate of a row exceeds its duration."""

    def __post_init__(self) -> None:
        check_choice("refresh rule", self.rule, REFRESH_RULES)
        if self.rule != "off" and not 0.0 <= self.cycle_s + self.guard_s < self.interval_s < math.inf:
            raise UsageError(
                f"refresh takes {self.cycle_s + self.guard_s:.3g} s of every {self.interval_s:.3g} s",
                allowed="cycle + guard shorter than the interval, which is finite",
            )

    def stretch(self, busy_s: float) -> float:
        """Return the time in which `busy_s` of undisturbed work gets done (any rule but deadline)."""
        lost_s = self.cycle_s + self.guard_s
        if self.rule == "average":
            return busy_s / (1.0 - lost_s / self.interval_s)
        if self.rule == "interrupt" and busy_s > self.interval_s:
            return busy_s + lost_s * (1 + (busy_s - self.interval_s) // (self.interval_s - lost_s))
        return busy_s

    def ends(self, vectors: Iterable[Sequence[Operation]]) -> Iterator[float]:
        """Yield when the last operation of each of `vectors` ends, one after the other (rule deadline)."""
        now, due = 0.0, self.interval_s
        for operations in vectors:
            for seconds, times, is_row in operations:
                estimate_s = seconds + self.guard_s * is_row
                never_fits = estimate_s > self.interval_s - self.cycle_s
                left = times
                while left:
                    fits = 1 + math.floor((due - now - estimate_s) / seconds) if seconds else left
                    done = min(left, max(0, fits))
                    now += done * seconds
                    left -= done
                    if left:
                        now, due = due + self.cycle_s, due + self.interval_s
                        now, left = now + never_fits * seconds, left - never_fits
            yield now


NO_REFRESH = Refresh()
