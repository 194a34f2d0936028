"""`moeplan bench scale`: its answer on tiny studies, and what it refuses."""

import json

import pytest

from moeplan.benchmarks.scale import grid
from moeplan.benchmarks.scale.point import Point


@pytest.fixture
def tiny_study(monkeypatch):
    def points(axes, *, quick=False):
        return [Point("count", "tokens", experts=64, layers=1, tokens=n) for n in (1_000, 2_000)]

    monkeypatch.setattr(grid, "points", points)


def test_the_answer_as_json(cli, tiny_study, tmp_path):
    svg = tmp_path / "scale.svg"
    done = cli("bench", "scale", "--what", "tokens", "--json", "--svg", svg, "--extrapolate")
    assert done.code == 0
    answer = json.loads(done.out)
    assert [p["size"] for p in answer["points"]] == [1_000, 2_000]
    assert all({"cpu_s", "phases_s", "peak_bytes", "grown_bytes"} <= set(p) for p in answer["points"])
    assert set(answer) == {"points", "growth", "beyond", "svg"}
    assert svg.is_file()


def test_stated_sizes_take_no_options_of_the_study(cli, tmp_path):
    done = cli("bench", "scale", "--what", "stated", "--svg", tmp_path / "x.svg")
    assert done.code == 2
    assert "--svg" in done.err


def test_an_unknown_axis(cli):
    assert cli("bench", "scale", "--what", "colours").code == 2


def test_a_picture_in_a_folder_that_is_not_there(cli, tmp_path):
    done = cli("bench", "scale", "--what", "tokens", "--quick", "--svg", tmp_path / "no" / "x.svg")
    assert done.code in (2, 3)
    assert "no" in done.err
