"""`moeplan validate`: errors of the timing models, as a table, as JSON and as a figure."""

from __future__ import annotations

import json

import pytest

PIM = """\
simulator,config,rows,cols,dtype,tokens,channels,cycles,ns
aim_simulator@1,GDDR6_AiM_timing/no-reuse/norefresh,512,1024,fp16,1,32,415,207.5
aim_simulator@1,GDDR6_AiM_timing/no-reuse/norefresh,512,1024,fp16,8,32,2697,1348.5
"""
NOC = """\
experiment,simulator,mesh_rows,mesh_cols,cycles_per_hop,packet_flits,ring,hops,msg_flits,cycles
zero_load,booksim2,4,8,3,8,,4,,24
"""
KEYS = ["name", "cases", "median_abs_error", "p95_abs_error", "worst_abs_error", "worst_case"]


@pytest.fixture(autouse=True)
def no_reference(monkeypatch):
    monkeypatch.delenv("MOEPLAN_REFERENCE", raising=False)


@pytest.fixture
def reference(tmp_path):
    (tmp_path / "pim_gemv.csv").write_text(PIM)
    (tmp_path / "noc_rounds.csv").write_text(NOC)
    return tmp_path


def models(ended):
    assert ended.code == 0, ended.err
    answer = json.loads(ended.out)
    assert list(answer) == ["models"]
    return answer["models"]


def test_published_figures_are_always_checked(cli):
    ended = cli("validate", "--json")
    for model in models(ended):
        assert list(model) == KEYS
        assert not model["name"].startswith(("PIM GDDR6", "NoC"))
    assert "no --reference" in ended.err


def test_simulators_are_compared_where_their_tables_are_named(cli, reference):
    ended = cli("validate", "--reference", reference, "--json")
    aim, zero = models(ended)[:2]
    # By hand 413 of 415 cycles, and 413 + 7 x 325 = 2688 of 2697 (see the tests of the hardware).
    assert aim["name"] == "PIM GDDR6_AiM_timing/no-reuse/norefresh"
    assert (aim["cases"], aim["worst_case"]) == (2, "[512, 1024] x 1 on 32")
    assert aim["worst_abs_error"] == pytest.approx(2 / 415)
    assert aim["median_abs_error"] == pytest.approx((2 / 415 + 9 / 2697) / 2)
    assert (zero["name"], zero["cases"], zero["worst_abs_error"]) == ("NoC BookSim2 t=3, zero load", 1, 0.0)
    assert ended.err == ""


def test_reference_comes_from_the_environment(cli, reference, monkeypatch):
    monkeypatch.setenv("MOEPLAN_REFERENCE", str(reference))
    assert models(cli("validate", "--json"))[0]["cases"] == 2


def test_table_says_whether_bars_hold(cli, reference):
    out = cli("validate", "--reference", reference).out
    assert "1%, 6%: holds" in out
    assert "exact: holds" in out
    assert "[512, 1024] x 1 on 32" in out
    (reference / "noc_rounds.csv").write_text(NOC.replace(",24", ",25"))
    out = cli("validate", "--reference", reference).out
    assert "exact: MISSED" in out
    assert "4 %" in out  # 24 of 25 cycles


def test_figure_is_drawn_beside_the_answer(cli, reference):
    figure = reference / "figure.svg"
    ended = cli("validate", "--reference", reference, "--figure", figure, "--json")
    assert len(models(ended)) > 2
    assert f"figure: {figure}" in ended.err
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize("damage", ["missing", "short", "garbled"])
def test_bad_tables_end_with_3_and_say_where(cli, reference, damage):
    table = reference / "noc_rounds.csv"
    if damage == "missing":
        table.unlink()
    else:
        table.write_text(NOC[:-4] + "\n" if damage == "short" else NOC.replace(",24", ",many"))
    ended = cli("validate", "--reference", reference)
    assert ended.code == 3
    assert "noc_rounds.csv" in ended.err
    assert damage == "missing" or "line 2" in ended.err
    assert ended.out == ""


def test_a_figure_that_cannot_be_written_is_refused_at_once(cli, reference):
    ended = cli("validate", "--reference", reference, "--figure", reference / "no" / "figure.svg")
    assert ended.code == 3
    assert ended.out == ""
