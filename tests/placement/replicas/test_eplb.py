"""EPLB as published: worked by hand, the example of its own page, and its answers on recorded cases."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.placement import solve
from moeplan.placement.replicas.eplb import eplb
from moeplan.placement.replicas.planning import baseline

from .instances import problem


def rank_loads(load: np.ndarray, slots: np.ndarray, ranks: int) -> np.ndarray:
    each = load / np.bincount(slots, minlength=len(load))
    return each[slots].reshape(ranks, -1).sum(axis=1)


def test_greedy_counts_and_packing_by_hand():
    # Spare slots: 8 -> 4 + 4; then 4 (expert 0) and 4 (expert 1) tie, the first wins: counts 3, 1, 1, 1.
    # Packing 4, 8/3, 8/3, 8/3, 2, 2 on two ranks of three: 4 + 8/3 + 2 and 8/3 + 8/3 + 2.
    load = np.array([8.0, 4.0, 2.0, 2.0])
    slots = eplb(load, slots=6, groups=1, nodes=1, ranks=2)
    assert np.bincount(slots).tolist() == [3, 1, 1, 1]
    assert sorted(rank_loads(load, slots, 2)) == pytest.approx([22 / 3, 26 / 3])


def test_groups_are_packed_onto_nodes_by_hand():
    # Groups {0,1}, {2,3}, {4,5}, {6,7} of 10, 7, 5, 2: the nodes get 10 + 2 and 7 + 5.
    load = np.array([6.0, 4.0, 4.0, 3.0, 3.0, 2.0, 1.0, 1.0])
    slots = eplb(load, slots=8, groups=4, nodes=2, ranks=4)
    assert {frozenset(slots[:4]), frozenset(slots[4:])} == {frozenset((0, 1, 6, 7)), frozenset((2, 3, 4, 5))}


def test_one_item_a_pack_is_left_in_place():
    assert eplb(np.array([1.0, 5.0, 3.0, 2.0]), slots=4, groups=1, nodes=1, ranks=4).tolist() == [0, 1, 2, 3]


def test_a_replica_count_of_the_published_page():
    # The example of the project's page, first layer: expert 5 and 10, 4 and 1 have two replicas.
    load = np.array([90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], float)
    slots = eplb(load, slots=16, groups=4, nodes=2, ranks=8)
    assert np.flatnonzero(np.bincount(slots) == 2).tolist() == [1, 4, 5, 10]


def test_groups_that_do_not_divide_go_global():
    load = np.random.default_rng(1).integers(1, 100, 12).astype(float)
    here = eplb(load, slots=16, groups=3, nodes=2, ranks=4)
    assert here.tolist() == eplb(load, slots=16, groups=1, nodes=1, ranks=4).tolist()


def test_equal_to_the_published_code():
    folder = os.environ.get("MOEPLAN_REFERENCE")
    path = Path(folder or "") / "eplb_cases.npz"
    if folder is None or not path.exists():
        pytest.skip("needs eplb_cases.npz in $MOEPLAN_REFERENCE")
    data = np.load(path)
    for case in json.loads(str(data["meta"])):
        load = data[case["name"] + "_load"].astype(float)
        shape = {name: case[name] for name in ("slots", "groups", "nodes", "ranks")}
        slots = np.stack([eplb(row, **shape) for row in load])
        counts = np.stack([np.bincount(row, minlength=load.shape[1]) for row in slots])
        assert (counts == data[case["name"] + "_count"]).all(), case["name"]
        loads = np.stack([rank_loads(row, s, case["ranks"]) for row, s in zip(load, slots, strict=True)])
        ordered = -np.sort(-loads, axis=1)
        assert ordered == pytest.approx(data[case["name"] + "_sorted_rank_load"], rel=1e-5), case["name"]


#: A worked example of vllm-ascend (pull request 3042): 8 devices of 2 slots.
ASCEND = [600.0, 560.0, 120.0, 120.0, 20.0, 10.0, 10.0, 10.0]


def test_baseline_keeps_duplicates_and_the_solver_repairs_them():
    posed = problem(ASCEND, 1, (2,) * 8)
    assert baseline(posed, "eplb").cost.total_s == pytest.approx(232.0)
    repaired = solve(posed, "eplb")
    assert repaired.decision is not None
    assert posed.duplicates(repaired.decision) == 0
    assert (
        posed.has(repaired.decision).sum(axis=1).tolist()
        == posed.has(baseline(posed, "eplb").decision).sum(axis=1).tolist()
    )


def test_uneven_slots_are_refused():
    with pytest.raises(UsageError, match="as many slots on every rank"):
        solve(problem([3.0, 2.0, 1.0], 1, (2, 1)), "eplb")
