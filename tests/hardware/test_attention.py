import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.hardware.gpu import Gpu

# 1 TB/s and 100 TFLOPS at bf16, 200 at fp8, everything reached, 1 us per kernel.
ROUND = Gpu(
    memory_bandwidth_bytes_per_s=1e12,
    memory_bytes=1e11,
    peak_flop_per_s={"bf16": 1e14, "fp8": 2e14},
    nvlink_bytes_per_s=1e11,
    memory_efficiency=1.0,
    compute_efficiency=1.0,
    kernel_s=1e-6,
)
FP8 = {"projection_dtype": "fp8", "cache_dtype": "fp8"}
amounts = st.floats(min_value=0.0, max_value=1e12)


def test_projections_and_cache_follow_each_other() -> None:
    # 5 MB of projections: 5 us; 20 MB of cache: 20 us; three kernels: 3 us.
    seconds = ROUND.attention_s(
        projection_bytes=5e6, projection_flop=1e6, cache_bytes=20e6, cache_flop=1e6, **FP8
    )
    assert seconds == pytest.approx(28e-6)


def test_each_part_has_its_own_roofline_and_type() -> None:
    # Projections compute: 4 GFLOP at 200 TFLOPS = 20 us against 5 us of bytes. The cache computes as
    # well: 3 GFLOP at 100 TFLOPS = 30 us against 20 us. One kernel.
    seconds = ROUND.attention_s(
        projection_bytes=5e6,
        projection_flop=4e9,
        cache_bytes=20e6,
        cache_flop=3e9,
        projection_dtype="fp8",
        cache_dtype="bf16",
        kernels=1,
    )
    assert seconds == pytest.approx(51e-6)


def test_nothing_to_do_starts_no_kernel() -> None:
    nothing = {"projection_bytes": 0.0, "projection_flop": 0.0, "cache_bytes": 0.0, "cache_flop": 0.0}
    assert ROUND.attention_s(**nothing, **FP8) == 0.0


@settings(deadline=None, derandomize=True)
@given(st.lists(amounts, min_size=4, max_size=4), st.integers(0, 3), amounts)
def test_more_work_never_takes_less(work: list[float], which: int, more: float) -> None:
    names = ("projection_bytes", "projection_flop", "cache_bytes", "cache_flop")
    least = dict(zip(names, work, strict=True))
    grown = least | {names[which]: work[which] + more}
    assert ROUND.attention_s(**least, **FP8) <= ROUND.attention_s(**grown, **FP8)
