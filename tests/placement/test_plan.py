"""From planned layers to the file, its schema, and back."""

from __future__ import annotations

import json
import threading

import jsonschema
import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.platform import load_platform
from moeplan.placement.channels.document import ChannelPlan, decisions, plan_file
from moeplan.placement.channels.planning import plan_channels
from moeplan.placement.channels.problem import Settings, channel_problem
from moeplan.placement.channels.verify import rescore, verify
from moeplan.placement.plan import SCHEMA, plan_schema, read_plan, write_plan
from moeplan.placement.planning import BASELINE_BUDGET, Search
from moeplan.placement.result import Budget, Stop
from moeplan.workload.model import load_model
from moeplan.workload.replay import replay, split
from moeplan.workload.synthetic import synthesize

SEARCH = Search(solver="annealing", budget=Budget(time_s=None, iterations=3000), seed=3)


@pytest.fixture(scope="module")
def inputs():
    model, platform = load_model("olmoe-1b-7b"), load_platform("spimoe-4x8")
    profile, unseen = split(synthesize(model, tokens=1200, seed=1), 0.5, by="request", seed=0)
    return (
        model,
        platform,
        replay(profile, batch=8, steps=12, seed=0),
        replay(unseen, batch=8, steps=12, seed=1),
    )


@pytest.fixture(scope="module")
def plans(inputs):
    return plan_channels(*inputs, search=SEARCH, layers=(0, 5), jobs=2)


@pytest.fixture(scope="module")
def plan(inputs, plans):
    return plan_file(*inputs, plans, search=SEARCH, settings=Settings(), elapsed_s=1.5)


def test_never_worse_than_the_best_baseline_on_the_profile(plans):
    for layer in plans:
        best = min(b.cost.objective_s for b in layer.baselines.values() if b.decision is not None)
        assert layer.result.cost.objective_s <= best
        assert layer.result.bound.value_s <= layer.result.cost.objective_s


def test_totals_are_sums_over_layers(plan):
    assert [entry.layer for entry in plan.layers] == [0, 5]
    assert plan.totals.profile.total_s == pytest.approx(sum(e.profile.total_s for e in plan.layers))
    assert plan.totals.held_out.total_s == pytest.approx(sum(e.held_out.total_s for e in plan.layers))
    assert plan.totals.bound_s == pytest.approx(sum(e.bound_s for e in plan.layers))
    assert plan.totals.gap == pytest.approx(1 - plan.totals.bound_s / plan.totals.profile.objective_s)
    assert set(plan.totals.baselines) == {"ep", "round_robin", "lpt", "spimoe", "ep_rows", "spimoe_rows"}


def test_decisions_come_back_with_their_scores(inputs, plan):
    model, platform, profile, unseen = inputs
    problems = {n: channel_problem(model, platform, profile, n, held_out=unseen) for n in (0, 5)}
    for entry, decision in zip(plan.layers, decisions(plan, problems).values(), strict=True):
        posed = problems[entry.layer]
        assert posed.evaluate(decision).total_s == entry.profile.total_s
        assert posed.held_out.evaluate(decision).total_s == entry.held_out.total_s


def test_file_round_trip_and_schema(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    assert read_plan(path) == plan
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))


def test_shipped_schema_is_the_code_s():
    assert json.loads(SCHEMA.read_text()) == plan_schema()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a plan of moeplan"),
        ({"version": 99}, "has version 99"),
        ({"seed": "seven"}, "seed: Input should be a valid integer"),
        ({"sede": 7}, "sede: unknown key; did you mean 'seed'"),
    ],
)
def test_a_spoilt_file_is_refused_by_name(plan, tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**plan.model_dump(mode="json"), **change}))
    with pytest.raises(BadInput, match=message):
        read_plan(path)


def test_same_seed_same_plan_whatever_the_jobs(inputs, plans):
    again = plan_channels(*inputs, search=SEARCH, layers=(0, 5), jobs=1)
    for one, other in zip(plans, again, strict=True):
        assert one.decision == other.decision


def test_an_interruption_reaches_the_published_heuristics(inputs):
    stop = threading.Event()
    stop.set()
    (plan,) = plan_channels(*inputs, search=SEARCH, layers=(0,), interrupt=stop)
    assert plan.baselines["spimoe"].stop is Stop.INTERRUPTED
    assert plan.baselines["spimoe"].iterations == 0


def test_no_clock_ends_a_published_heuristic():
    assert BASELINE_BUDGET.time_s is None


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        (lambda d: _scale(d["layers"][1]["profile"]["parts"], "dram_s", 0.5), "totals", "sum of parts"),
        (lambda d: _swap(d["layers"][0]["held_out"]["parts"]), "totals", "held_out.dram_s"),
        (lambda d: _scale(d["layers"][0]["baselines"]["lpt"]["profile"], "total_s", 2.0), "totals", "lpt"),
    ],
)
def test_scores_that_do_not_add_up_are_found(inputs, plan, change, check, said):
    data = plan.model_dump(mode="json")
    change(data)
    found = verify(_read(data), *inputs[:2])
    assert any(said in finding.detail for finding in found if finding.check == check and finding.ok is False)


@pytest.mark.parametrize(
    ("change", "check", "said"),
    [
        (lambda d: d["layers"][0].update(stop="optimalx"), "bound and gap", "no stop 'optimalx'"),
        (lambda d: d["totals"].update(stop="optimal"), "bound and gap", "the layers give"),
        (lambda d: d["layers"][1].update(anytime=[]), "bound and gap", "no curve"),
        (lambda d: _scale(d["layers"][1]["anytime"][-1], "best_s", 0.9), "bound and gap", "the curve's end"),
        (lambda d: d["platform"].update(rows=5), "platform", "rows: the plan has 5, here 4"),
        (lambda d: d["model"].update(top_k=7), "model", "top_k: the plan has 7, here 8"),
        (lambda d: d["platform"].update(site_capacity_bytes=1e12), "room", "site_capacity_bytes"),
    ],
)
def test_what_was_changed_by_hand_is_found(inputs, plan, change, check, said):
    data = plan.model_dump(mode="json")
    change(data)
    found = {finding.check: finding for finding in verify(_read(data), *inputs[:2])}
    assert found[check].ok is False
    assert said in found[check].detail


def test_a_baseline_below_the_bound_is_found(inputs, plan):
    data = plan.model_dump(mode="json")
    data["layers"][0]["baselines"]["lpt"]["profile"]["objective_s"] = plan.layers[0].bound_s * 0.9
    found = {finding.check: finding for finding in verify(_read(data), *inputs[:2])}
    assert "layer 0: lpt is below the bound" in found["bound and gap"].detail


def test_a_bound_that_nothing_proves_is_found(inputs, plan):
    """Bound, gap and stop are changed together, so that the file agrees with itself."""

    def claimed(by):
        data = plan.model_dump(mode="json")
        for entry in data["layers"]:
            entry.update(bound_s=entry["profile"]["objective_s"], gap=0.0, stop="optimal")
            if by:
                entry["bound_by"] = by
        bounds = [entry["bound_s"] for entry in data["layers"]]
        data["totals"].update(bound_s=sum(bounds), gap=0.0, stop="optimal")
        return {f.check: f for f in rescore(_read(data), *inputs)}["bounds"]

    assert claimed(None).ok is False
    assert "average load, largest expert and gather per step gives" in claimed(None).detail
    assert claimed("magic").ok is True
    assert "but for those by magic, which only a search proves" in claimed("magic").detail


def test_baselines_are_run_again(inputs, plan):
    findings = {f.check: f for f in rescore(plan, *inputs)}
    assert all(f.ok for f in findings.values()), findings
    assert "spimoe, spimoe_rows: searches, not run again" in findings["baselines"].detail
    data = plan.model_dump(mode="json")
    for scores in (data["totals"]["baselines"]["ep_rows"], data["layers"][0]["baselines"]["ep_rows"]):
        for name in scores["profile"]["parts"]:
            scores["profile"]["parts"][name] *= 2.0
        scores["profile"]["total_s"] *= 2.0
    findings = {f.check: f for f in rescore(_read(data), *inputs)}
    assert findings["baselines"].ok is False
    assert "ep_rows, layer 0 total_s" in findings["baselines"].detail


def _read(data):
    return ChannelPlan.model_validate_json(json.dumps(data))


def _scale(where, name, factor):
    where[name] *= factor


def _swap(parts):
    """The sum stays."""
    parts["dram_s"], parts["gather_s"] = parts["gather_s"], parts["dram_s"]


def test_an_interrupted_plan_holds_the_best_so_far(inputs):
    stop = threading.Event()
    stop.set()
    plans = plan_channels(*inputs, search=SEARCH, layers=(0,), interrupt=stop)
    assert plans[0].result.stop is Stop.INTERRUPTED
    written = plan_file(*inputs, plans, search=SEARCH, settings=Settings(), elapsed_s=0.0)
    assert written.totals.stop == "interrupted"
    assert any("interrupted" in warning for warning in written.warnings)
    assert written.totals.profile.objective_s == min(
        b.profile.objective_s for b in written.totals.baselines.values() if b.profile
    )
