import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.load import Load, count_pairs


def make_load(experts, num_experts=4, **changes):
    fields = {
        "layers": tuple(range(np.shape(experts)[2])),
        "num_experts": num_experts,
        "model": "tiny",
        "requests": 1,
        "repeated": False,
        "note": "",
    }
    return Load(experts=np.array(experts), **fields | changes)


def test_counts_and_pairs_by_hand():
    # one step, three slots, two layers, top-2
    load = make_load([[[[0, 1], [2, 3]], [[1, 0], [3, 0]], [[1, 2], [0, 3]]]])
    assert (load.steps, load.batch, load.top_k) == (1, 3, 2)
    assert load.counts().tolist() == [[[2, 3, 1, 0], [2, 0, 1, 3]]]
    assert load.pair_counts().tolist() == [
        [[2, 2, 0, 0], [2, 3, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]],
        [[2, 0, 0, 2], [0, 0, 0, 0], [0, 0, 1, 1], [2, 0, 1, 3]],
    ]


def test_counts_and_pairs_against_brute_force():
    rng = np.random.default_rng(0)
    experts = rng.random((3, 5, 2, 7)).argsort(axis=-1)[..., :3]
    load = make_load(experts, num_experts=7)
    counts = np.zeros((3, 2, 7), dtype=int)
    pairs = np.zeros((2, 7, 7), dtype=int)
    for step, slot, layer in np.ndindex(3, 5, 2):
        for i in experts[step, slot, layer]:
            counts[step, layer, i] += 1
            for j in experts[step, slot, layer]:
                pairs[layer, i, j] += 1
    assert np.array_equal(load.counts(), counts)
    assert np.array_equal(load.pair_counts(), pairs)


def test_pairs_of_top_1_are_a_diagonal():
    assert count_pairs(np.array([[[1]], [[1]], [[0]]]), 2).tolist() == [[[1, 0], [0, 2]]]


def test_shape_fingerprint_and_protection():
    load = make_load([[[[0, 1]]]])
    assert load.fingerprint == make_load([[[[0, 1]]]], note="other words").fingerprint
    assert load.fingerprint != make_load([[[[0, 2]]]]).fingerprint
    with pytest.raises(ValueError, match="read-only"):
        load.experts[0] = 1
    with pytest.raises(BadInput, match="a load needs"):
        make_load([[[[0, 1]]]], layers=(0, 1))


def test_dropped_experts_do_not_count():
    load = make_load([[[[0, -1]], [[-1, 1]], [[1, 2]]]])
    assert load.counts().tolist() == [[[1, 2, 1, 0]]]
    assert load.pair_counts().tolist() == [[[1, 0, 0, 0], [0, 2, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]]


def test_a_pruned_load_keeps_what_is_marked():
    load = make_load([[[[0, 1]], [[1, 2]]]], note="Replayed.")
    kept = np.array([[[[True, False]], [[True, True]]]])
    left = load.pruned(kept, "Pruned.")
    assert left.experts.tolist() == [[[[0, -1]], [[1, 2]]]]
    assert (left.note, left.layers, left.model) == ("Replayed. Pruned.", load.layers, load.model)
    assert left.fingerprint != load.fingerprint
    with pytest.raises(BadInput, match="'kept' must have the shape"):
        load.pruned(kept[0], "")
