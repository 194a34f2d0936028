"""Plans of replicas as files: what they hold, what a check sees, and what is explained from them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.hardware.platform import load_platform
from moeplan.placement.plan import TrafficEntry, read_plan, write_plan
from moeplan.placement.planning import Search
from moeplan.placement.replicas.cluster import resized
from moeplan.placement.replicas.document import Origin, ReplicaPlan, decisions, plan_file
from moeplan.placement.replicas.explain import explain, moved_of, traffic_matrix, traffic_shares
from moeplan.placement.replicas.planning import plan_replicas
from moeplan.placement.replicas.problem import Settings
from moeplan.placement.replicas.ranks import even_ranks
from moeplan.placement.replicas.sweep import sweep_redundancy, usable_slots
from moeplan.placement.replicas.traffic import problems_of
from moeplan.placement.replicas.verify import verify
from moeplan.placement.result import Budget

from .instances import zipf

ENTRY = TrafficEntry(
    fingerprint="sha256:0", source="made up", split="whole", share=0.0, batch=1, steps=1, requests=0,
    repeated=False, note="",
)  # fmt: skip


def planned(solver: str = "auto", current: object = None, **settings: object) -> ReplicaPlan:
    counts = zipf(2, 16, 1.0, 3)[None]
    chosen = Settings(**settings)
    held_out = counts * np.random.default_rng(1).lognormal(0.0, 0.1, (4, 2, 16))
    problems = problems_of(counts, held_out, (3, 5), even_ranks(2, 4, 24), settings=chosen, current=current)
    search = Search(solver, Budget(time_s=None, iterations=300))
    machine = resized(load_platform("gpu-cluster"), nodes=2, ranks_per_node=2)
    origin = Origin(machine, None, ENTRY, ENTRY)
    return plan_file(plan_replicas(problems, search=search), origin, search=search, settings=chosen)


def faults(plan: ReplicaPlan, **changes: object) -> list[str]:
    changed = plan.model_copy(update=changes)
    return [f.detail for f in verify(changed, None, load_platform("gpu-cluster")) if f.ok is False]


def test_a_plan_survives_its_file(tmp_path):
    plan = planned()
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    raw = json.loads((tmp_path / "plan.json").read_text())
    assert np.array(raw["physical_to_logical"]).shape == (2, 24)
    assert (raw["layer_ids"], raw["logical_experts"], raw["slots_per_rank"]) == ([3, 5], 16, [6] * 4)
    assert list(decisions(plan)) == [3, 5]


def test_what_the_plan_says_of_itself():
    plan = planned("eplb", duplicates=True, groups=4)
    for row, slots in enumerate(plan.physical_to_logical):
        load = np.array(plan.logical_count[row])
        each = load / np.bincount(slots, minlength=16)
        ranks = each[list(slots)].reshape(4, 6).sum(axis=1)
        entry = plan.layers[row]
        assert entry.rank_tokens == pytest.approx(ranks)
        assert entry.balancedness == pytest.approx(ranks.mean() / ranks.max())
        assert entry.max_over_bound == pytest.approx(ranks.max() / entry.bound_s)
        assert entry.duplicates == sum(6 - len(set(slots[g : g + 6])) for g in range(0, 24, 6))
    assert plan.balancedness.worst == min(entry.balancedness for entry in plan.layers)
    assert plan.duplicates == sum(entry.duplicates for entry in plan.layers)


def test_a_check_sees_what_is_wrong():
    plan = planned(groups=4)
    assert faults(plan) == []
    slots = [list(row) for row in plan.physical_to_logical]
    twice = [[slots[0][1], *slots[0][1:]], slots[1]]
    assert any("twice" in fault or "no slot" in fault for fault in faults(plan, physical_to_logical=twice))
    swapped = [slots[0][12:] + slots[0][:12], slots[1]]
    assert faults(plan, physical_to_logical=swapped) == [
        "layer 3: rank_tokens are not what counts and slots give"
    ]
    tokens = plan.layers[0].rank_tokens
    also = plan.layers[0].model_copy(update={"rank_tokens": tokens[2:] + tokens[:2]})
    assert faults(plan, physical_to_logical=swapped, layers=(also, plan.layers[1])) == []  # nodes are alike
    crossed = [slots[0][:6] + slots[0][12:18] + slots[0][6:12] + slots[0][18:], slots[1]]
    assert any("group" in fault for fault in faults(plan, physical_to_logical=crossed))
    lighter = plan.layers[0].model_copy(update={"balancedness": 1.0})
    assert any("balancedness" in fault for fault in faults(plan, layers=(lighter, plan.layers[1])))


@pytest.fixture(scope="module")
def grouped() -> ReplicaPlan:
    return planned(groups=4)


def edited(plan: ReplicaPlan, path: tuple[object, ...], value: object) -> dict[str, object]:
    raw = json.loads(plan.model_dump_json())
    *parents, last = path
    place = raw
    for key in parents:
        place = place[key]
    place[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("physical_to_logical", 0, 1), 16, "names expert 16"),
        (("physical_to_logical", 0, 1), -1, "names expert -1"),
        (("physical_to_logical", 0, 1), 2**40, "names expert"),
        (("physical_to_logical", 1), [0] * 23, "2 rows of 24 slots"),
        (("physical_to_logical",), [], "2 rows of 24 slots"),
        (("current",), [[0] * 24], "current must have 2 rows"),
        (("current",), [[0] * 24] * 2, "baselines lack current"),
        (("logical_count", 0), [1.0] * 15, "rows of 16 experts"),
        (("slots_per_rank",), [6, 6, 6], "does not fit 4 ranks"),
        (("nodes",), 3, "does not fit 4 ranks of 3 nodes"),
        (("groups",), 5, "do not divide into 5 groups"),
        (("layer_ids", 1), 3, "distinct and ascending"),
        (("layers",), [], "distinct and ascending"),
        (("layers", 0, "rank_tokens"), [1.0], "rank_tokens must hold 4"),
        (("platform", "rank_speed"), [1.0, 1.0, 1.0, -1.0], "4 positive numbers"),
    ],
)
def test_lists_that_do_not_fit_are_no_plan(grouped, tmp_path, path, value, words):
    (tmp_path / "plan.json").write_text(json.dumps(edited(grouped, path, value)))
    with pytest.raises(BadInput, match=words):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("balancedness", "mean"), 1.7, "balancedness.mean is 1.7"),
        (("held_out_balancedness", "worst"), 0.1, "held_out_balancedness.worst"),
        (("max_over_bound", "worst"), 0.5, "max_over_bound.worst"),
        (("layers", 0, "max_over_bound"), 0.7, "layer 3: max_over_bound"),
        (("layers", 0, "held_out_balancedness"), 1.2, "not between 0 and 1"),
        (("layers", 0, "baselines", "eplb", "balancedness"), 0.1, "contradict each other"),
        (("layers", 0, "stop"), "foo", "stop is 'foo'"),
        (("layers", 0, "moved_slots"), 2, "the slots give 0"),
        (("layers", 0, "duplicates"), 2, "the slots give 0"),
        (("duplicates",), 2, "the layers have 0"),
        (("moved_slots",), 2, "the layers have 0"),
        (("unit",), "seconds", "do not fit whether there is a model"),
        (("groups",), 8, "in the settings 4"),
        (("split",), "hash", "in the settings 'equal'"),
        (("platform", "rates", "token_memory_s"), 2.0, "rate token_memory_s"),
        (("platform", "inside_bytes_per_s"), 1.0, "inside_bytes_per_s"),
    ],
)
def test_a_check_sees_figures_that_do_not_follow(grouped, path, value, words):
    wrong = ReplicaPlan.model_validate(edited(grouped, path, value))
    assert any(words in fault for fault in faults(wrong)), faults(wrong)


def test_a_plan_of_a_resized_platform_is_of_that_platform():
    plan = planned()
    machine = resized(load_platform("h100x8"), nodes=2, ranks_per_node=2, across_bytes_per_s=25e9)
    entry = plan.platform.model_copy(
        update={"fingerprint": machine.fingerprint, "across_bytes_per_s": 25e9, "inside_bytes_per_s": 450e9}
    )
    found = {
        f.check: f for f in verify(plan.model_copy(update={"platform": entry}), None, load_platform("h100x8"))
    }
    assert found["platform"].ok, found["platform"].detail
    other = verify(plan.model_copy(update={"platform": entry}), None, load_platform("b200x8x4"))
    assert [f.ok for f in other if f.check == "platform"] == [False]


def test_a_limit_on_moves_is_named():
    linear = (np.arange(24) % 16).tolist()
    found = explain(planned(current=[linear, linear], max_moves=0))
    assert {layer.limit for layer in found.layers} == {"the 0 slots that may move"}
    assert found.verdict.count("the largest load") == 1


def test_explained_from_the_file():
    linear = (np.arange(24) % 16).tolist()
    plan = planned(current=[linear, linear])
    found = explain(plan)
    assert (found.before, found.measured_on) == ("current", "held-out")
    before = sum(entry.baselines["current"].held_out.total_s for entry in plan.layers)  # type: ignore[union-attr]
    mine = sum(entry.held_out.total_s for entry in plan.layers)  # type: ignore[union-attr]
    assert found.gain == pytest.approx(1.0 - mine / before)
    assert found.worth == (found.gain >= 0.05)
    assert found.moved_slots == plan.moved_slots == moved_of(plan).sum() > 0
    assert all(layer.reached <= layer.ceiling * (1.0 + 1e-9) for layer in found.layers)
    assert not explain(plan, threshold=1.0).worth


def test_predicted_traffic_by_hand():
    plan = planned()
    matrix = traffic_matrix(plan)
    loads = np.array([entry.rank_tokens for entry in plan.layers]).sum(axis=0)
    # Tokens come evenly from all four ranks.
    assert matrix == pytest.approx(np.tile(loads / 4, (4, 1)))
    shares = traffic_shares(plan, matrix)
    assert shares == pytest.approx({"same_rank": 0.25, "same_node": 0.25, "cross_node": 0.5})


def test_a_sweep_says_what_cannot_be_used():
    counts = zipf(2, 16, 1.0, 3)[None]

    def pose(slots: int):
        return problems_of(counts, None, (0, 1), even_ranks(1, 4, slots))

    assert usable_slots(15, 4, 24) == [16, 20, 24]
    rows = list(sweep_redundancy(pose, [12, 16, 18, 20, 68], 16, 4, Search()))
    assert [bool(row.fault) for row in rows] == [True, False, True, False, True]
    assert rows[1].redundant == 0
    assert rows[3].balancedness > rows[1].balancedness
    assert rows[3].step_s < rows[1].step_s
