"""`moeplan trace calibrate`, and `trace synth --preset` that reads what it writes."""

from __future__ import annotations

import json

import pytest

from moeplan.workload.routing_presets import read_routing, routing_preset
from moeplan.workload.trace import read_trace

TARGETS = """\
model: tiny
source: "table I"
steps: 16
moments:
  - {name: gini, value: 0.35, batch: 16, tolerance: 0.1}
  - {name: union, value: 5.5, batch: 16, tokens: 4, tolerance: 0.1}
"""


@pytest.fixture
def asked(world, tmp_path):
    targets = tmp_path / "targets.yaml"
    targets.write_text(TARGETS)
    return ("trace", "calibrate", "--model", world.model, "--targets", targets)


def test_it_fits_and_compares_on_other_seeds(cli, asked, tmp_path):
    out = tmp_path / "routing.yaml"
    ended = cli(*asked, "--budget", "25it", "-o", out, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["model"] == "tiny"
    assert (found["fit_seeds"], found["check_seeds"]) == ([0], [1, 2, 3])
    assert found["evaluations"] <= 25
    gini, union = found["moments"]
    assert (gini["moment"], gini["target"], gini["batch"], gini["tokens"]) == ("gini", 0.35, 16, None)
    assert (union["target"], union["tokens"]) == (5.5, 4)
    for row in (gini, union):
        assert row["fitted"] == pytest.approx(sum(row["values"]) / 3)
        assert row["miss"] == pytest.approx(row["fitted"] / row["target"] - 1)
    assert gini["source"] == "table I"
    routing = read_routing(out)
    assert found["routing"]["skew"] == routing.skew
    assert "moeplan trace calibrate --budget 25it" in out.read_text()


def test_people_get_a_table(cli, asked):
    ended = cli(*asked, "--budget", "2it", "--checks", 1, "--seed", 5)
    assert ended.code == 0
    for word in ("gini", "U(4)", "seeds 6", "after 2 parameter sets"):
        assert word in ended.out


def test_same_seed_same_file(cli, asked, tmp_path):
    files = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    for file in files:
        assert cli(*asked, "--budget", "6it", "--checks", 1, "-o", file).code == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_synth_draws_by_a_preset_and_options_override_it(cli, world, asked, tmp_path):
    routing, trace = tmp_path / "r.yaml", tmp_path / "t.parquet"
    assert cli(*asked, "--budget", "1it", "--checks", 1, "-o", routing).code == 0
    synth = ("trace", "synth", "--model", world.model, "--tokens", 20, "--requests", 4, "-o", trace)
    assert cli(*synth, "--preset", routing).code == 0
    source = read_trace(trace).source
    fitted = read_routing(routing)
    assert f"skew {fitted.skew:g}," in source
    assert source.endswith("even 1, sampler draws)")
    assert cli(*synth, "--preset", routing, "--skew", 0.125, "--sampler", "race").code == 0
    source = read_trace(trace).source
    assert "skew 0.125," in source
    assert f"drift {fitted.drift:g}," in source
    assert source.endswith("even 1)")
    assert cli(*synth, "--preset", "GLM-5.2").code == 0
    assert f"skew {routing_preset('glm-5.2').skew:g}," in read_trace(trace).source


def test_what_it_refuses(cli, asked, world, tmp_path):
    targets = tmp_path / "targets.yaml"
    for arguments, code, complaint in (
        (("--budget", "2s"), 2, "limited by the parameter sets"),
        (("--budget", "2s,10it"), 2, "limited by the parameter sets"),
        (("--start", "gone.yaml"), 3, "'gone.yaml' does not exist"),
        (("--start", "tiny"), 2, "there is no fitted routing for 'tiny'"),
        (("-o", targets), 2, "same file"),
        (("-o", tmp_path / "no" / "r.yaml"), 3, "cannot write"),
    ):
        ended = cli(*asked, *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert complaint in ended.err
    targets.write_text(TARGETS.replace("name: gini", "name: skewness"))
    ended = cli(*asked)
    assert ended.code == 3
    assert "there is no moment 'skewness'" in ended.err
    assert "targets.yaml" in ended.err
    assert cli("trace", "calibrate", "--model", world.model, "--targets", "nobody").code == 2
