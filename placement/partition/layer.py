"""What a partition's cost depends on besides the step: model, platform, layer, layout and homes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...common.errors import BadInput, UsageError, shown
from .costs import GpuCosts, attention_on_pim_s, expert_on_pim, gpu_costs, homes
from .problem import PartitionProblem, as_numbers, check_batch, check_seconds, check_tokens
from .table import CostTable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ...hardware.platform import Platform
    from ...workload.model import MoEModel

LayoutName = Literal["tp", "ep"]
LAYOUTS: tuple[LayoutName, ...] = ("tp", "ep")


@dataclass(frozen=True, eq=False)
class PartitionLayer:
    """One MoE layer of a model on a GPU with PIM channels. Build it with `partition_layer`.

    `home` int64 [E]: the channel of every expert, all 0 in layout `tp`; `homes`: how many there are.
    `pim_model` gives the timing model's PIM seconds `[n + 1]` of 0 to n tokens.
    """

    model: MoEModel
    platform: Platform
    layer: int
    layout: LayoutName
    gpu: GpuCosts
    home: NDArray[np.int64]
    homes: int
    pim_model: Callable[[int], NDArray[np.float64]]

    @cached_property
    def timing(self) -> CostTable:
        """The cost table of the timing model alone."""
        return self.cost_table()

    def cost_table(self, *, weight: float = 0.25, never_decreasing: bool = False) -> CostTable:
        """Return a new cost table that starts from the timing model."""
        return CostTable(self.pim_model, weight=weight, never_decreasing=never_decreasing)

    def attention_s(self, contexts: Sequence[int]) -> float:
        """Return the PIM time of the layer's attention; see `costs.attention_on_pim_s`."""
        return attention_on_pim_s(self.model, self.platform, contexts, self.layer)

    def problem(
        self,
        tokens: ArrayLike,
        *,
        attention_s: float = 0.0,
        comm_s: float = 0.0,
        batch: float | None = None,
        table: CostTable | None = None,
    ) -> PartitionProblem:
        """Pose the question for one step with `tokens` [E] per expert.

        `batch` are the tokens that pass router and shared experts (default: the routed ones over top-k).
        Raises BadInput where a count or a time cannot be.
        """
        counts = check_tokens(tokens, len(self.home)).copy()
        passing = counts.sum() / self.model.top_k if batch is None else batch
        coefficients = self.gpu.coefficients(check_batch(passing))
        for array in (counts, coefficients):
            array.flags.writeable = False
        return PartitionProblem(
            counts,
            (table or self.timing).snapshot.seconds,
            coefficients,
            check_seconds("attention_s", attention_s),
            check_seconds("comm_s", comm_s),
            self.home,
            self.homes,
        )


def partition_layer(
    model: MoEModel,
    platform: Platform,
    *,
    layer: int | None = None,
    layout: LayoutName = "tp",
    home: ArrayLike | None = None,
    experts: int | None = None,
) -> PartitionLayer:
    """Describe one MoE layer (absolute id; default: the first) on a platform with GPU and PIM.

    `layout`: `tp`, every expert over all channels, or `ep`, expert e on the channel `home[e]` (default:
    contiguous). `experts`: how many of the model's experts live here, where several machines share them.
    Raises BadInput or UsageError where these do not belong together.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", allowed=", ".join(LAYOUTS))
    layer = model.moe_layers[0] if layer is None else layer
    if layer not in model.moe_layers:
        raise BadInput(f"{model.name} has no MoE layer {layer}", allowed=f"one of {model.moe_layers}")
    count = model.experts if experts is None else _count(experts, model)
    gpu, pim_model = gpu_costs(model, platform, layer), expert_on_pim(model, platform, layout)
    places = homes(platform, layout)
    fixed = _homes(home, count, places, layout)
    return PartitionLayer(model, platform, layer, layout, gpu, fixed, places, pim_model)


def _count(experts: int, model: MoEModel) -> int:
    """Return a number of the model's experts, checked."""
    whole = hasattr(experts, "__index__") and not isinstance(experts, bool)
    if not whole or not 0 <= experts <= model.experts:
        raise UsageError(
            f"{shown(experts)} is no number of experts of {model.name}",
            where="experts",
            allowed=f"whole numbers from 0 to {model.experts}",
        )
    return operator.index(experts)


def _homes(home: ArrayLike | None, experts: int, places: int, layout: str) -> NDArray[np.int64]:
    """Return the home of every expert, checked."""
    if home is None:
        fixed = np.arange(experts, dtype=np.int64) * places // max(experts, 1)
    elif layout == "tp":
        raise UsageError("experts have homes in layout ep only", fix="leave home out, or take layout ep")
    else:
        given = as_numbers(home, "homes")
        good = given.shape == (experts,) and given.dtype.kind in "iu"
        if not good or (given.size and (given.min() < 0 or given.max() >= places)):
            raise BadInput(f"homes must be {experts} channel ids", allowed=f"0 to {places - 1}")
        fixed = given.astype(np.int64)
    fixed.flags.writeable = False
    return fixed
