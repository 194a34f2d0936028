import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from moeplan.benchmarks.validation.case import Case
from moeplan.benchmarks.validation.figure import render
from moeplan.benchmarks.validation.noc_cases import noc_cases
from moeplan.benchmarks.validation.pim_cases import SMALL_SHAPES, pim_cases, simulated
from moeplan.benchmarks.validation.report import Bar, Summary, bar_of, collect, summarize
from moeplan.common.errors import BadInput
from moeplan.hardware.noc import ROUND_BAND

PIM_HEADER = "simulator,config,rows,cols,dtype,tokens,channels,cycles,ns"
AIM = "aim_simulator@1,GDDR6_AiM_timing/no-reuse/norefresh"
NOC_HEADER = "experiment,simulator,mesh_rows,mesh_cols,cycles_per_hop,packet_flits,ring,hops,msg_flits,cycles"


def folder(path: Path, pim: str = "", noc: str = "") -> Path:
    (path / "pim_gemv.csv").write_text(f"{PIM_HEADER}\n{pim}\n", encoding="utf-8")
    (path / "noc_rounds.csv").write_text(f"{NOC_HEADER}\n{noc}\n", encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------- cases


def test_a_pim_row_is_a_case_in_seconds(tmp_path: Path) -> None:
    # By hand 413 cycles of 0.5 ns: one row of 64 columns on an idle device (see the hardware's tests).
    (case,) = pim_cases(folder(tmp_path, f"{AIM},512,1024,fp16,1,32,415,207.5"))
    assert case.model == "PIM GDDR6_AiM_timing/no-reuse/norefresh"
    assert case.name == "[512, 1024] x 1 on 32"
    assert (case.predicted, case.reference) == pytest.approx((206.5e-9, 207.5e-9))
    assert case.error == pytest.approx(-2 / 415)
    assert case.source == "aim_simulator@1"


def test_shapes_below_256_are_a_model_of_their_own(tmp_path: Path) -> None:
    rows = [f"{AIM},{shape},fp16,1,32,415,207.5" for shape in ("255,1024", "1024,255", "256,256")]
    models = [case.model for case in pim_cases(folder(tmp_path, "\n".join(rows)))]
    assert models == [SMALL_SHAPES, SMALL_SHAPES, "PIM GDDR6_AiM_timing/no-reuse/norefresh"]


def test_configurations_are_told_apart() -> None:
    def pim(simulator: str, config: str):
        return simulated(simulator, config, "").pim

    assert pim("aim_simulator", "T/no-reuse/norefresh").outputs_per_read == 1
    assert pim("aim_simulator", "T/reuse-GB/norefresh").outputs_per_read == 32
    # 6 and 4 cycles of 0.769 ns between MACs in all banks.
    assert pim("attacc_bank", "HBM3_5.2Gbps-norefresh").mac_interval_s(2.0) == pytest.approx(4.614e-9)
    assert pim("attacc_bank", "HBM3_5.2Gbps_NPC-norefresh").mac_interval_s(2.0) == pytest.approx(3.076e-9)
    assert pim("attacc_bank", "HBM3_5.2Gbps-norefresh-8stacksTP").refresh.rule == "off"
    assert pim("attacc_bank", "HBM3_5.2Gbps/refresh").refresh.rule == "interrupt"
    newton = pim("NeuPIMs-NewtonSim", "HBM2_8Gb_x128_singlepim/refresh").refresh
    assert (newton.rule, newton.guard_s) == ("deadline", 121e-9)


def test_inputs_are_split_over_channels_where_the_configuration_says_so(tmp_path: Path) -> None:
    # [256, 256] on 16 channels: by rows a bank holds 1 output of 64 inputs, 4 columns of 16. With a
    # K split of 16 every channel holds all rows, 16 outputs of 4 inputs per bank: 16 columns.
    simulator = "attacc_bank@1,HBM3_5.2Gbps-norefresh"
    rows = [f"{simulator}{split},256,256,fp16,1,16,100,76.9" for split in ("", "-Ksplit16")]
    by_rows, by_inputs = pim_cases(folder(tmp_path, "\n".join(rows)))
    # Four MACs of 6 cycles against 16; the input takes 16 writes of 4 cycles against one. Reading 16
    # results instead of one is hidden to the same extent.
    assert by_rows.predicted > 64 * 0.769e-9 + 4 * 4.614e-9
    assert by_inputs.predicted > 16 * 4.614e-9
    assert by_rows.model == "PIM HBM3_5.2Gbps-norefresh"
    assert by_inputs.model == "PIM HBM3_5.2Gbps-norefresh-Ksplit16"


def test_noc_rows_are_cases_in_cycles(tmp_path: Path) -> None:
    rows = (
        "zero_load,booksim2,4,8,3,8,,4,,24",
        "ring_allgather_round,booksim2,4,8,5,8,0 1 2 3 11 10 9 8,,32,49",
        "ring_allgather_round,noxim,4,8,2,8,0 1 2 3 11 10 9 8,,32,66",
        "ring_allgather_round,booksim2,1,4,3,8,0 2 1 3,,8,30",
    )
    zero, five, noxim, conflict = noc_cases(folder(tmp_path, noc="\n".join(rows)))
    # t(h + 1) + 2 + L - 1 = 3 x 5 + 2 + 7. The snakes are worked out in the tests of the NoC.
    assert (zero.model, zero.predicted, zero.error) == ("NoC BookSim2 t=3, zero load", 24.0, 0.0)
    assert (five.model, five.error) == ("NoC BookSim2 t=5, contention-free rounds", 0.0)
    assert (noxim.model, noxim.error) == ("NoC Noxim, contention-free rounds", 0.0)
    assert noxim.name == "4 x 8, ring of 8, line 4"
    # 0 -> 2 and 1 -> 3 share the link from 1 to 2.
    assert conflict.model == "NoC BookSim2 t=3, conflicting rounds"


ZERO = "zero_load,booksim2,4,8,3,8,,4,,24"
RING = "ring_allgather_round,booksim2,4,8,3,8"


@pytest.mark.parametrize(
    ("pim", "noc", "where", "what"),
    [
        (f"{AIM},512,1024,fp16,1", ZERO, "pim_gemv.csv, line 2", "9 cells"),
        (f"{AIM},512,1024,fp16,1,32,415,207.5,7", ZERO, "pim_gemv.csv, line 2", "9 cells"),
        (f"{AIM},512,x,fp16,1,32,415,207.5", ZERO, "pim_gemv.csv, line 2", "cols is 'x'"),
        (f"{AIM},512,1024,fp16,1,32,0,0", ZERO, "pim_gemv.csv, line 2", "cycles is '0'"),
        ("my_simulator,C,512,1024,fp16,1,32,415,1", ZERO, "pim_gemv.csv, line 2", "simulator 'my_simulator'"),
        ("attacc_bank,C-Ksplit3,512,1024,fp16,1,16,9,9", ZERO, "pim_gemv.csv, line 2", "k_groups 3"),
        ('a,"b\nc', ZERO, "pim_gemv.csv, line", "not CSV"),
        ("", ZERO, "pim_gemv.csv, line 1", "no rows"),
        (f"{AIM},512,1024,fp16,1,32,415,207.5", "", "noc_rounds.csv, line 1", "no rows"),
        (None, f"{ZERO}\nload,booksim2,4,8,3,8,,4,,24", "noc_rounds.csv, line 3", "experiment 'load'"),
        (None, "zero_load,gem5,4,8,3,8,,4,,24", "noc_rounds.csv, line 2", "simulator 'gem5'"),
        (None, "zero_load,booksim2,4,8,6,8,,4,,24", "noc_rounds.csv, line 2", "router of 6 cycles"),
        (None, f"{RING},0 1 x,,8,9", "noc_rounds.csv, line 2", "ring is '0 1 x'"),
        (None, f"{RING},0 1 32,,8,9", "noc_rounds.csv, line 2", "no site 32"),
        (None, f"{RING},,,8,9", "noc_rounds.csv, line 2", "at least one member"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, pim: str | None, noc: str, where: str, what: str) -> None:
    good = f"{AIM},512,1024,fp16,1,32,415,207.5"
    with pytest.raises(BadInput) as caught:
        collect(folder(tmp_path, good if pim is None else pim, noc))
    assert where in caught.value.where
    assert what in caught.value.what


def test_missing_tables_and_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pim_gemv.csv' does not exist"):
        collect(tmp_path)
    (tmp_path / "pim_gemv.csv").write_text("simulator,rows\nx,1\n")
    with pytest.raises(BadInput, match=r"no column config, cols, tokens, channels, cycles"):
        collect(tmp_path)
    (tmp_path / "pim_gemv.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not UTF-8"):
        collect(tmp_path)


# ------------------------------------------------------------------------------------------ report


def cases(model: str, *errors: float) -> list[Case]:
    return [Case(model, f"case {n}", 100 * (1 + error), 100.0, "made up") for n, error in enumerate(errors)]


def test_summary_by_hand() -> None:
    # 20 cases, |error| 0, 1, ..., 19 %: median 9.5 %; 19 of 20 do not exceed 18 %.
    (summary,) = summarize(cases("PIM x", *(0.01 * n * (-1) ** n for n in range(20))))
    assert (summary.name, summary.cases, summary.worst_case) == ("PIM x", 20, "case 19")
    assert summary.median_abs_error == pytest.approx(0.095)
    assert summary.p95_abs_error == pytest.approx(0.18)
    assert summary.worst_abs_error == pytest.approx(0.19)
    assert [s.name for s in summarize(cases("B", 0.0) + cases("A", 0.0) + cases("B", 0.0))] == ["B", "A"]
    assert summarize([]) == []


@pytest.mark.parametrize(
    ("model", "errors", "holds"),
    [
        ("PIM x/norefresh", (0.01, 0.01, 0.059), True),
        ("PIM x/norefresh", (0.011, 0.011, 0.0), False),
        ("PIM x/norefresh", (0.0, 0.0, 0.061), False),
        ("PIM x/refresh", (0.03, 0.03, 0.099), True),
        ("PIM x/refresh", (0.0, 0.0, 0.101), False),
        ("PIM HBM2_samsung_2M/refresh", (0.5,), True),
        (SMALL_SHAPES, (0.5,), True),
        ("NoC Noxim, zero load", (0.0, 0.0), True),
        ("NoC Noxim, contention-free rounds", (0.0, 0.0, 0.001), False),
    ],
)
def test_bars(model: str, errors: tuple[float, ...], holds: bool) -> None:
    (summary,) = summarize(cases(model, *errors))
    assert summary.holds == holds


def test_bar_of_conflicting_rounds_asks_for_the_band() -> None:
    model = "NoC BookSim2 t=3, conflicting rounds"
    assert bar_of(model) == Bar(0.02, band=ROUND_BAND)
    # A prediction of 50 against 100 lies at +1.0, outside of the band: 2 of 20, then 3 of 20.
    (good,) = summarize(cases(model, *[0.0] * 18, -0.5, -0.5))
    assert (good.covered, good.holds) == (pytest.approx(0.9), True)
    (bad,) = summarize(cases(model, *[0.0] * 17, -0.5, -0.5, -0.5))
    assert (bad.covered, bad.holds) == (pytest.approx(0.85), False)


def test_published_figures_are_met() -> None:
    summaries = summarize(collect(None))
    assert summaries
    assert [summary.name for summary in summaries if not summary.holds] == []


# --------------------------------------------------------------------------------------- simulators


@pytest.fixture(scope="module")
def measured() -> list[Summary]:
    reference = os.environ.get("MOEPLAN_REFERENCE")
    if not reference:
        pytest.skip("MOEPLAN_REFERENCE is not set: no simulator tables")
    path = Path(reference)
    return summarize([*pim_cases(path), *noc_cases(path)])


def test_simulators_are_met(measured: list[Summary]) -> None:
    assert [(s.name, s.median_abs_error, s.worst_abs_error) for s in measured if not s.holds] == []
    pim = {summary.name for summary in measured if summary.name.startswith("PIM")}
    assert len(pim) >= 12
    assert {"PIM HBM3_5.2Gbps-norefresh-8stacksTP", "PIM HBM3_5.2Gbps-norefresh-Ksplit16"} <= pim
    noc = [summary.name for summary in measured if summary.name.startswith("NoC")]
    kinds = ["zero load"] * 4 + ["contention-free rounds"] * 3 + ["conflicting rounds"] * 3
    assert [name.partition(", ")[2] for name in noc] == kinds


def test_models_without_a_bar_are_not_far_off(measured: list[Summary]) -> None:
    free = {summary.name: summary.median_abs_error for summary in measured if summary.bar is None}
    assert set(free) == {SMALL_SHAPES, "PIM HBM2_samsung_2M_16B_x64/64pCH/refresh"}
    assert max(free.values()) <= 0.03


# ------------------------------------------------------------------------------------------ figure


def test_figure_has_a_panel_for_each_kind_of_model() -> None:
    shown = cases("PIM x", 0.01, 0.02) + cases("machine balance", 0.0)
    svg = render(shown)
    texts = "".join(ET.fromstring(svg).itertext())
    assert "PIM: GEMV" in texts
    assert "Published figures" in texts
    assert "NoC" not in texts
    assert render(shown) == svg
