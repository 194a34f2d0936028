"""Load-aware fetch: cores that would idle run tokens of the batches behind, which are routed already.

Section IV-D of ReXpert gives the idea and no algorithm; this one is ours. Batches of a layer queue in the
order of their decode waves. In `fifo` order a batch starts when the one before has ended: its slowest core
decides, the others idle. `load-aware`, a turn still belongs to the oldest batch, and lasts exactly as long
as that batch's own jobs on the busiest core; but tiles that it leaves part empty are filled up with queued
tokens for the same expert, and groups that it leaves idle take the resident expert with the most queued
tokens, from at most `depth` batches behind.

Nothing is routed anew: a token runs on the expert that it chose. Nothing starves: a token runs in its own
batch's turn at the latest, at most `depth` turns after it entered the queue. And no turn gets longer than in
fifo order, because fetching only removes work from later turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Policy = Literal["fifo", "load-aware"]
POLICIES: Final[tuple[Policy, ...]] = ("fifo", "load-aware")


@dataclass(frozen=True, eq=False)
class Fetched:
    """How S batches of L layers ran. Arrays are read-only.

    `rounds` int64 [S, L]: of a batch's turn. `jobs` int64 [S, L, N]: that the cores issued in it. `lags`
    int64 [S, L, D + 1, E]: tokens of a batch that ran i turns before its own, by expert.
    """

    rounds: NDArray[np.int64]
    jobs: NDArray[np.int64]
    lags: NDArray[np.int64]
    groups: int
    width: int
    depth: int
    """Batches behind the oldest that are queued, D."""

    def __post_init__(self) -> None:
        for array in (self.rounds, self.jobs, self.lags):
            array.flags.writeable = False

    @property
    def ideal_mfu(self) -> float:
        """Tokens over what the issued tiles could have taken."""
        return float(self.lags.sum() / (self.jobs.sum() * self.width))

    @property
    def occupancy(self) -> float:
        """Jobs over what all groups could have run in all rounds."""
        return float(self.jobs.sum() / (self.rounds.sum() * self.groups * self.jobs.shape[-1]))

    @property
    def actual_mfu(self) -> float:
        """Ideal MFU times occupancy (equation 2)."""
        return self.ideal_mfu * self.occupancy

    @property
    def mean_rounds(self) -> float:
        """Rounds of a turn."""
        return float(self.rounds.mean())

    def waits(self) -> tuple[float, int]:
        """Return mean and longest wait of a token in rounds, from entering the queue to its turn's end.

        A batch enters the queue `depth` turns before its own, or at the start; a token's result is there when
        the turn in which it ran ends.
        """
        turns = np.arange(len(self.rounds))
        ends = np.cumsum(self.rounds, axis=0)
        starts = ends - self.rounds
        entered = starts[np.maximum(turns - self.depth, 0)]
        total, longest = 0.0, 0
        for lag in range(self.depth + 1):
            ran = self.lags[:, :, lag].sum(axis=-1)
            wait = ends[np.maximum(turns - lag, 0)] - entered
            total += float((ran * wait).sum())
            longest = max(longest, int(wait[ran > 0].max(initial=0)))
        return total / float(self.lags.sum()), longest


def fetch(
    counts: NDArray[np.integer[Any]],
    core_of: NDArray[np.integer[Any]],
    *,
    cores: int,
    groups: int,
    width: int,
    depth: int,
    policy: Policy = "load-aware",
    narrow: bool = True,
) -> Fetched:
    """Run token counts [S, L, E] on cores [E] or [L, E] with a queue of `depth` batches behind the oldest.

    `groups`: of a core, which share its jobs (1: units that do not pool). `narrow`: idle groups also take
    tiles that are not full. With depth 0 the policies agree. Raises UsageError where a value is out of range
    or there is no token.
    """
    tokens = np.ascontiguousarray(counts, dtype=np.int64)
    if tokens.ndim != 3 or tokens.size == 0 or tokens.min() < 0 or not tokens.any():
        raise UsageError(f"fetching needs token counts [steps, layers, experts], not {tokens.shape}")
    for name, value, least in (("groups", groups, 1), ("width", width, 1), ("depth", depth, 0)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}", where=name)
    if policy not in POLICIES:
        raise UsageError(f"unknown policy {policy!r}", allowed=", ".join(POLICIES))
    _, layers, experts = tokens.shape
    places = np.asarray(core_of, dtype=np.int64)
    if places.shape not in {(experts,), (layers, experts)}:
        raise UsageError(f"cores of shape {places.shape} do not fit {layers} layers of {experts} experts")
    if places.min() < 0 or places.max() >= cores:
        raise UsageError("an expert lies on no core", allowed=f"cores 0 to {cores - 1}")
    places = np.broadcast_to(places, (layers, experts))
    return _run(tokens, places, cores, groups, width, depth, policy, narrow)


def _run(
    tokens: NDArray[np.int64],
    places: NDArray[np.int64],
    cores: int,
    groups: int,
    width: int,
    depth: int,
    policy: Policy,
    narrow: bool,
) -> Fetched:
    from .fetch_kernel import run_queue

    steps, layers, experts = tokens.shape
    rounds = np.zeros((layers, steps), dtype=np.int64)
    jobs = np.zeros((layers, steps, cores), dtype=np.int64)
    lags = np.zeros((layers, steps, depth + 1, experts), dtype=np.int64)
    reach = depth if policy == "load-aware" else 0
    for layer in range(layers):
        run_queue(
            np.ascontiguousarray(tokens[:, layer]),
            np.ascontiguousarray(places[layer]),
            cores,
            groups,
            width,
            reach,
            narrow,
            rounds[layer],
            jobs[layer],
            lags[layer],
        )
    return Fetched(
        np.ascontiguousarray(rounds.T),
        np.ascontiguousarray(jobs.transpose(1, 0, 2)),
        np.ascontiguousarray(lags.transpose(1, 0, 2, 3)),
        groups,
        width,
        depth,
    )


@dataclass(frozen=True)
class FetchPoint:
    """One point of the exchange of latency for occupancy; waits are in rounds of the array."""

    depth: int
    policy: Policy
    ideal_mfu: float
    occupancy: float
    actual_mfu: float
    rounds: float
    mean_wait: float
    longest_wait: int


def latency_curve(
    counts: NDArray[np.integer[Any]],
    core_of: NDArray[np.integer[Any]],
    *,
    cores: int,
    groups: int,
    width: int,
    depths: Sequence[int] = (0, 1, 2, 4, 8, 16),
    narrow: bool = True,
) -> tuple[FetchPoint, ...]:
    """Return both policies at every depth; fifo waits longer in a deeper queue and gains nothing."""
    points = []
    for depth in depths:
        for policy in POLICIES:
            ran = fetch(
                counts,
                core_of,
                cores=cores,
                groups=groups,
                width=width,
                depth=depth,
                policy=policy,
                narrow=narrow,
            )
            mean, longest = ran.waits()
            points.append(
                FetchPoint(
                    depth=depth,
                    policy=policy,
                    ideal_mfu=ran.ideal_mfu,
                    occupancy=ran.occupancy,
                    actual_mfu=ran.actual_mfu,
                    rounds=ran.mean_rounds,
                    mean_wait=mean,
                    longest_wait=longest,
                )
            )
    return tuple(points)
