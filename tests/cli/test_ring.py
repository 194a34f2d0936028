"""`moeplan ring`: the JSON that scripts read, the picture that people read, and what is refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
import typer
from typer.testing import CliRunner

from moeplan.cli.ring import ring
from moeplan.common.errors import BadInput, UsageError

KEYS = [
    "order", "bottleneck_hops", "link_load", "total_hops",
    "all_gather_s", "all_reduce_s", "bound_hops", "stop",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOEPLAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def command():
    """Run `moeplan ring` with arguments; errors that the program would print are raised."""
    app = typer.Typer()
    app.command()(ring)

    def run(arguments: str) -> str:
        return CliRunner().invoke(app, arguments.split(), catch_exceptions=False, prog_name="ring").stdout

    return run


def test_json(command):
    # 0, 1 and 5 in one row: 0 -> 1 -> 5 -> 0 takes 1 + 4 + 5 hops. Two rounds of 64 KiB at 25.6 GB/s, 2.56 us
    # each, and five hops of 3.75 ns: 5.1575 us; four rounds of a third of it: 3.488 us.
    answer = json.loads(command("--mesh 4x8 --cores 0,1,5 --json"))
    assert sorted(answer) == sorted(KEYS)
    assert answer["order"] == [0, 1, 5]
    assert [answer[key] for key in ("bottleneck_hops", "link_load", "total_hops", "bound_hops")] == [
        5,
        1,
        10,
        5,
    ]
    assert answer["stop"] == "optimal"
    assert answer["all_gather_s"] == pytest.approx(5.1575e-6, rel=1e-9)
    assert answer["all_reduce_s"] == pytest.approx(4 * (2.56e-6 / 3 + 18.75e-9), rel=1e-9)


def test_json_of_a_pair(command):
    answer = json.loads(command("--mesh 4x8 --pair --message 16KiB --latency 0ns --json"))
    pair = answer["pair"]
    assert sorted(answer) == sorted([*KEYS, "pair"])
    assert pair["orders"][1] == [pair["orders"][0][0], *pair["orders"][0][:0:-1]]
    # 31 rounds of 16 KiB at 25.6 GB/s (0.64 us) for one ring; the pair halves that and meets the bound of the
    # corners, which receive 31 blocks over two links: 9.92 us.
    assert answer["all_gather_s"] == pytest.approx(31 * 0.64e-6)
    assert pair["all_gather_s"] == pytest.approx(9.92e-6)
    assert pair["bound_all_gather_s"] == pytest.approx(9.92e-6)
    assert (pair["link_load"], pair["bottleneck_hops"], pair["stop"]) == (1, 1, "optimal")


@pytest.mark.parametrize("objective", ["hops", "load,hops,total", "time"])
@pytest.mark.parametrize("duplex", ["full", "half"])
def test_objectives_and_duplex_modes(command, objective, duplex):
    answer = json.loads(command(f"--mesh 3x3 --objective {objective} --duplex {duplex} --json"))
    assert sorted(answer["order"]) == list(range(9))
    assert answer["bottleneck_hops"] == answer["bound_hops"] == 2  # an odd number of cores
    assert answer["stop"] == "optimal"


def test_torus_and_failures(command):
    assert json.loads(command("--mesh 3x5 --torus --json"))["bottleneck_hops"] == 1
    broken = json.loads(command("--mesh 4x8 --failed 9,12-13 --failed-link 0-1 --json"))
    assert sorted(broken["order"]) == sorted(set(range(32)) - {9, 12, 13})


def test_picture_and_table(command, tmp_path):
    shown = command(f"--mesh 2x2 --svg {tmp_path / 'ring.svg'}")
    assert "ring of 4 cores on a 2 x 2 mesh, full duplex, 64 KiB a core" in shown
    assert "0 → 1\n↑   ↓\n3 ← 2\n" in shown
    for row in ("auto (optimal)", "row_major", "snake", "nn_2opt", "any algorithm, at least"):
        assert row in shown
    assert "order: 0,1,3,2" in shown
    root = ET.parse(tmp_path / "ring.svg").getroot()
    assert sum(element.get("class") == "ring r0" for element in root.iter()) == 4


def test_cache_options(command, tmp_path):
    command("--mesh 4x8 --cores 0,5,9,17 --json --no-cache")
    assert not (tmp_path / "cache").exists()
    command(f"--mesh 4x8 --cores 0,5,9,17 --json --cache {tmp_path / 'own'}")
    assert len(list((tmp_path / "own").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("--mesh 4", UsageError, "'4' is no grid"),
        ("--mesh 4x0", UsageError, "cols must be a whole number"),
        ("--mesh 4x8 --cores 0,32", UsageError, "there is no core 32 on the 4 x 8 mesh"),
        ("--mesh 4x8 --cores 0,1,1", UsageError, "core 1 is given twice"),
        ("--mesh 4x8 --cores 7", UsageError, "at least two cores, not 1"),
        ("--mesh 1x1", UsageError, "at least two cores, not 1"),
        ("--mesh 4x8 --cores 1;2", UsageError, "'1;2' names no cores"),
        ("--mesh 4x8 --cores 0,1,7-5", UsageError, "'0,1,7-5' names no cores"),
        ("--mesh 4x8 --cores -1", UsageError, "'-1' names no cores"),
        ("--mesh 4x8 --failed 3 --cores 3,4", UsageError, "core 3 has failed"),
        ("--mesh 4x8 --failed 40", UsageError, "there is no site 40"),
        ("--mesh 4x8 --failed 1,8", BadInput, "1 of 30 working sites are cut off"),
        ("--mesh 4x8 --failed-link 0", UsageError, "'0' is no link"),
        ("--mesh 4x8 --failed-link 0-9", UsageError, "no link between nodes 0 and 9"),
        ("--mesh 4x8 --message 64", UsageError, "the unit is missing"),
        ("--mesh 4x8 --message -1B", UsageError, "it must be finite and not negative"),
        ("--mesh 4x8 --bandwidth 0GB/s", UsageError, "--bandwidth is out of range"),
        ("--mesh 4x8 --solver exakt", UsageError, "did you mean 'exact'?"),
        ("--mesh 4x8 --budget soon", UsageError, "'soon' is no budget"),
        ("--mesh 4x8 --svg /nowhere/ring.svg", BadInput, "cannot write"),
    ],
)
def test_refusals(command, arguments, error, message):
    with pytest.raises(error) as caught:
        command(arguments)
    assert message in str(caught.value)


def test_a_message_of_no_bytes(command):
    answer = json.loads(command("--mesh 4x8 --message 0B --objective time --json"))
    assert answer["all_gather_s"] == answer["all_reduce_s"] == 0.0
    assert answer["stop"] == "optimal"
