"""`moeplan check`: what it sees."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def tampered(world, tmp_path):
    """Write a copy of the plan after a change, and return its path."""

    def write(change):
        plan = json.loads(world.plan.read_text())
        change(plan)
        path = tmp_path / "tampered.json"
        path.write_text(json.dumps(plan))
        return path

    return write


def findings(cli, *arguments):
    ended = cli("check", *arguments, "--json")
    answer = json.loads(ended.out)
    assert answer["ok"] == (ended.code == 0)
    assert ended.code in (0, 3)
    return {finding["check"]: finding for finding in answer["findings"]}


def test_a_plan_is_what_it_says(cli, world):
    found = findings(cli, world.plan, "--model", world.model, "--trace", world.trace)
    assert list(found) == [
        "placement", "totals", "bound and gap", "model", "platform", "groups", "room",
        "profile steps", "held-out steps", "profile scores", "site loads",
        "held-out scores", "bounds", "baselines",
    ]  # fmt: skip
    assert all(finding["ok"] for finding in found.values())


def test_a_model_that_is_no_preset_is_passed_over(cli, world):
    found = findings(cli, world.plan)
    assert found["model"]["ok"] is None
    assert "--model" in found["model"]["detail"]
    assert cli("check", world.plan, "--trace", world.trace).code == 2


def test_people_get_a_table(cli, world):
    ended = cli("check", world.plan, "--model", world.model)
    assert ended.code == 0
    assert "ok" in ended.out
    assert "WRONG" not in ended.out


def test_totals_that_are_no_sums(cli, tampered):
    def change(plan):
        plan["totals"]["held_out"]["total_s"] *= 1.001

    path = tampered(change)
    assert "held_out.total_s" in findings(cli, path)["totals"]["detail"]
    ended = cli("check", path)
    assert ended.code == 3
    assert "WRONG" in ended.out
    assert "fails 1 of" in ended.err


def test_baseline_totals_are_sums_too(cli, tampered):
    def change(plan):
        plan["layers"][1]["baselines"]["lpt"]["profile"]["total_s"] *= 2.0

    assert "lpt profile.total_s" in findings(cli, tampered(change))["totals"]["detail"]


def test_a_gap_that_does_not_follow(cli, tampered):
    def change(plan):
        plan["layers"][0]["gap"] = 0.0

    assert "layer 1: the gap is 0" in findings(cli, tampered(change))["bound and gap"]["detail"]


def test_an_optimum_with_a_gap(cli, tampered):
    path = tampered(lambda plan: plan["layers"][1].update(stop="optimal"))
    assert "layer 2 is called optimal, with a gap of 0." in findings(cli, path)["bound and gap"]["detail"]


def test_a_bound_above_the_objective(cli, tampered):
    def change(plan):
        plan["layers"][2]["bound_s"] = 2.0 * plan["layers"][2]["profile"]["objective_s"]

    assert "layer 3: the bound" in findings(cli, tampered(change))["bound and gap"]["detail"]


@pytest.mark.parametrize("sites", [[32], [3, 3], []])
def test_sites_that_are_none(cli, tampered, sites):
    def change(plan):
        plan["layers"][0]["experts"][4] = {"tp": 2 if sites == [3, 3] else 1, "sites": sites}

    assert "layer 1, expert 4" in findings(cli, tampered(change))["placement"]["detail"]


def test_sites_that_are_no_group(cli, world, tampered):
    def change(plan):
        plan["layers"][0]["experts"][4] = {"tp": 2, "sites": [0, 31]}  # opposite corners of the mesh

    found = findings(cli, tampered(change), "--model", world.model)
    assert found["placement"]["ok"]
    assert "layer 1, expert 4: [0, 31] is no channel group" in found["groups"]["detail"]


def test_an_expert_without_a_place(cli, tampered):
    def change(plan):
        del plan["layers"][1]["experts"][7]

    assert "layer 2 places 7 of 8 experts" in findings(cli, tampered(change))["placement"]["detail"]


def test_a_site_that_holds_too_much(cli, tampered):
    # An expert of tiny has 3 x 256 x 128 weights of 2 bytes: 196,608.
    def change(plan):
        plan["platform"]["site_capacity_bytes"] = 196_607.0
        for place in plan["layers"][0]["experts"]:
            place.update(tp=1, sites=[9])

    detail = findings(cli, tampered(change))["placement"]["detail"]
    assert "layer 1: site 9 holds 1572864 bytes, 196607 are free" in detail  # 8 x 196,608


def test_another_model_is_named_by_its_differences(cli, world, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(world.model.read_text().replace("top_k: 2", "top_k: 3"))
    assert findings(cli, world.plan, "--model", other)["model"]["detail"] == "top_k: the plan has 2, here 3"
    other.write_text(world.model.read_text().replace("vocab_size: 1000", "vocab_size: 2000"))
    assert "other fingerprint" in findings(cli, world.plan, "--model", other)["model"]["detail"]


def test_another_platform_is_named_by_its_differences(cli, world, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("base: spimoe-4x8\ntopology: {link_bandwidth: 51.2 GB/s}\n")
    detail = findings(cli, world.plan, "--platform", other)["platform"]["detail"]
    assert detail == "link bandwidths: the plan has [25600000000.0], here [51200000000.0]"
    detail = findings(cli, world.plan, "--platform", "h100")["platform"]["detail"]
    assert detail.startswith("kind: the plan has mesh, here None; ")


def test_another_trace_is_seen(cli, world):
    found = findings(cli, world.plan, "--model", world.model, "--trace", world.other_trace)
    assert not found["profile steps"]["ok"]
    assert "profile scores" not in found


def test_scores_that_the_trace_does_not_give(cli, world, tampered):
    def change(plan):
        for scores in (plan["layers"][0]["profile"], plan["totals"]["profile"]):
            scores["total_s"] += 1e-9
            scores["parts"]["dram_s"] += 1e-9

    found = findings(cli, tampered(change), "--model", world.model, "--trace", world.trace)
    assert found["totals"]["ok"]
    assert "layer 1 total_s" in found["profile scores"]["detail"]
    assert found["held-out scores"]["ok"]


@pytest.mark.parametrize("name", ["site_load_s", "held_out_site_load_s"])
def test_site_loads_that_the_placement_does_not_give(cli, world, tampered, name):
    def change(plan):
        plan["layers"][0][name][3] *= 1.01

    found = findings(cli, tampered(change), "--model", world.model, "--trace", world.trace)
    assert f" {name} is " in found["site loads"]["detail"]
    assert [name for name, finding in found.items() if not finding["ok"]] == ["site loads"]


@pytest.mark.parametrize("held_out", [("--held-out", "0"), ("--held-out", "0.25", "--split", "time")])
def test_the_plan_knows_how_its_trace_was_split(cli, world, plan_inputs, held_out, tmp_path):
    path = tmp_path / "p.json"
    assert cli("plan", *plan_inputs, *held_out, "--budget", "10it", "-o", path).code == 0
    found = findings(cli, path, "--model", world.model, "--trace", world.trace)
    assert all(finding["ok"] for finding in found.values())


def test_a_held_out_trace_is_asked_for(cli, world, plan_inputs, tmp_path):
    path = tmp_path / "p.json"
    assert (
        cli("plan", *plan_inputs, "--held-out", world.other_trace, "--budget", "10it", "-o", path).code == 0
    )
    asked = ("--model", world.model, "--trace", world.trace)
    ended = cli("check", path, *asked)
    assert ended.code == 2
    assert "other.parquet" in ended.err
    assert all(f["ok"] for f in findings(cli, path, *asked, "--held-out", world.other_trace).values())
    assert cli("check", world.plan, *asked, "--held-out", world.other_trace).code == 2
