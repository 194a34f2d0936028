"""Rounds of a decode step on pooled cores, and where the peak goes: ReXpert equation 2, on whole arrays.

A job is up to `width` tokens for one expert on one group of processing elements; a round is one pass in
which every group works off at most one job. All arrays may have leading axes (layers, steps); the last one
is experts `[..., E]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Cascade:
    """Means over steps (and layers) of equation 2, and of its rounds.

    `ideal_mfu`: T / (J w), how full the issued tiles are. `occupancy`: J / (rho N G), how many groups have
    a job while the slowest still works. `actual_mfu`: T / (rho N G w), the mean of the product.
    `adjusted_mfu`: ideal MFU times the share of the peak that a tile of this width reaches (section IV-D).
    """

    ideal_mfu: float
    occupancy: float
    actual_mfu: float
    adjusted_mfu: float
    rounds: float


def jobs_of(counts: Counts, width: int) -> NDArray[np.int32]:
    """Jobs `[..., E]` that token counts `[..., E]` issue: ceil(tokens / width).

    Raises UsageError for a width below 1.
    """
    check_width(width)
    jobs: NDArray[np.int32] = (-(-np.asarray(counts, dtype=np.int64) // width)).astype(np.int32)
    return jobs


def check_width(width: int) -> None:
    """Raise UsageError where no token fits into a job."""
    if width < 1:
        raise UsageError(
            f"a tile of {width} tokens does no work",
            where="width",
            allowed="at least 1; ReXpert's unit is balanced at 4",
        )


def queued(jobs: Counts, place_of: NDArray[np.integer[Any]], places: int) -> NDArray[np.int32]:
    """Jobs `[..., P]` that queue at every place; `place_of` [E] is an expert's core, or its unit."""
    order = np.argsort(place_of, kind="stable")
    used, first = np.unique(np.asarray(place_of)[order], return_index=True)
    by_place = np.asarray(jobs, dtype=np.int32)[..., order]
    at = np.zeros((*by_place.shape[:-1], places), dtype=np.int32)
    at[..., used] = np.add.reduceat(by_place, first, axis=-1)
    return at


def broadcast_rounds(
    jobs: Counts, core_of: NDArray[np.integer[Any]], cores: int, groups: int
) -> NDArray[np.int32]:
    """Rounds `[...]` with pooling inside cores of `groups` groups: max over cores of ceil(jobs / G).

    Idle groups take jobs of any expert that is resident in their core (section IV-C).
    """
    rounds: NDArray[np.int32] = -(-queued(jobs, core_of, cores).max(axis=-1) // groups)
    return rounds


def direct_rounds(jobs: Counts, unit_of: NDArray[np.integer[Any]], units: int) -> NDArray[np.int32]:
    """Rounds `[...]` where every unit works off its own queue: the largest queue of a unit.

    `unit_of` [E] are unit ids of the whole die; experts on the same unit queue behind each other.
    """
    rounds: NDArray[np.int32] = queued(jobs, unit_of, units).max(axis=-1)
    return rounds


def least_rounds(jobs: Counts, cores: int, groups: int) -> NDArray[np.int32]:
    """Rounds `[...]` below which no placement gets: the step's jobs over all groups, its largest expert on
    one core, and the heaviest experts where some core must take two of them. With `groups` 1, of units.

    Of the N * m + 1 heaviest experts some core holds m + 1, at least as many jobs as the lightest m + 1 of
    them have (pigeonhole; Martello and Toth 1990, bound L2 for P || C_max).
    """
    ordered = -np.sort(-np.asarray(jobs, dtype=np.int64), axis=-1)
    least = np.maximum(-(-ordered.sum(axis=-1) // cores), ordered[..., 0])
    experts = ordered.shape[-1]
    for held in range(1, (experts - 1) // cores + 1):
        last = held * cores
        least = np.maximum(least, ordered[..., last - held : last + 1].sum(axis=-1))
    rounds: NDArray[np.int32] = (-(-least // groups)).astype(np.int32)
    return rounds


def cascade(counts: Counts, rounds: NDArray[np.integer[Any]], units: int, width: int, cap: float) -> Cascade:
    """Equation 2 on token counts `[..., E]` and the `rounds` [...] that they took on `units` groups (N * G).

    `cap` is the share of the peak that a tile of `width` tokens reaches (`Unit.roofline_cap`). Steps without
    a token are left out; raises UsageError where no step has one.
    """
    tokens = np.asarray(counts, dtype=np.int64).sum(axis=-1)
    jobs = jobs_of(counts, width).sum(axis=-1, dtype=np.int64)
    busy = jobs > 0
    if not busy.any():
        raise UsageError("there is no token in any step", fix="take a trace with tokens")
    ideal = tokens[busy] / (jobs[busy] * width)
    occupancy = jobs[busy] / (rounds[busy] * float(units))
    return Cascade(
        ideal_mfu=float(ideal.mean()),
        occupancy=float(occupancy.mean()),
        actual_mfu=float((ideal * occupancy).mean()),
        adjusted_mfu=float(ideal.mean()) * cap,
        rounds=float(rounds[busy].mean()),
    )
