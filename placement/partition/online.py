"""The partition on a scheduler's critical path: one object per layer, a few microseconds per call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ...common.errors import BadInput
from ...common.jit import kernel
from .ours import FAST_NODES
from .problem import MOST_TOKENS, check_batch, check_seconds, check_tokens
from .workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .layer import PartitionLayer
    from .table import CostTable


class Split(NamedTuple):
    """Which experts go to the GPU, `on_gpu` bool [E], the T_total that is predicted, and a bound on it."""

    on_gpu: NDArray[np.bool_]
    total_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """(total - bound) / total: by how much a better partition could beat this one at most."""
        return max(0.0, 1.0 - self.bound_s / self.total_s) if self.total_s > 0.0 else 0.0


class OnlinePartition:
    """Splits one MoE layer step after step, and learns how long PIM takes.

    `split` may be called from any number of threads while another calls `observe`; kernels release the GIL.
    `table` (default: the layer's timing model) holds what was observed, and is where to save and load it.
    """

    def __init__(self, layer: PartitionLayer, table: CostTable | None = None) -> None:
        self.layer = layer
        self.table = table or layer.cost_table()
        self._experts = len(layer.home)
        self._top_k = layer.model.top_k
        self._fixed = layer.gpu.coefficients(0.0)
        self._per_token = layer.gpu.coefficients(1.0) - self._fixed
        self._effort = FAST_NODES if layer.homes == 1 else 0
        self._local = threading.local()
        self.split(np.zeros(self._experts, dtype=np.int64))  # compiles, or loads what was compiled

    def split(
        self,
        tokens: ArrayLike,
        attention_s: float = 0.0,
        comm_s: float = 0.0,
        *,
        batch: float | None = None,
    ) -> Split:
        """Return the partition of a step with `tokens` [E] per expert.

        `attention_s` is attention on PIM, `comm_s` the communication between GPUs, `batch` the tokens that
        pass router and shared experts (default: the routed ones over top-k). Raises BadInput where a count
        or a time cannot be, or where a home holds more experts with tokens than can be looked at.
        """
        counts = tokens if _ready(tokens, self._experts) else check_tokens(tokens, self._experts)
        check_seconds("attention_s", attention_s)
        check_seconds("comm_s", comm_s)
        passing = -1.0 if batch is None else check_batch(batch)
        workspace, coefficients = self._room()
        if not coefficients_of(self._fixed, self._per_token, counts, passing, self._top_k, coefficients):
            check_tokens(counts, self._experts)
        on_gpu = np.empty(self._experts, dtype=np.bool_)
        total_s, bound_s, looked = workspace.split(
            counts, self.table.snapshot.seconds, coefficients, attention_s, comm_s, self._effort, on_gpu
        )
        if looked < 0:
            check_tokens(counts, self._experts)
            raise BadInput(
                "a channel holds more experts with tokens than can be looked at",
                fix="spread the experts over more channels, or take layout tp",
            )
        return Split(on_gpu, total_s, bound_s)

    def observe(self, tokens: ArrayLike, seconds: ArrayLike) -> None:
        """Take in how long PIM took for experts with so many tokens; see `CostTable.observe`."""
        self.table.observe(tokens, seconds)

    def _room(self) -> tuple[Workspace, NDArray[np.float64]]:
        """Return this thread's workspace."""
        try:
            room: tuple[Workspace, NDArray[np.float64]] = self._local.room
        except AttributeError:
            workspace = Workspace(self.layer.home, self.layer.homes)
            room = self._local.room = workspace, np.empty(len(self._fixed))
        return room


def _ready(tokens: ArrayLike, experts: int) -> TypeGuard[NDArray[np.int64]]:
    """Tell whether kernels can read the counts as they are; they look for impossible ones themselves."""
    return (
        isinstance(tokens, np.ndarray)
        and tokens.dtype == np.int64
        and tokens.shape == (experts,)
        and tokens.flags.c_contiguous
    )


@kernel
def coefficients_of(
    fixed: NDArray[np.float64],
    per_token: NDArray[np.float64],
    tokens: NDArray[np.int64],
    batch: float,
    top_k: int,
    out: NDArray[np.float64],
) -> bool:
    """Write T_gpu's coefficients for a batch; below 0 it is the routed tokens over top-k.

    False, and nothing is written: a count cannot be.
    """
    routed = 0
    for count in tokens:
        if not 0 <= count <= MOST_TOKENS:
            return False
        routed += count
    if batch < 0.0:
        batch = routed / top_k
    for i in range(len(out)):
        out[i] = fixed[i] + batch * per_token[i]
    return True
