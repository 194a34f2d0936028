"""Arrays that the partition kernels work in, and the calls that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .branch import FLOAT_ROWS, INT_ROWS, relaxation_s, split_pool
from .homes import split_homes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .problem import PartitionProblem

#: Token counts below this are sorted by counting.
_HISTOGRAM = 4096


class Answer(NamedTuple):
    """What a split found: T_total and a bound on it, and how many partitions or nodes it looked at.

    -1: a token count is negative; -2: too many choices to list.
    """

    total_s: float
    bound_s: float
    looked: int


class Workspace:
    """Room for layers of E experts, of which every thread needs its own.

    `home` int64 [E] of `homes` channels; with one home the experts share one pool.
    """

    def __init__(self, home: NDArray[np.int64], homes: int) -> None:
        experts = len(home)
        self._homes = homes
        self._histogram = np.zeros(_HISTOGRAM, dtype=np.int64)
        self._floats = np.zeros((FLOAT_ROWS, experts + 2))
        self._ints = np.zeros((INT_ROWS, max(experts, homes) + 2), dtype=np.int64)
        self._home_start = np.concatenate([[0], np.cumsum(np.bincount(home, minlength=homes))])
        self._home_experts = np.argsort(home, kind="stable")

    def split(
        self,
        tokens: NDArray[np.int64],
        table: NDArray[np.float64],
        coefficients: NDArray[np.float64],
        attention_s: float,
        comm_s: float,
        effort: int,
        mask: NDArray[np.bool_],
    ) -> Answer:
        """Write which experts go to the GPU into `mask` [E].

        `effort`: nodes that may be searched where experts share one pool; with homes, 0 leaves out the exact
        treatment of memory and computation that bind at the same time.
        """
        if self._homes == 1:
            found = split_pool(
                tokens, table, coefficients, attention_s, comm_s, effort,
                self._histogram, self._floats, self._ints, mask,
            )  # fmt: skip
        else:
            found = split_homes(
                tokens, table, coefficients, attention_s, comm_s, effort > 0,
                self._home_start, self._home_experts, self._floats[0], self._ints, mask,
            )  # fmt: skip
        return Answer(*found)

    def relaxation_s(self, problem: PartitionProblem) -> float:
        """Return the bound of the linear relaxation."""
        p = problem
        return relaxation_s(
            p.coefficients, p.attention_s, p.comm_s, p.homes, p.tokens, p.table,
            self._histogram, self._floats, self._ints,
        )  # fmt: skip
