import csv
import math
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.pim import Gemv, Layout, Operation, Pim, Refresh

NS = 1e-9
BF16 = {"weight_bytes": 2.0, "activation_bytes": 2.0}
AVERAGE = Refresh(rule="average", interval_s=3900 * NS, cycle_s=350 * NS)
STRETCH = 1 / (1 - 350 / 3900)

# Round numbers for arithmetic by hand: 4 banks, rows of 4 columns of 32 B (16 bf16 weights), a MAC
# per 2 ns, activation 10 ns, precharge 8 ns, tRTP 5 ns, input 1 ns per 32 B, a read of the 4 results 3 ns.
TOY = Pim(
    ranks=1,
    bank_groups=1,
    banks_per_bank_group=4,
    row_bytes=128,
    column_bytes=32,
    pu_lanes=16,
    pu_clock_hz=1e9,
    t_ccd_s=2 * NS,
    t_rcd_s=10 * NS,
    t_rp_s=8 * NS,
    t_ras_s=12 * NS,
    t_rtp_s=5 * NS,
    input_write_s=1 * NS,
    read_width_bytes=8,
    result_read_s=3 * NS,
)

# Ramulator 2.1, HBM3_6400: cycles of 0.625 ns; one pseudo-channel of 32 banks, a PU that never limits.
HBM3 = Pim(
    ranks=2,
    bank_groups=4,
    banks_per_bank_group=4,
    row_bytes=1024,
    column_bytes=32,
    pu_lanes=16,
    pu_clock_hz=400e6,
    t_ccd_s=2.5 * NS,
    t_rcd_s=19.375 * NS,
    t_rp_s=16.25 * NS,
    t_ras_s=28.125 * NS,
    t_rtp_s=5.625 * NS,
    t_faw_s=15 * NS,
    input_write_s=1.25 * NS,
    read_width_bytes=32,
    result_read_s=1.25 * NS,
    refresh=AVERAGE,
)


def attacc(*, power_limited: bool = True, refresh: bool = False) -> Pim:
    """HBM3_5.2Gbps of scale-snu/attacc_simulator: a legacy channel of two pseudo-channels and two ranks.

    Sixteen outputs per PU are read as one 32-B register, by both pseudo-channels at once, while the
    next row opens; rows turn over while the input is written.
    """
    cycle = 0.769 * NS
    return Pim(
        ranks=4,
        bank_groups=4,
        banks_per_bank_group=4,
        row_bytes=1024,
        column_bytes=32,
        pu_lanes=16,
        pu_clock_hz=1 / (4 * cycle),
        mac_power_s=6 * cycle if power_limited else 0.0,
        t_ccd_s=4 * cycle,
        t_rcd_s=19 * cycle,
        t_rp_s=19 * cycle,
        t_ras_s=45 * cycle,
        t_rtp_s=8 * cycle,
        input_write_s=4 * cycle,
        activate_under_input=True,
        outputs_per_read=16,
        pu_result_bytes=32,
        read_width_bytes=64,
        result_read_s=2 * cycle,
        read_under_row_turn=True,
        refresh=Refresh(rule="interrupt" if refresh else "off", interval_s=5070 * cycle, cycle_s=456 * cycle),
    )


def aim(*, outputs_per_read: int) -> Pim:
    """GDDR6_AiM_timing of arkhadem/aim_simulator. Mode switch nMODCH 32.

    A read blocks the host for the bus turn-around nBL + nCLREG + 3 + nWPRE - nCWLREG = 5 cycles.
    """
    cycle = 0.5 * NS
    return Pim(
        ranks=1,
        bank_groups=4,
        banks_per_bank_group=4,
        row_bytes=2048,
        column_bytes=32,
        pu_lanes=16,
        pu_clock_hz=1e9,
        t_ccd_s=2 * cycle,
        t_rcd_s=56 * cycle,
        t_rp_s=32 * cycle,
        t_ras_s=54 * cycle,
        t_rtp_s=12 * cycle,
        row_policy="open",
        layout="row_per_output",
        input_write_s=2 * cycle,
        input_buffer_bytes=2048,
        outputs_per_read=outputs_per_read,
        read_width_bytes=32,
        result_read_s=5 * cycle,
        mode_switch_s=32 * cycle,
    )


def newton(*, refresh: bool) -> Pim:
    """HBM2_8Gb_x128 single row buffer of NewtonSim (casys-kaist/NeuPIMs), cycles of 1 ns.

    GWRITE copies a row, tCCD_S + tCCD_L per column. READRES is followed by tRTP and the slot of the
    next P_HEADER. The controller estimates tRTP instead of a slot for each of 32 precharges, but leaves
    out tRTP and the slots of P_HEADER and the second rank: 32 x (5 - 1) - 5 - 2 = 121 cycles too much.
    """
    return Pim(
        ranks=2,
        bank_groups=4,
        banks_per_bank_group=4,
        row_bytes=1024,
        column_bytes=32,
        pu_lanes=16,
        pu_clock_hz=1e9,
        t_ccd_s=2 * NS,
        t_rcd_s=14 * NS,
        t_rp_s=14 * NS,
        t_ras_s=34 * NS,
        t_rtp_s=5 * NS,
        t_faw_s=30 * NS,
        command_s=1 * NS,
        activation="four_per_faw",
        precharge="per_bank",
        row_policy="open",
        layout="row_per_output",
        input_write_s=3 * NS,
        input_buffer_bytes=1024,
        input_from_bank=True,
        read_width_bytes=64,
        result_read_s=6 * NS,
        refresh=Refresh(
            rule="deadline" if refresh else "off",
            interval_s=1950 * NS,  # 3900 by turns on two ranks
            cycle_s=260 * NS,
            guard_s=121 * NS,
        ),
    )


# ------------------------------------------------------------------------------ arithmetic by hand


def test_parts_of_a_vector_by_hand() -> None:
    # 5 outputs on 4 banks: the fullest bank has 2. 96 inputs are 6 columns each: 12 columns in 3 rows.
    gemv = TOY.gemv(5, 96, groups=1, **BF16)
    assert gemv.input_write_s == pytest.approx(6 * NS)
    assert gemv.mac_s == pytest.approx(12 * 2 * NS)
    # Each row: 8 to precharge, 10 to activate, and tRTP - MAC = 3 after its last MAC.
    assert gemv.activate_s == pytest.approx(3 * (8 + 10 + 3) * NS)
    # Reads of 3 ns: the first in mid-row, the last hidden in the 3 ns in which the row may not close.
    assert gemv.read_s == pytest.approx(3 * NS)
    assert gemv.busy_s == pytest.approx((6 + 24 + 63 + 3) * NS)
    assert gemv.seconds(3) == pytest.approx(3 * 96 * NS)
    # On an idle device there is nothing to precharge before the first row.
    assert gemv.seconds(3, idle=True) == pytest.approx((3 * 96 - 8) * NS)
    assert gemv.seconds(0) == 0.0


def test_short_rows_wait_for_tras() -> None:
    # One column: MAC ends 12 ns after activation, which is tRAS, but tRTP asks for 15.
    assert TOY.gemv(4, 16, groups=1, **BF16).activate_s == pytest.approx((18 + 3) * NS)
    # With tRAS 30 the row stays open for 18 ns more.
    slow = replace(TOY, t_ras_s=30 * NS)
    assert slow.gemv(4, 16, groups=1, **BF16).activate_s == pytest.approx((18 + 18) * NS)


def test_mac_interval_is_the_slowest_of_three() -> None:
    assert TOY.mac_interval_s(2.0) == pytest.approx(2 * NS)
    assert replace(TOY, mac_power_s=3 * NS).mac_interval_s(2.0) == pytest.approx(3 * NS)
    # 16 weights on 4 lanes at 1 GHz: 4 cycles. 32 weights of one byte: 8 cycles.
    narrow = replace(TOY, pu_lanes=4)
    assert narrow.mac_interval_s(2.0) == pytest.approx(4 * NS)
    assert narrow.mac_interval_s(1.0) == pytest.approx(8 * NS)
    assert narrow.mac_interval_s(1.0, inputs=12) == pytest.approx(3 * NS)


def test_four_activations_per_window() -> None:
    # NeuPIMs: 32 banks as two ranks of four groups, the second rank one slot behind: 1 + 3 tFAW + tRCD.
    assert newton(refresh=False).open_s == pytest.approx((1 + 3 * 30 + 14) * NS)
    # 32 single precharges cover tRP of the banks that open first.
    assert newton(refresh=False).close_s == pytest.approx(32 * NS)
    # One window for 32 banks: 7 tFAW on top of tRCD.
    one_window = replace(HBM3, activation="four_per_faw", faw_banks=32)
    assert one_window.open_s - HBM3.open_s == pytest.approx(105 * NS)
    assert replace(TOY, precharge="per_bank", command_s=1 * NS).close_s == pytest.approx((4 + 8) * NS)


def test_row_stays_open_where_one_row_holds_all() -> None:
    # One output of 4 columns fills one row; further vectors save precharge and activation, 18 ns.
    pim = replace(TOY, row_policy="open")
    gemv = pim.gemv(4, 64, groups=1, **BF16)
    assert gemv.seconds(4) == pytest.approx((4 * gemv.busy_s / NS - 3 * 18) * NS)
    assert pim.gemv(5, 64, groups=1, **BF16).saved_if_open_s == 0.0  # two rows


def test_long_inputs_are_worked_off_in_slices() -> None:
    # A buffer of 64 B holds 32 inputs: 80 inputs are slices of 2, 2 and 1 columns. Each slice is a row.
    gemv = replace(TOY, input_buffer_bytes=64).gemv(4, 80, groups=1, **BF16)
    assert gemv.input_write_s == pytest.approx(5 * NS)
    assert gemv.mac_s == pytest.approx(5 * 2 * NS)
    assert gemv.activate_s == pytest.approx(3 * 21 * NS)
    assert len(gemv.operations) == 6


def test_expert_shards() -> None:
    def seconds(outputs: int, inputs: int) -> float:
        return TOY.gemv_s(outputs, inputs, groups=1, tokens=2, **BF16)

    shape = {"matrices": 3, "groups": 1, "tokens": 2, **BF16}
    # 40 wide, split three ways: 14 each. Row mode splits the inputs of down, col mode its outputs.
    assert TOY.expert_s(100, 40, **shape, tp=3) == pytest.approx(2 * seconds(14, 100) + seconds(100, 14))
    assert TOY.expert_s(100, 40, **shape, tp=3, mode="col") == pytest.approx(
        2 * seconds(14, 100) + seconds(34, 40)
    )
    plain = {**shape, "matrices": 2}
    assert TOY.expert_s(100, 40, **plain) == pytest.approx(seconds(40, 100) + seconds(100, 40))


def test_refresh_on_average() -> None:
    gemv = replace(TOY, refresh=AVERAGE).gemv(5, 96, groups=1, **BF16)
    assert gemv.refresh_factor == pytest.approx(STRETCH)
    assert gemv.seconds(7) == pytest.approx(7 * 96 * NS * STRETCH)


def test_refresh_that_interrupts() -> None:
    # Every 100 s for 10 s. 100 s of work end just in time; one more waits for a refresh; the second
    # refresh comes after 90 more.
    refresh = Refresh(rule="interrupt", interval_s=100.0, cycle_s=10.0)
    assert [refresh.stretch(busy) for busy in (100.0, 101.0, 189.0, 191.0)] == [100.0, 111.0, 199.0, 211.0]
    # AttAcc, [2048, 512] on one channel: 7957 cycles with one refresh in them, 7519 without.
    cycles = attacc(refresh=True).gemv(2048, 512, groups=1, k_banks=4, **BF16).seconds(idle=True) / 0.769e-9
    assert cycles == pytest.approx(7957, rel=0.01)


def test_refresh_with_a_deadline() -> None:
    # Rows of 30 s, estimated at 35: three start by 65, none after; the rest waits for the refresh at 100.
    refresh = Refresh(rule="deadline", interval_s=100.0, cycle_s=10.0, guard_s=5.0)
    assert refresh.walk([Operation(30.0, 3, True)]) == 90.0
    assert refresh.walk([Operation(30.0, 4, True)]) == 140.0
    # Fills are not over-estimated: 10 s more fit.
    assert refresh.walk([Operation(30.0, 3, True), Operation(10.0, 1, False)]) == 100.0
    assert refresh.walk([Operation(30.0, 3, True), Operation(10.0, 1, True)]) == 120.0
    # What fits only before the first refresh starts right after the others: at 110 and at 210.
    assert refresh.walk([Operation(95.0, 3, False)]) == 305.0
    assert refresh.walk([Operation(0.0, 5, False)]) == 0.0


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
    # A device that gains nothing keeps rows.
    one = TOY.best_layout(4, 16, groups=1, host_bytes_per_s=math.inf, **BF16)
    assert one == Layout(1, 1, TOY.gemv_s(4, 16, groups=1, **BF16))


# ------------------------------------------------------------------------------------- simulators


def device_of(simulator: str, config: str) -> tuple[Pim, int, float] | None:
    """Parameters that the simulator publishes, k_banks, and its cycle; None where none are modelled."""
    if simulator.startswith("aim"):
        return aim(outputs_per_read=32 if "reuse-GB" in config else 1), 1, 0.5 * NS
    if simulator.startswith("NeuPIMs"):
        return newton(refresh=config.endswith("/refresh")), 1, NS
    if simulator.startswith("attacc"):
        pim = attacc(power_limited="NPC" not in config, refresh=config.endswith("/refresh"))
        return pim, 4, 0.769 * NS
    return None


def relative_errors() -> dict[str, list[float]]:
    """Relative errors by configuration, for shapes with at least 256 rows and columns."""
    folder = os.environ.get("MOEPLAN_REFERENCE")
    if not folder:
        pytest.skip("MOEPLAN_REFERENCE is not set: no simulator tables")
    errors = defaultdict(list)
    with (Path(folder) / "pim_gemv.csv").open() as stream:
        for case in csv.DictReader(stream):
            device = device_of(case["simulator"], case["config"])
            rows, cols = int(case["rows"]), int(case["cols"])
            if device is None or min(rows, cols) < 256:
                continue
            pim, k_banks, cycle = device
            split = {"k_banks": k_banks, "k_groups": 16 if "Ksplit16" in case["config"] else 1}
            gemv = pim.gemv(rows, cols, groups=int(case["channels"]), **split, **BF16)
            seconds = gemv.seconds(int(case["tokens"]), idle=True)
            errors[case["config"]].append(seconds / (int(case["cycles"]) * cycle) - 1)
    return errors


def test_simulators_are_met() -> None:
    errors = relative_errors()
    assert len(errors) >= 11
    for config, signed in errors.items():
        size = [abs(error) for error in signed]
        bars = (0.03, 0.10) if config.endswith("/refresh") else (0.01, 0.06)
        assert (median(size) <= bars[0], max(size) <= bars[1]) == (True, True), (config, max(size))


def test_aim_by_hand() -> None:
    # 64 columns in one row: mode 32, input 128, activation 56, MACs 128, two mode switches 64, read 5;
    # further tokens find the row open: 128 + 128 + 64 + 5. The simulator: 415 cycles, then 326 each.
    gemv = aim(outputs_per_read=1).gemv(512, 1024, groups=32, **BF16)
    assert gemv.seconds(1, idle=True) == pytest.approx(413 * 0.5 * NS)
    assert gemv.seconds(8, idle=True) == pytest.approx((413 + 7 * 325) * 0.5 * NS)


def test_newton_by_hand() -> None:
    # GWRITE 14 + 96 + 14, then a row of 91 + 14 + 32 x 2 + 6: 299 cycles, as NewtonSim counts. Further
    # tokens: 124 + 64 + 6, and the bank of the input row is closed and opened again, 1 + 14: 209.
    gemv = newton(refresh=False).gemv(64, 512, groups=32, **BF16)
    assert gemv.seconds(1, idle=True) == pytest.approx(299 * NS)
    assert gemv.seconds(4, idle=True) == pytest.approx(926 * NS)


# ------------------------------------------------------------------------------------- properties

DEVICES = [TOY, HBM3, attacc(refresh=True), aim(outputs_per_read=32), newton(refresh=False)]
devices = st.sampled_from(DEVICES)
sizes = st.integers(min_value=1, max_value=5000)
few = st.integers(min_value=1, max_value=40)
widths = st.sampled_from([0.53125, 1.0, 2.0, 4.0])


def at(pim: Pim, outputs: int, inputs: int, groups: int, weight_bytes: float = 2.0) -> Gemv:
    return pim.gemv(outputs, inputs, groups=groups, weight_bytes=weight_bytes, activation_bytes=2.0)


@settings(deadline=None, derandomize=True)
@given(devices, sizes, sizes, few, few, few)
def test_more_tokens_or_outputs_never_take_less(
    pim: Pim, outputs: int, inputs: int, groups: int, tokens: int, more: int
) -> None:
    gemv = at(pim, outputs, inputs, groups)
    assert gemv.seconds(tokens) < gemv.seconds(tokens + more)
    assert gemv.seconds(tokens, idle=True) < gemv.seconds(tokens + more, idle=True)
    assert gemv.seconds(tokens) <= at(pim, outputs + more, inputs, groups).seconds(tokens) * (1 + 1e-12)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(devices, sizes, sizes, few, widths, few)
def test_more_inputs_or_bytes_never_take_less(
    pim: Pim, outputs: int, inputs: int, groups: int, weight_bytes: float, more: int
) -> None:
    least_s = at(pim, outputs, inputs, groups, weight_bytes).seconds() * (1 - 1e-12)
    assert least_s <= at(pim, outputs, inputs + more, groups, weight_bytes).seconds()
    assert least_s <= at(pim, outputs, inputs, groups, 4.0).seconds()


@settings(deadline=None, derandomize=True)
@given(devices, sizes, sizes, few, widths, few)
def test_more_groups_never_mean_more_macs(
    pim: Pim, outputs: int, inputs: int, groups: int, weight_bytes: float, times: int
) -> None:
    mac_s = at(pim, outputs, inputs, groups, weight_bytes).mac_s
    assert at(pim, outputs, inputs, groups * times, weight_bytes).mac_s <= mac_s * (1 + 1e-12)


@settings(deadline=None, derandomize=True)
@given(devices, sizes, sizes, few)
def test_operations_are_the_whole_time(pim: Pim, outputs: int, inputs: int, groups: int) -> None:
    gemv = at(pim, outputs, inputs, groups)
    total_s = sum(operation.seconds * operation.times for operation in gemv.operations)
    assert total_s == pytest.approx(gemv.busy_s)
    assert min(gemv.input_write_s, gemv.activate_s, gemv.mac_s) >= 0.0 <= gemv.read_s
    assert gemv.mac_s <= gemv.seconds(idle=True)


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "some"}, "all_bank, four_per_faw"),
        ({"precharge": "some"}, "all_bank, per_bank"),
        ({"layout": "some"}, "packed, row_per_output"),
        ({"row_policy": "some"}, "closed, open"),
        ({"row_bytes": 100}, "100"),
        ({"faw_banks": 3}, "faw_banks 3"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(TOY, **change)  # type: ignore[arg-type]


def test_bad_refresh_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown refresh rule"):
        Refresh(rule="sometimes")
    with pytest.raises(UsageError, match="shorter than the interval"):
        Refresh(rule="average", interval_s=1e-6, cycle_s=2e-6)


@pytest.mark.parametrize("split", [{"k_banks": 3}, {"k_groups": 3}, {"groups": 0}, {"k_groups": 0}])
def test_splits_must_divide(split: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        TOY.gemv(8, 8, **({"groups": 4, **BF16} | split))  # type: ignore[arg-type]
