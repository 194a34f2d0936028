"""The devices of the presets: command by command as their simulators run them, and an expert on each."""

import math
from dataclasses import replace

import pytest

from moeplan.benchmarks.validation.pim_cases import simulated
from moeplan.hardware.pim import Pim
from moeplan.hardware.platform import load_platform

NS = 1e-9
BF16 = {"weight_bytes": 2.0, "activation_bytes": 2.0}


def preset(name: str) -> Pim:
    pim = load_platform(name).pim
    assert pim is not None
    return pim


HBM3 = preset("b200-hbmpim")


def attacc(*, power_limited: bool = True, refresh: bool = False) -> Pim:
    config = "HBM3_5.2Gbps" + ("" if power_limited else "_NPC") + ("/refresh" if refresh else "-norefresh")
    return simulated("attacc_bank", config, "").pim


def aim() -> Pim:
    return simulated("aim_simulator", "GDDR6_AiM_timing/no-reuse/norefresh", "").pim


def newton() -> Pim:
    return simulated("NeuPIMs-NewtonSim", "HBM2_8Gb_x128_singlepim/norefresh", "").pim


def test_aim_by_hand() -> None:
    # 64 columns in one row: mode 32, input 128, activation 56, MACs 128, two mode switches 64, read 5;
    # further tokens find the row open: 128 + 128 + 64 + 5. The simulator: 415 cycles, then 326 each.
    gemv = aim().gemv(512, 1024, groups=32, **BF16)
    assert gemv.seconds(1, idle=True) == pytest.approx(413 * 0.5 * NS)
    assert gemv.seconds(8, idle=True) == pytest.approx((413 + 7 * 325) * 0.5 * NS)


def test_newton_by_hand() -> None:
    # GWRITE 14 + 96 + 14, then a row of 91 + 14 + 32 x 2 + 6: 299 cycles, as NewtonSim counts. Further
    # tokens: 124 + 64 + 6, and the bank of the input row is closed and opened again, 1 + 14: 209.
    gemv = newton().gemv(64, 512, groups=32, **BF16)
    assert gemv.seconds(1, idle=True) == pytest.approx(299 * NS)
    assert gemv.seconds(4, idle=True) == pytest.approx(926 * NS)


def test_newton_activates_four_banks_at_a_time() -> None:
    # NeuPIMs: 32 banks as two ranks of four groups, the second rank one slot behind: 1 + 3 tFAW + tRCD.
    assert newton().open_s == pytest.approx((1 + 3 * 30 + 14) * NS)
    # 32 single precharges cover tRP of the banks that open first.
    assert newton().close_s == pytest.approx(32 * NS)
    # One window for 32 banks: 7 tFAW on top of tRCD.
    one_window = replace(HBM3, activation="four_per_faw", faw_banks=32)
    assert one_window.open_s - HBM3.open_s == pytest.approx(105 * NS)


def test_newton_loses_a_quarter_to_refresh() -> None:
    # Each 1950 ns one of two ranks refreshes for 260 and the channel waits for 230 more: 1.336 as long.
    gemv = preset("newton-hbm2").gemv(4096, 4096, groups=32, **BF16)
    assert gemv.refresh_factor == pytest.approx(1 / (1 - 490 / 1950))


def test_attacc_with_a_refresh() -> None:
    # [2048, 512] on one channel: 7957 cycles with one refresh in them, 7519 without.
    cycles = attacc(refresh=True).gemv(2048, 512, groups=1, k_banks=4, **BF16).seconds(idle=True) / 0.769e-9
    assert cycles == pytest.approx(7957, rel=0.01)


def test_hbm_pim_by_hand() -> None:
    # [4096, 1024] on 512 blocks: 8 sums each, 8 slices of 128 inputs. A slice writes 8 registers and
    # turns the bus, 32 + 21.5, opens two rows, 2 x 28, and takes 64 operations of 4: 365.5 ns. At the end
    # 8 results and two mode switches of 29: 90. The session takes 300; an idle device has no row to
    # close, but enters the mode: 29 - 14. All in all 3329, and 364 of 3900 are lost. PIMSimulator: 3662.
    hbm_pim = preset("samsung-hbmpim")
    gemv = hbm_pim.gemv(4096, 1024, groups=64, **BF16)
    assert gemv.mac_s == pytest.approx(8 * 256 * NS)
    seconds = (8 * 365.5 + 90 + 300 + 15) * NS / (1 - 364 / 3900)
    assert gemv.seconds(idle=True) == pytest.approx(seconds)
    assert seconds == pytest.approx(3662 * NS, rel=0.01)
    # Twice the rows are a second pass, which costs what a second token costs: 7037 both in PIMSimulator.
    twice = hbm_pim.gemv(8192, 1024, groups=64, **BF16)
    assert twice.seconds(idle=True) == pytest.approx(gemv.seconds(2, idle=True))


# ------------------------------------------------------------- a Qwen3-30B-A3B expert, worked example


@pytest.mark.parametrize(
    ("groups", "refresh", "gate", "down"),
    [(16, False, 1175, 855), (1, False, 11615, 11295), (1, True, 12491, 12171), (128, False, 711, 271)],
)
def test_expert_on_attacc(groups: int, refresh: bool, gate: int, down: int) -> None:
    # Cycles of the AttAcc simulator: one stack, one channel, and eight stacks, rows split.
    pim, options = attacc(refresh=refresh), {"groups": groups, "k_banks": 4, **BF16}
    measured = [(pim.gemv(768, 2048, **options), gate), (pim.gemv(2048, 768, **options), down)]
    for gemv, cycles in measured:
        assert gemv.seconds(idle=True) == pytest.approx(cycles * 0.769 * NS, rel=0.015)
    expert_s = pim.expert_s(2048, 768, matrices=3, **options)
    assert expert_s == pytest.approx((2 * gate + down) * 0.769 * NS, rel=0.015)
    if not refresh:
        assert pim.expert_s(2048, 768, matrices=3, tokens=4, **options) == pytest.approx(4 * expert_s)


def test_roofline_underestimates_pim() -> None:
    # Sieve: by 1.8x to 4.2x. On 16 channels the gate has 96 columns per bank, 576 cycles of MACs;
    # on 128 it has 32, 192 cycles, and the input write of 512 cycles decides.
    ratios = []
    for power_limited in (True, False):
        for groups in (16, 128):
            gemv = attacc(power_limited=power_limited).gemv(768, 2048, groups=groups, k_banks=4, **BF16)
            ratios.append(gemv.seconds(idle=True) / gemv.mac_s)
    assert ratios == pytest.approx([1175 / 576, 711 / 192, 983 / 384, 649 / 128], rel=0.02)


ROW_PER_BANK = {  # us for one and four tokens on 32, 2 and 1 pseudo-channels, refresh included
    "attacc": (2.68, 10.7, 28.9, 115.7, 57.3, 229.0),
    "attacc, no power limit": (2.11, 8.43, 21.4, 85.5, 42.3, 169.0),
    "hbm3": (1.86, 7.45, 19.4, 77.4, 38.3, 153.0),
    "hbm3, power-limited": (2.57, 10.3, 28.6, 114.0, 56.7, 227.0),
    "hbm3, four per tFAW": (3.13, 12.5, 36.0, 144.0, 71.5, 286.0),
    "spimoe": (2.80, 11.2, 31.6, 126.0, 62.8, 251.0),
}


@pytest.mark.parametrize("name", ROW_PER_BANK)
def test_expert_with_a_row_per_bank(name: str) -> None:
    # By hand for hbm3, 32 pseudo-channels: gate has 1 output per bank, 128 columns, 4 rows of
    # 19.375 + 31 x 2.5 + 5.625 + 16.25 = 118.75 ns; down 2 outputs, 96 columns, 3 rows. Input 160, 160
    # and 60 ns, about 2 x 1.25 ns per read: 2 x 637.5 + 421 = 1696 ns, x 1.0986 for refresh = 1.86 us.
    cycle = 0.769 * NS
    slow = replace(
        HBM3,
        pu_clock_hz=1 / (4 * cycle),
        mac_power_s=6 * cycle,
        t_ccd_s=4 * cycle,
        t_rcd_s=19 * cycle,
        t_rp_s=19 * cycle,
        t_ras_s=45 * cycle,
        t_rtp_s=8 * cycle,
        input_write_s=2 * cycle,
        result_read_s=2 * cycle,
    )
    device = {
        "attacc": slow,
        "attacc, no power limit": replace(slow, mac_power_s=0.0),
        "hbm3": HBM3,
        "hbm3, power-limited": replace(HBM3, mac_power_s=7 * 0.625 * NS),
        "hbm3, four per tFAW": replace(HBM3, activation="four_per_faw", faw_banks=32),
        "spimoe": replace(HBM3, pu_lanes=8),
    }[name]
    seconds = [
        device.expert_s(2048, 768, matrices=3, groups=groups, tokens=tokens, **BF16)
        for groups in (32, 2, 1)
        for tokens in (1, 4)
    ]
    assert seconds == pytest.approx([us * 1e-6 for us in ROW_PER_BANK[name]], rel=0.01)


def test_best_layout_splits_inputs_over_groups() -> None:
    # One stack: gate takes 700 ns by rows and 430 split eight ways, down 463 and 430 split four ways;
    # eight stacks: 700 and 89 split 32 ways (M = 12 columns: 68.75 ns, + 5 of input, + 7.5 of reads).
    for outputs, inputs, groups, k_groups, rows_ns, best_ns in (
        (768, 2048, 32, 8, 700, 430),
        (2048, 768, 32, 4, 463, 430),
        (768, 2048, 256, 32, 700, 89),
        (2048, 768, 256, 8, 286, 89),
    ):
        rows_s = HBM3.gemv_s(outputs, inputs, groups=groups, **BF16)
        best = HBM3.best_layout(outputs, inputs, groups=groups, host_bytes_per_s=math.inf, **BF16)
        assert rows_s == pytest.approx(rows_ns * NS, rel=0.02)
        assert (best.k_banks, best.k_groups) == (1, k_groups)
        assert best.seconds == pytest.approx(best_ns * NS, rel=0.04)


def test_best_layout_counts_the_host_reduction() -> None:
    # At 1 GB/s the partial sums of two groups, 2 x 768 x 2 bytes, cost 3 us: no split over groups pays.
    best = HBM3.best_layout(768, 2048, groups=32, host_bytes_per_s=1e9, **BF16)
    assert best.k_groups == 1
    assert best.seconds == min(
        HBM3.gemv_s(768, 2048, groups=32, k_banks=k, **BF16) for k in (1, 2, 4, 8, 16, 32)
    )
