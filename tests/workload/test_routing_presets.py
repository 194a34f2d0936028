import dataclasses

import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.calibrate import compare
from moeplan.workload.model import load_model
from moeplan.workload.routing_presets import (
    find_routing,
    find_targets,
    preset_targets,
    read_routing,
    read_targets,
    routing_preset,
    routing_preset_names,
    write_routing,
)
from moeplan.workload.synthetic import SyntheticRouting

PUBLISHED = ("gini", "hottest_over_mean", "union", "top8_share", "top16_share", "hot_persistence")
TARGETS = """\
model: tiny
source: "by hand"
moments:
  - {name: gini, value: 0.5, batch: 8, tolerance: 0.07}
  - {name: union, value: 5, batch: 8, tokens: 2, tolerance: 0.07, source: "table I"}
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "t.yaml"
        path.write_text(text)
        return path

    return write


def test_three_models_have_fitted_routing():
    assert routing_preset_names() == ("glm-5.2", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b")
    for name in routing_preset_names():
        assert preset_targets(name).model == load_model(name).name
        assert routing_preset(name.upper()) == routing_preset(f"org/{name}") == find_routing(name)
        batches = {target.batch for target in preset_targets(name).moments}
        assert routing_preset(name).concurrency == max(batches)


@pytest.mark.parametrize(
    ("name", "layers", "slack"), [("qwen3.5-35b-a3b", 40, 1.0), ("qwen3.5-397b-a17b", 20, 1.5)]
)
def test_published_moments_are_met_with_fresh_seeds(name, layers, slack):
    # tables II and VI of ReXpert: 7 %, persistence 20 %, for the mean of two draws; half again as much where
    # layers are left out. A single draw at 8 requests scatters by 4 %: none is further off than twice that.
    model = load_model(name)
    model = dataclasses.replace(model, moe_layers=model.moe_layers[:layers])
    spec = preset_targets(name)
    targets = [target for target in spec.targets(name) if target.name in PUBLISHED]
    assert len(targets) >= 13
    for row in compare(model, routing_preset(name), targets, steps=spec.steps, seeds=(1001, 1002)):
        limit = slack * (0.20 if row.target.name == "hot_persistence" else 0.07)
        found = (row.target.label, row.target.batch, row.values)
        assert abs(row.miss) <= limit, found
        assert row.worst <= limit + 0.08, found


def test_a_written_preset_is_read_again(tmp_path):
    routing = SyntheticRouting(skew=0.1234, even=True, sampler="draws", cold_tail=0.0, drift=1e-4)
    path = tmp_path / "r.yaml"
    write_routing(routing, path, model='a "b"', source="x: y")
    assert read_routing(path) == find_routing(str(path)) == routing


def test_targets_are_read(file):
    spec = find_targets(str(file(TARGETS)))
    first, second = spec.targets("t")
    assert (spec.model, spec.steps) == ("tiny", 64)
    assert (first.name, first.value, first.tokens, first.source) == ("gini", 0.5, None, "by hand")
    assert (second.label, second.tokens, second.source) == ("U(2)", 2, "table I")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("name: gini", "name: ginny", "there is no moment 'ginny'"),
        ("tokens: 2", "tokens: 9", "9 tokens of a batch of 8"),
        ("value: 0.5", "value: -1", "greater than 0"),
        ("value: 0.5", "worth: 0.5", "worth: unknown key"),
        ("value: 0.5", "value: .nan", "moments.0.value"),
        ('source: "by hand"', "steps: 0", "steps"),
        ("moments:", "moments: []\nrest:", "moments"),
    ],
)
def test_faulty_targets(file, old, new, complaint):
    with pytest.raises(BadInput) as caught:
        read_targets(file(TARGETS.replace(old, new, 1)))
    assert complaint in str(caught.value)
    assert "t.yaml" in str(caught.value)


def test_faulty_routing(file, tmp_path):
    path = tmp_path / "r.yaml"
    write_routing(SyntheticRouting(), path, model="m", source="s")
    text = path.read_text()
    for old, new, complaint in (
        ("skew: 0.9", "skew: -1", "skew must lie between 0 and 20"),
        ("skew: 0.9", "skewness: 1", "skewness: unknown key"),
        ("race", "dice", "sampler"),
    ):
        with pytest.raises(BadInput) as caught:
            read_routing(file(text.replace(old, new, 1)))
        assert complaint in str(caught.value)
    with pytest.raises(BadInput, match="does not exist"):
        find_routing("gone.yaml")


def test_unknown_models():
    for find in (routing_preset, preset_targets, find_routing, find_targets):
        with pytest.raises(UsageError, match="there is no fitted routing for 'qwen'"):
            find("qwen")
