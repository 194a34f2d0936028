"""From a load to a plan file and back, and what a check of it finds."""

from __future__ import annotations

import dataclasses
import json

import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.platform import load_platform
from moeplan.placement.cores import Settings, plan_cores
from moeplan.placement.cores.document import CorePlan, plan_file
from moeplan.placement.cores.verify import rescore, verify
from moeplan.placement.plan import plan_schema, read_plan, write_plan
from moeplan.placement.planning import Search
from moeplan.placement.result import Budget
from moeplan.workload.model import load_model
from moeplan.workload.replay import replay, split
from moeplan.workload.synthetic import SyntheticRouting, synthesize

SEARCH = Search(budget=Budget(time_s=None, iterations=2_000))
PLATFORM = load_platform("rexpert-die")


@pytest.fixture(scope="module")
def model():
    whole = load_model("qwen3.5-35b-a3b")
    return dataclasses.replace(whole, name="two-layers", moe_layers=whole.moe_layers[:2])


@pytest.fixture(scope="module")
def loads(model):
    routing = SyntheticRouting(tokens_per_request=16, concurrency=32, sampler="draws")
    trace = synthesize(model, tokens=2048, seed=1, routing=routing)
    return [replay(part, batch=32, steps=8, seed=0) for part in split(trace, 0.5, seed=0)]


def planned(model, loads, settings):
    plans = plan_cores(model, PLATFORM, *loads, search=SEARCH, settings=settings)
    return plan_file(
        model, PLATFORM, *loads, plans, search=SEARCH, settings=settings,
        source=("a", "a"), split=("request", 0.5), elapsed_s=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(mode="direct", width=2, resample=0), Settings(side=2, risk=1.0)],
    ids=["broadcast", "direct", "side-2"],
)
def test_a_plan_is_what_it_says(tmp_path, model, loads, settings):
    document = planned(model, loads, settings)
    write_plan(document, tmp_path / "plan.json")
    read = read_plan(tmp_path / "plan.json")
    assert isinstance(read, CorePlan)
    assert read == document
    findings = verify(read, model, PLATFORM) + rescore(read, model, PLATFORM, *loads)
    assert [finding.ok for finding in findings] == [True] * 13, findings
    assert read.platform.sites == (80 if settings.side == 2 else 20)
    # In every layer: rounds are the held-out time, and no fewer than the least.
    for entry in read.layers:
        assert entry.use.rounds * read.platform.round_s == pytest.approx(entry.held_out.total_s)
        assert entry.use.rounds >= entry.least_rounds
        assert entry.use.rounds <= entry.baselines["contiguous"].use.rounds


def test_the_same_seed_gives_the_same_plan(model, loads):
    first, second = (planned(model, loads, Settings()).model_dump() for _ in range(2))
    for document in (first, second):
        for entry in document["layers"]:
            entry["anytime"] = [(p["iterations"], p["best_s"]) for p in entry["anytime"]]
    assert first == second


def test_what_a_check_finds(tmp_path, model, loads):
    document = planned(model, loads, Settings())

    def faults(change):
        data = json.loads(document.model_dump_json())
        change(data)
        (tmp_path / "plan.json").write_text(json.dumps(data))
        found = verify(read_plan(tmp_path / "plan.json"), model, PLATFORM)
        return {finding.check: finding.detail for finding in found if finding.ok is False}

    def crowd(data):
        data["layers"][1]["places"] = [3] * 17 + data["layers"][1]["places"][17:]

    assert "core 3 holds" in faults(crowd)["placement"]
    assert "no core 20" in faults(lambda d: d["layers"][0]["places"].__setitem__(5, 20))["placement"]
    assert "places 255 of 256" in faults(lambda d: d["layers"][0]["places"].pop())["placement"]
    assert "groups: the plan has 9, here 16" in faults(lambda d: d["platform"].update(groups=9))["die"]
    assert set(faults(lambda d: d["totals"]["profile"].update(total_s=1.0))) == {"totals"}
    with pytest.raises(BadInput, match="settings"):
        faults(lambda d: d["settings"].update(mode="both"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda layer: layer["use"].update(occupancy=1.5), "use is 1.5"),
        (lambda layer: layer.update(least_rounds=0.5), "least_rounds is 0.5"),
        (lambda layer: layer["core_jobs"].__setitem__(2, 99.0), "core_jobs is 99"),
        (lambda layer: layer["core_jobs"].pop(), "core_jobs: 19 numbers are recorded, 20 found"),
    ],
)
def test_figures_that_the_placement_does_not_give(tmp_path, model, loads, change, said):
    data = json.loads(planned(model, loads, Settings()).model_dump_json())
    change(data["layers"][1])
    (tmp_path / "plan.json").write_text(json.dumps(data))
    found = rescore(read_plan(tmp_path / "plan.json"), model, PLATFORM, *loads)
    (wrong,) = (finding for finding in found if not finding.ok)
    assert wrong.check == "rounds"
    assert f"layer 1 {said}" in wrong.detail


def test_the_schema_knows_the_family():
    layer = plan_schema()["families"]["cores"]["$defs"]["CoreLayer"]["properties"]
    assert {"places", "use", "least_rounds"} <= set(layer)
