"""Whether weights, caches and states of decode steps fit the memory of GPUs, and how many GPUs would do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .kv_cache import cache_bytes

if TYPE_CHECKING:
    from ..workload.model import MoEModel
    from .decode import Setup


@dataclass(frozen=True)
class GpuMemory:
    """What each of `gpus` GPUs holds, and what it has."""

    gpus: int
    memory_bytes: float
    capacity_bytes: float
    enough_gpus: int | None = None
    """The fewest that have room, of those that experts and requests can be split over; None: no number."""
    least_gpus: int | None = None
    """The fewest by bytes alone; None where what every GPU holds is too much."""

    @property
    def fits(self) -> bool:
        """Whether there is room."""
        return self.memory_bytes <= self.capacity_bytes

    @property
    def figures(self) -> dict[str, bool | float]:
        """For an answer's JSON."""
        return {
            "fits": self.fits,
            "memory_bytes": self.memory_bytes,
            "capacity_bytes": self.capacity_bytes,
        }

    @property
    def shortage(self) -> str:
        """Say what is missing, and what would do."""
        many = "the GPU" if self.gpus == 1 else f"one of {self.gpus} GPUs"
        return (
            f"weights and caches need {self.memory_bytes / 1e9:,.1f} GB of {many}, which has "
            f"{self.capacity_bytes / 1e9:,.1f} GB: times are those of GPUs with more memory; {self._remedy}"
        )

    @property
    def _remedy(self) -> str:
        if self.enough_gpus is not None:
            return f"{self.enough_gpus} GPUs have room"
        if self.least_gpus is None:
            return "no number of GPUs has room, since each holds all that is not a routed expert"
        return (
            f"by bytes alone it takes {self.least_gpus:,} GPUs, over which experts and requests "
            "cannot be split evenly"
        )


def decode_memory(setup: Setup, batch: int, steps: int) -> GpuMemory:
    """Return what each GPU of a setup holds at the last of `steps` decode steps of `batch` requests.

    Routed experts and requests with their caches are split over the GPUs, attention's weights over
    `tensor_parallel` of them; everything else is on every GPU. Prompts are cached as well. Caches are of the
    model's activation type; what kernels need besides is not counted.
    """
    model = setup.model
    kept = cache_bytes(model)
    prompts = setup.prefill.requests * kept.of(setup.prefill.tokens) if setup.prefill.requests else 0.0
    split = model.routed_bytes + batch * kept.of(setup.context + steps) + prompts
    everywhere = _everywhere_bytes(model, setup.tensor_parallel)
    return gpu_memory(
        gpus=setup.gpus,
        memory_bytes=everywhere + split / setup.gpus,
        capacity_bytes=setup.gpu.memory_bytes,
        everywhere_bytes=everywhere,
        split_bytes=split,
        units=math.gcd(batch, model.experts, setup.prefill.requests * setup.prefill.tokens),
        multiple=setup.tensor_parallel,
    )


def gpu_memory(
    *,
    gpus: int,
    memory_bytes: float,
    capacity_bytes: float,
    everywhere_bytes: float,
    split_bytes: float,
    units: int,
    multiple: int = 1,
) -> GpuMemory:
    """Return the memory of GPUs, and what would do: as many as divide `units` and are a `multiple`.

    Each holds `everywhere_bytes` and its part of `split_bytes`.
    """
    if memory_bytes <= capacity_bytes:
        return GpuMemory(gpus, memory_bytes, capacity_bytes, gpus, gpus)
    if everywhere_bytes >= capacity_bytes:
        return GpuMemory(gpus, memory_bytes, capacity_bytes)
    least = math.ceil(split_bytes / (capacity_bytes - everywhere_bytes))
    can = (more for more in range(least, units + 1) if units % more == more % multiple == 0)
    return GpuMemory(gpus, memory_bytes, capacity_bytes, next(can, None), least)


def _everywhere_bytes(model: MoEModel, tensor_parallel: int) -> float:
    """All that is not a routed expert, with a t-th of attention."""
    saved = model.attention_params * model.other_weight_bytes * (1.0 - 1.0 / tensor_parallel)
    return model.other_bytes - saved
