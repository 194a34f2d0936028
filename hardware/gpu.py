"""Time of kernels on a GPU: a roofline with efficiencies and a constant per kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


#: Most bytes of a weight of four bits with its scales: a byte per 16 weights in NVFP4, per 32 in MXFP4.
_FOUR_BIT_BYTES = 0.5625


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU at datasheet rates (dense, not sparse), and what kernels reach of them."""

    memory_bandwidth_bytes_per_s: float
    memory_bytes: float
    peak_flop_per_s: Mapping[str, float]
    """By data type: bf16, fp8, int8, fp4."""
    nvlink_bytes_per_s: float
    """Of one GPU, in one direction."""
    memory_efficiency: float = 0.85
    """Share of the bandwidth that a kernel reaches: 0.85 in AttAcc; 0.80 to 0.94 in other sources."""
    compute_efficiency: float = 0.8
    """Share of the peak that a kernel reaches (AttAcc)."""
    kernel_s: float = 3e-6
    """Constant cost of a kernel (NVIDIA aiconfigurator)."""

    def peak(self, dtype: str) -> float:
        """Return the datasheet FLOP/s of `dtype`. Raises UsageError where the GPU has none."""
        try:
            return self.peak_flop_per_s[dtype]
        except KeyError:
            fix = did_you_mean(dtype, self.peak_flop_per_s)
            raise UsageError(f"this GPU has no peak rate for {dtype!r}", fix=fix) from None

    def data_type(self, weight_bytes: float, activation_bytes: float) -> str:
        """Name the type that weights of this size are multiplied in.

        FP8 where a weight has one byte: activations are rounded on their way into the product. Smaller
        weights are unpacked to the type of the activations, so that FP4 takes activations of four bits as
        well. bf16 where the GPU has no peak for that type.
        """
        width = weight_bytes if weight_bytes >= 1.0 else max(weight_bytes, activation_bytes)
        dtype = "fp4" if width <= _FOUR_BIT_BYTES else "fp8" if width == 1.0 else "bf16"
        return dtype if dtype in self.peak_flop_per_s else "bf16"

    def machine_balance(self, dtype: str) -> float:
        """Return FLOP per byte of memory traffic at which the datasheet roofline bends (ReXpert Table I)."""
        return self.peak(dtype) / self.memory_bandwidth_bytes_per_s

    def roofline_s(self, traffic_bytes: float, flop: float, dtype: str) -> float:
        """Return the longer of moving `traffic_bytes` and computing `flop`, without the kernel constant."""
        memory_s = traffic_bytes / (self.memory_bandwidth_bytes_per_s * self.memory_efficiency)
        return max(memory_s, flop / (self.peak(dtype) * self.compute_efficiency))

    def grouped_gemm_s(
        self,
        tokens_per_expert: ArrayLike,
        hidden: int,
        intermediate: int,
        *,
        matrices: int,
        weight_bytes: float,
        activation_bytes: float,
        dtype: str,
    ) -> float:
        """Return the time of all experts' feed-forward layers in one kernel; `tokens_per_expert` [E].

        Weights of an expert are read once if it has any token; each routed token is read and written
        once at width `hidden`, what lies between stays on chip. 0.0 where no expert has a token.
        """
        tokens = np.asarray(tokens_per_expert)
        routed = float(tokens.sum())
        if routed == 0.0:
            return 0.0
        parameters = matrices * hidden * intermediate
        weights = np.count_nonzero(tokens) * parameters * weight_bytes
        activations = 2 * routed * hidden * activation_bytes
        return self.kernel_s + self.roofline_s(weights + activations, 2 * routed * parameters, dtype)

    def attention_s(
        self,
        *,
        projection_bytes: float,
        projection_flop: float,
        cache_bytes: float,
        cache_flop: float,
        projection_dtype: str,
        cache_dtype: str,
        kernels: int = 3,
    ) -> float:
        """Return the time of the attention of one layer and step: projections, then the pass over the cache.

        Each is a roofline of its own, because the pass waits for the query. `cache_bytes` is what is read
        and written of keys and values, latents or states. `kernels`: input projection, attention, output
        projection. 0.0 where there is nothing to do.
        """
        projection_s = self.roofline_s(projection_bytes, projection_flop, projection_dtype)
        cache_s = self.roofline_s(cache_bytes, cache_flop, cache_dtype)
        busy_s = projection_s + cache_s
        return kernels * self.kernel_s + busy_s if busy_s else 0.0
