import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.gemv import Gemv
from moeplan.hardware.pim import Layout, Pim
from moeplan.hardware.platform import load_platform
from moeplan.hardware.refresh import Refresh

NS = 1e-9
BF16 = {"weight_bytes": 2.0, "activation_bytes": 2.0}
AVERAGE = Refresh(rule="average", interval_s=3900 * NS, cycle_s=350 * NS)

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
    # 36 weights of one byte are two columns: 9 cycles for both.
    assert narrow.mac_interval_s(1.0, inputs=36) == pytest.approx(4.5 * NS)
    # 60.2 weights of 4.25 bits: 15.06 cycles.
    assert narrow.mac_interval_s(0.53125) == pytest.approx(32 / 0.53125 / 4 * NS)


def test_four_activations_per_window() -> None:
    # 4 banks are one window; 8 are two, 30 ns apart; a second rank is one slot behind.
    four = replace(TOY, activation="four_per_faw", t_faw_s=30 * NS, command_s=1 * NS)
    assert four.open_s == pytest.approx(10 * NS)
    assert replace(four, bank_groups=2).open_s == pytest.approx((30 + 10) * NS)
    assert replace(four, ranks=2).open_s == pytest.approx((1 + 10) * NS)
    assert replace(four, ranks=2, faw_banks=8).open_s == pytest.approx((30 + 10) * NS)
    # Single precharges take a slot each, before tRP; under tFAW the banks that open first closed first.
    assert replace(TOY, precharge="per_bank", command_s=1 * NS).close_s == pytest.approx((4 + 8) * NS)
    assert replace(four, precharge="per_bank", bank_groups=4).close_s == pytest.approx(16 * NS)


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
    assert gemv.refresh_factor == pytest.approx(1 / (1 - 350 / 3900))
    assert gemv.seconds(7) == pytest.approx(7 * 96 * NS / (1 - 350 / 3900))


def test_accumulators_limit_the_outputs_of_a_pass() -> None:
    # 2 sums per PU, 3 outputs per bank: a pass of 2 and one of 1, each over slices of 2 and 1 columns.
    pim = replace(TOY, accumulators=2, outputs_per_read=2, input_buffer_bytes=64, input_turn_s=4 * NS)
    gemv = pim.gemv(12, 48, groups=1, **BF16)
    # Each slice writes its columns and turns the bus: 2 + 4 and 1 + 4, in both passes.
    assert gemv.input_write_s == pytest.approx(2 * (6 + 5) * NS)
    assert gemv.mac_s == pytest.approx(3 * 3 * 2 * NS)
    # Each slice of a pass is a row of its own: 4 turn-overs of 18 and 3 until tRTP.
    assert gemv.activate_s == pytest.approx(4 * 21 * NS)
    # Results are read once per pass, after the last slice: 2 x 3 and 1 x 3, of which the tail hides 3.
    assert gemv.read_s == pytest.approx((3 + 0) * NS)
    # The second pass of the first is a second vector in all but the session.
    one = replace(pim, session_s=100 * NS).gemv(8, 48, groups=1, **BF16)
    assert one.seconds(2) == pytest.approx(2 * one.seconds(1) - 100 * NS)
    assert pim.gemv(16, 48, groups=1, **BF16).seconds() == pytest.approx(2 * one.seconds(1) - 200 * NS)


def test_second_row_buffer_serves_the_host() -> None:
    # 5 s of PIM beside 3 s of host traffic: one after the other, or both at once. The GEMV is the same.
    dual = replace(TOY, dual_row_buffer=True)
    assert (TOY.beside_host_s(5.0, 3.0), dual.beside_host_s(5.0, 3.0)) == (8.0, 5.0)
    assert dual.gemv(5, 96, groups=1, **BF16) == TOY.gemv(5, 96, groups=1, **BF16)


@pytest.mark.parametrize("rule", ["off", "average", "interrupt", "deadline"])
@pytest.mark.parametrize("row_policy", ["open", "closed"])
def test_tables_hold_what_single_calls_return(rule: str, row_policy: str) -> None:
    refresh = Refresh(rule=rule, interval_s=1000 * NS, cycle_s=100 * NS)
    pim = replace(TOY, refresh=refresh, row_policy=row_policy, session_s=7 * NS)
    shape = {"matrices": 3, "groups": 1, **BF16}
    for mode in ("row", "col"):
        table = pim.expert_table(64, 16, tokens=40, factors=(1, 2, 4), mode=mode, **shape)
        assert table.shape == (3, 41)
        for row, tp in zip(table, (1, 2, 4), strict=True):
            single = [pim.expert_s(64, 16, tp=tp, mode=mode, tokens=n, **shape) for n in range(41)]
            assert row.tolist() == pytest.approx(single, rel=1e-12)
    assert table[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_known_shapes_are_not_computed_again() -> None:
    pim = replace(TOY)
    first = pim.gemv(5, 96, groups=1, **BF16)
    assert pim.gemv(5, 96, groups=1, **BF16) is first
    # What is known is no part of a device: it is equal without, and goes with it to other processes.
    assert pim == TOY
    assert pickle.loads(pickle.dumps(pim)) == pim


def test_best_layout_takes_no_more_groups_than_help() -> None:
    # One column for each of four outputs: nothing is left to split over banks or groups.
    best = TOY.best_layout(4, 16, groups=8, host_bytes_per_s=math.inf, **BF16)
    assert best == Layout(1, 1, 1, TOY.gemv_s(4, 16, groups=1, **BF16))
    # Eight outputs need two groups, or two outputs per bank.
    assert TOY.best_layout(8, 16, groups=8, host_bytes_per_s=math.inf, **BF16).groups == 2


# ------------------------------------------------------------------------------------- properties

PRESETS = ("b200-hbmpim", "h100-attacc", "gddr6-aim", "newton-hbm2", "samsung-hbmpim", "spimoe-4x8")
DEVICES = [TOY, *(pim for name in PRESETS if (pim := load_platform(name).pim))]
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


@pytest.mark.parametrize("split", [{"k_banks": 3}, {"k_groups": 3}, {"groups": 0}, {"k_groups": 0}])
def test_splits_must_divide(split: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        TOY.gemv(8, 8, **({"groups": 4, **BF16} | split))  # type: ignore[arg-type]
