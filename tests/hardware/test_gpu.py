import pytest

from moeplan.common.errors import UsageError
from moeplan.hardware.gpu import Gpu
from moeplan.hardware.platform import load_platform

# A GPU with round numbers: 1 TB/s, 100 TFLOPS, everything reached, 1 us per kernel.
ROUND = Gpu(
    memory_bandwidth_bytes_per_s=1e12,
    memory_bytes=1e11,
    peak_flop_per_s={"bf16": 1e14},
    nvlink_bytes_per_s=1e11,
    memory_efficiency=1.0,
    compute_efficiency=1.0,
    kernel_s=1e-6,
)


def preset(name: str) -> Gpu:
    gpu = load_platform(name).gpu
    assert gpu is not None
    return gpu


def test_roofline_is_the_slower_of_memory_and_compute() -> None:
    # 1 MB at 1 TB/s is 1 us; 1 GFLOP at 100 TFLOPS is 10 us.
    assert ROUND.roofline_s(1e6, 0.0, "bf16") == pytest.approx(1e-6)
    assert ROUND.roofline_s(1e6, 1e9, "bf16") == pytest.approx(1e-5)


def test_machine_balances_of_rexpert_table_1() -> None:
    # FLOP per byte at FP8 is twice the tokens per read (B* = F / 2); times routed over activated
    # experts, 256 / 8 = 32 and 512 / 10 = 51.2, it is the batch that fills the machine.
    for name, tokens, batch_32, batch_51 in (("h20", 37, 1184, 1894), ("h100", 295, 9452, 15123)):
        tokens_per_read = preset(name).machine_balance("fp8") / 2
        assert tokens_per_read == pytest.approx(tokens, rel=0.01)
        assert tokens_per_read * 32 == pytest.approx(batch_32, rel=0.001)
        assert tokens_per_read * 51.2 == pytest.approx(batch_51, rel=0.001)
    assert preset("h20").machine_balance("fp8") == pytest.approx(74)
    assert preset("h100").machine_balance("fp8") == pytest.approx(591, rel=0.001)


def test_reading_one_qwen3_expert() -> None:
    # 3 x 2048 x 768 weights of 2 bytes = 9.437 MB; 8 TB/s x 0.85 take 1.39 us, 2.039 TB/s x 0.85 5.4 us.
    expert_bytes = 3 * 2048 * 768 * 2
    assert preset("b200").roofline_s(expert_bytes, 0.0, "bf16") == pytest.approx(1.39e-6, rel=0.005)
    assert preset("a100-80g").roofline_s(expert_bytes, 0.0, "bf16") == pytest.approx(5.4e-6, rel=0.01)


def test_grouped_gemm_reads_activated_weights_once() -> None:
    # Two of three experts, 3 x 100 x 50 = 15000 weights of 2 bytes each: 60000 bytes. Five tokens in and
    # out at 100 x 2 bytes: 2000 bytes. 62 ns at 1 TB/s. 2 x 5 x 15000 FLOP = 1.5 ns at 100 TFLOPS.
    seconds = ROUND.grouped_gemm_s(
        [4, 0, 1], 100, 50, matrices=3, weight_bytes=2.0, activation_bytes=2.0, dtype="bf16"
    )
    assert seconds == pytest.approx(1e-6 + 62e-9)


def test_grouped_gemm_can_be_compute_bound() -> None:
    # 1e5 tokens x 2 x 2 x 100 x 50 = 2 GFLOP: 20 us. Traffic is 20000 bytes + 2e5 x 200 bytes = 40 us,
    # so narrow tokens are memory-bound; at one byte per activation both take 20 us.
    narrow = ROUND.grouped_gemm_s(
        [100_000], 100, 50, matrices=2, weight_bytes=1.0, activation_bytes=2.0, dtype="bf16"
    )
    assert narrow == pytest.approx(1e-6 + 40.01e-6)  # 10000 weights of one byte: 0.01 us
    wide = ROUND.grouped_gemm_s(
        [100_000], 100, 5000, matrices=2, weight_bytes=1.0, activation_bytes=2.0, dtype="bf16"
    )
    assert wide == pytest.approx(1e-6 + 2000e-6)  # 100 times the FLOP: 2 ms


def test_no_token_takes_no_time() -> None:
    assert (
        ROUND.grouped_gemm_s([0, 0], 8, 8, matrices=3, weight_bytes=2.0, activation_bytes=2.0, dtype="bf16")
        == 0.0
    )


def test_unknown_dtype_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        preset("a100-80g").peak("fp8")
    assert "fp8" in caught.value.what
    assert "int8" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "weight_bytes", "activation_bytes", "dtype"),
    [
        ("b200", 2.0, 2.0, "bf16"),
        ("b200", 1.0, 2.0, "fp8"),
        ("b200", 1.0, 0.5, "fp8"),
        ("a100-80g", 1.0, 2.0, "bf16"),  # has no FP8
        # Weights alone in four bits, plain or with the scales of MXFP4 and NVFP4, are unpacked.
        ("b200", 0.5, 2.0, "bf16"),
        ("b200", 0.53125, 2.0, "bf16"),
        ("b200", 0.5625, 2.0, "bf16"),
        ("b200", 0.53125, 1.0, "fp8"),
        ("b200", 0.53125, 0.53125, "fp4"),
        ("b200", 0.5625, 0.5, "fp4"),
        ("h100", 0.5, 0.5, "bf16"),  # has no FP4
    ],
)
def test_four_bit_weights_are_unpacked_to_the_type_of_the_activations(
    name: str, weight_bytes: float, activation_bytes: float, dtype: str
) -> None:
    assert preset(name).data_type(weight_bytes, activation_bytes) == dtype
