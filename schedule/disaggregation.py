"""Attention on GPUs, experts on near-memory dies: stage times, the pools that meet a target, energy.

The two pools work on different decode waves at the same time, so that tokens leave at the pace of the slower
one: TPOT = max(t_attn, t_ffn). GPUs that run both stages take the sum (ReXpert sections VI and VII-D). A step
serves one token of every request of its batch; ReXpert prints step times divided by the batch. Transfers
between pools are left out, as there. The dies' time is that of all bytes and FLOPs of a step over the whole
pool: a pace, which waves in all layers at once keep up; one wave goes through its layers one after the other
and takes longer (`Provision.wave_s`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ..common.errors import ProvenInfeasible, UsageError
from ..hardware.energy import REXPERT, REXPERT_HBM_J_PER_BYTE
from ..hardware.nearmem import REXPERT_DIE_BUDGET
from .decode_step import DTYPE, decode_step

if TYPE_CHECKING:
    from ..hardware.energy import EnergyModel
    from ..hardware.gpu import Gpu
    from ..hardware.nearmem import Die
    from ..workload.model import MoEModel
    from .decode_step import Account, DecodeStep

H20_W: Final = 400.0
"""Board power of an H20 (NVIDIA's product specification, cited in ReXpert section VII-E)."""
DIE_W: Final = sum(part.power_w for part in REXPERT_DIE_BUDGET)
"""Power of a ReXpert die of side 4 (Table XII)."""
MOST_DEVICES: Final = 10**9


@dataclass(frozen=True)
class Stages:
    """Times of one decode step on given pools."""

    batch: int
    attention_s: float
    ffn_s: float
    """On the dies."""
    ffn_gpu_s: float
    """On the GPUs instead."""

    @property
    def tpot_s(self) -> float:
        """Pipelined: the pace of the slower pool."""
        return max(self.attention_s, self.ffn_s)

    @property
    def homogeneous_s(self) -> float:
        """TPOT of the same GPUs without dies."""
        return self.attention_s + self.ffn_gpu_s

    @property
    def gain(self) -> float:
        """Homogeneous over pipelined TPOT."""
        return self.homogeneous_s / self.tpot_s

    def per_token(self, seconds: float) -> float:
        """Return a step's time divided by the batch, as Table XI prints it."""
        return seconds / self.batch


def ffn_s(step: DecodeStep, die: Die, dies: int) -> float:
    """Return the time of the experts on `dies` dies: the longer of reading and computing, no stragglers."""
    return die.pool(dies).roofline_s(step.ffn_bytes, step.ffn_flop)


def stages(step: DecodeStep, die: Die, dies: int, gpu: Gpu, gpus: float) -> Stages:
    """Return the times of a step. Raises ProvenInfeasible where the dies cannot hold the experts."""
    check_capacity(step.resident_bytes, die, dies)
    if not 0 < gpus < math.inf:
        raise UsageError(f"attention cannot run on {gpus} GPUs", allowed="more than 0")
    return Stages(
        batch=step.batch,
        attention_s=step.attention_s(gpu, gpus),
        ffn_s=ffn_s(step, die, dies),
        ffn_gpu_s=step.ffn_gpu_s(gpu, gpus),
    )


def check_capacity(weight_bytes: float, die: Die, dies: int) -> None:
    """Raise ProvenInfeasible where the experts do not fit into the dies; says how many it takes."""
    needed = die.dies_for(weight_bytes)
    if dies < needed:
        raise ProvenInfeasible(
            f"{dies} dies hold {dies * die.units.memory_bytes / 2**30:.2f} GiB, and the experts are "
            f"{weight_bytes / 2**30:.2f} GiB",
            where="--dies or nearmem.pool.dies",
            allowed=f"at least {needed} dies",
            fix=f"take {needed} dies, or deeper arrays",
        )


def gpus_for_memory(step: DecodeStep, gpu: Gpu) -> int:
    """Return the fewest GPUs whose memory holds the weights and caches of attention."""
    return math.ceil(step.attention_resident_bytes / gpu.memory_bytes)


def equal_compute_gpus(die: Die, dies: int, gpu: Gpu) -> float:
    """Return how many GPUs have the peak of the dies, a fraction included (Table V)."""
    return die.pool(dies).flop_per_s / gpu.peak(DTYPE)


class Size(NamedTuple):
    """The smallest pool that will do."""

    devices: int
    limit: str
    """Why no smaller one does: "memory" or "time"."""
    seconds: float
    """Of a step on it."""


@dataclass(frozen=True)
class Pools:
    """The smallest pools that meet a target, each proven: one device fewer does not do."""

    target_s: float
    dies: Size
    gpus: Size
    homogeneous: Size
    """GPUs alone, for both stages."""

    @property
    def tpot_s(self) -> float:
        """Pipelined, on `dies` and `gpus`."""
        return max(self.dies.seconds, self.gpus.seconds)


def smallest_pools(step: DecodeStep, die: Die, gpu: Gpu, target_s: float) -> Pools:
    """Return the fewest dies and GPUs with TPOT <= `target_s`.

    Pipelined stages meet the target each by itself, and a stage's time never grows with its pool, so that
    bisection over whole devices is exact. Raises ProvenInfeasible where constants of kernels alone take
    longer than the target, UsageError on a target that is not positive.
    """
    if not 0 < target_s < math.inf:
        raise UsageError(f"a TPOT of {target_s} s cannot be aimed at", allowed="a positive time")
    both = step.attention_resident_bytes + step.resident_bytes
    return Pools(
        target_s=target_s,
        dies=_smallest(
            "the dies", lambda n: ffn_s(step, die, n), target_s, die.dies_for(step.resident_bytes)
        ),
        gpus=_smallest(
            "attention",
            lambda n: step.attention_s(gpu, n),
            target_s,
            gpus_for_memory(step, gpu),
        ),
        homogeneous=_smallest(
            "GPUs alone",
            lambda n: step.attention_s(gpu, n) + step.ffn_gpu_s(gpu, n),
            target_s,
            math.ceil(both / gpu.memory_bytes),
        ),
    )


def _smallest(what: str, time_s: Callable[[int], float], target_s: float, least: int) -> Size:
    """Return the fewest devices, at least `least`, with time_s <= target_s; time_s falls with devices."""
    low = max(least, 1)
    if time_s(low) <= target_s:
        return Size(low, "memory", time_s(low))
    high = low
    while time_s(high) > target_s:
        high *= 2
        if high > MOST_DEVICES:
            raise ProvenInfeasible(
                f"{what} cannot take less than {target_s:.3g} s, however many devices there are",
                where="--tpot-target",
                allowed=f"more than {time_s(MOST_DEVICES):.3g} s",
                fix="relax the target, or take a smaller batch",
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if time_s(middle) <= target_s else (middle, high)
    return Size(high, "time", time_s(high))


@dataclass(frozen=True)
class Ratio:
    """GPUs per die at which both stages take the same time; below 1 the dies are the larger pool."""

    batch: int
    context: int
    gpus: float
    ratio: float


def balanced_ratios(
    model: MoEModel,
    die: Die,
    dies: int,
    gpu: Gpu,
    *,
    unions: dict[int, float],
    contexts: Sequence[int],
    account: Account = "published",
) -> tuple[Ratio, ...]:
    """Return the attention/FFN die ratio over batches (the keys of `unions`: U by batch) and contexts.

    A ratio is infinite where kernel constants of attention alone take as long as the experts.
    """
    found = []
    for batch, union in unions.items():
        for context in contexts:
            step = decode_step(model, batch=batch, context=context, union=union, account=account)
            spare_s = ffn_s(step, die, dies) - step.kernels_s(gpu)
            busy_s = step.attention_s(gpu, 1) - step.kernels_s(gpu)
            gpus = busy_s / spare_s if spare_s > 0 else math.inf
            found.append(Ratio(batch, context, gpus, gpus / dies))
    return tuple(found)


@dataclass(frozen=True)
class PoolEnergy:
    """Energy per token, and power, of the feed-forward pool and of the GPUs that could replace it."""

    weights_bytes: float
    """Weights moved per token."""
    weights_j: float
    """Moving them out of ReRAM."""
    weights_hbm_j: float
    """Moving them out of HBM, as ReXpert counts it."""
    compute_j: float
    link_j: float
    """Activations and partial sums between dies."""
    dies_w: float
    """Power of all dies, by their budget."""
    gpus_w: float
    """Power of the GPUs of the same peak."""
    dies_j: float
    """dies_w for as long as a token takes."""
    gpus_j: float

    @property
    def dynamic_j(self) -> float:
        """Reading, computing and exchanging, per token."""
        return self.weights_j + self.compute_j + self.link_j


def pool_energy(
    step: DecodeStep,
    die: Die,
    dies: int,
    gpu: Gpu,
    gpus: float,
    *,
    router_bytes: float = 0.0,
    link_bytes: float = 0.0,
    energy: EnergyModel = REXPERT,
    die_w: float = DIE_W,
    gpu_w: float = H20_W,
) -> PoolEnergy:
    """Return the energy of the feed-forward stage (Tables VII and XII, section VII-E).

    `router_bytes` of a step are no expert weights and are left out of what Table VII counts;
    `link_bytes`: between dies, per step.
    """
    weights = (step.ffn_bytes - router_bytes) / step.batch
    work = energy.energy(
        read_bytes=weights, flop=step.ffn_flop / step.batch, link_bytes=link_bytes / step.batch
    )
    dies_w, gpus_w = dies * die_w, gpus * gpu_w
    return PoolEnergy(
        weights_bytes=weights,
        weights_j=work.read_j,
        weights_hbm_j=weights * REXPERT_HBM_J_PER_BYTE,
        compute_j=work.compute_j,
        link_j=work.link_j,
        dies_w=dies_w,
        gpus_w=gpus_w,
        dies_j=dies_w * ffn_s(step, die, dies) / step.batch,
        gpus_j=gpus_w * step.ffn_gpu_s(gpu, gpus) / step.batch,
    )
