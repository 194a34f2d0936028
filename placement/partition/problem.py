"""The question of the `partition` family: which experts of an MoE layer the GPU computes, and which PIM.

T_total = max(T_comm, T_gpu(G), T_pim(S)) (Sieve eq. 1) for the experts G on the GPU and S on PIM, of those
that have tokens. T_pim is attention, which occupies all channels, plus the experts' table entries: their sum
where every expert lies over all channels (layout `tp`, Sieve), the busiest channel's sum where each has a
home (layout `ep`, PIMoE). T_comm does not depend on the partition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.errors import BadInput, shown
from ...common.files import fingerprint
from ..problem import Bound, Cost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..control import Control

#: Largest token count: 2^20 experts of so many still add up to an int64.
MOST_TOKENS = np.iinfo(np.int64).max >> 20


@dataclass(frozen=True, eq=False)
class Decision:
    """Which experts the GPU computes: `on_gpu` [E], bool. Experts without tokens are computed nowhere."""

    on_gpu: NDArray[np.bool_]

    def __post_init__(self) -> None:
        fixed = np.array(self.on_gpu, dtype=np.bool_)
        fixed.flags.writeable = False
        object.__setattr__(self, "on_gpu", fixed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and np.array_equal(self.on_gpu, other.on_gpu)

    def __hash__(self) -> int:
        return hash(self.on_gpu.tobytes())


@dataclass(frozen=True)
class Times:
    """The parts of T_total, in seconds, and how many experts the GPU computes.

    T_gpu = kernel constants + max(memory, compute); T_pim = attention + experts on the busiest channel.
    """

    comm_s: float
    gpu_s: float
    gpu_memory_s: float
    gpu_compute_s: float
    pim_s: float
    attention_s: float
    pim_experts_s: float
    gpu_experts: int

    @property
    def total_s(self) -> float:
        """Sieve eq. 1."""
        return max(self.comm_s, self.gpu_s, self.pim_s)


@dataclass(frozen=True, eq=False)
class PartitionProblem:
    """One MoE layer in one step. Build it with `partition_layer(...).problem(...)`.

    `tokens` int64 [E]; `table` float64 [N + 1], PIM seconds of 0 to N tokens; `coefficients` [7] of T_gpu;
    `home` int64 [E] of `homes` channels, all 0 in layout `tp`.
    """

    tokens: NDArray[np.int64]
    table: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    attention_s: float
    comm_s: float
    home: NDArray[np.int64]
    homes: int
    family: str = "partition"
    held_out: None = None
    baselines: tuple[str, ...] = ("no_exp", "all_exp", "pimoe", "sieve")

    @property
    def experts(self) -> int:
        """Number of routed experts."""
        return len(self.tokens)

    @cached_property
    def fingerprint(self) -> str:
        """Hash over everything that the cost depends on."""
        return fingerprint(
            self.tokens, self.seconds, self.coefficients, self.attention_s, self.comm_s, self.home, self.homes
        )

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """PIM seconds of every expert, `[E]`."""
        last = len(self.table) - 1
        inside = self.table[np.minimum(self.tokens, last)]
        beyond: NDArray[np.float64] = np.where(
            self.tokens > last, self.table[last] * (self.tokens / last), inside
        )
        return np.where(self.tokens > 0, beyond, 0.0)

    def times(self, decision: Decision) -> Times:
        """Return the parts of a decision's T_total."""
        fixed, first, memory, compute, expert, token, flop = self.coefficients.tolist()
        on_gpu = decision.on_gpu & (self.tokens > 0)
        experts, routed = int(on_gpu.sum()), float(self.tokens[on_gpu].sum())
        memory_s, compute_s = memory + expert * experts + token * routed, compute + flop * routed
        constants_s = fixed + (first if experts else 0.0)
        busy_s = np.bincount(self.home, weights=np.where(on_gpu, 0.0, self.seconds), minlength=self.homes)
        pim_experts_s = float(busy_s.max())
        return Times(
            comm_s=self.comm_s,
            gpu_s=constants_s + max(memory_s, compute_s),
            gpu_memory_s=memory_s,
            gpu_compute_s=compute_s,
            pim_s=self.attention_s + pim_experts_s,
            attention_s=self.attention_s,
            pim_experts_s=pim_experts_s,
            gpu_experts=experts,
        )

    def evaluate(self, decision: Decision) -> Cost:
        """T_total, split by how many of communication, GPU and PIM are busy: all three, two, or one."""
        times = self.times(decision)
        least, middle, most = sorted((times.comm_s, times.gpu_s, times.pim_s))
        parts = {"three_busy_s": least, "two_busy_s": middle - least, "one_busy_s": most - middle}
        return Cost(total_s=most, objective_s=most, parts=parts)

    def lower_bound(self) -> Bound:
        """Linear relaxation, with an average channel in place of the busiest."""
        from .workspace import Workspace

        return Bound(Workspace(self.home, self.homes).relaxation_s(self), "linear relaxation")

    def check(self, decision: Decision) -> str | None:
        """Every expert is on one side; any subset is allowed."""
        if decision.on_gpu.shape != (self.experts,):
            return f"{decision.on_gpu.size} experts are placed, the layer has {self.experts}"
        return None

    def infeasible(self) -> str | None:
        """Every subset of experts may go to the GPU, so there is always a partition."""
        return None


def problem_of(control: Control[Decision]) -> PartitionProblem:
    """The problem under solution, as what it is for solvers of this family."""
    problem = control.problem
    assert isinstance(problem, PartitionProblem)
    return problem


def as_numbers(values: object, what: str) -> NDArray[Any]:
    """Return a number or a list as an array of numbers. Raises BadInput where it holds anything else.

    Text, complex numbers, booleans and lists of different length inside each other are no numbers.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise BadInput(f"{what} are no plain list: {error}") from error
    if array.size and array.dtype.kind not in "iuf":
        raise BadInput(f"{what} must be numbers", where=f"they are {array.dtype}")
    return array


def check_tokens(tokens: object, experts: int) -> NDArray[np.int64]:
    """Return token counts as int64 [E]. Raises BadInput where they are no whole numbers of at least 0."""
    counts = as_numbers(tokens, "token counts")
    if counts.shape != (experts,):
        raise BadInput(
            f"token counts have the shape {counts.shape}", allowed=f"one count for each of {experts} experts"
        )
    if counts.dtype.kind not in "iu":
        raise BadInput("token counts must be whole numbers", where=f"they are {counts.dtype}")
    if counts.size and counts.min() < 0:
        expert = int(counts.argmin())
        raise BadInput(f"a token count is negative: {counts[expert]}", where=f"expert {expert}")
    if counts.size and counts.max() > MOST_TOKENS:
        raise BadInput(f"a token count of {counts.max()} is too large to add up")
    return np.ascontiguousarray(counts, dtype=np.int64)


def check_seconds(name: str, seconds: float) -> float:
    """Return a time. Raises BadInput where it is negative, infinite or NaN, or no number."""
    return _check_finite(name, seconds, "time of at least 0 s")


def check_batch(batch: float) -> float:
    """Return a number of tokens. Raises BadInput where it is negative, infinite or NaN, or no number."""
    return _check_finite("batch", batch, "number of tokens of at least 0")


def _check_finite(name: str, value: float, kind: str) -> float:
    try:
        if not isinstance(value, bool) and 0.0 <= value < math.inf:
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadInput(f"{name} must be a finite {kind}, not {shown(value)}")
