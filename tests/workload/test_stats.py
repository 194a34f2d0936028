import itertools
import json

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.workload.load import Load
from moeplan.workload.model import load_model
from moeplan.workload.readers.arrays import read_arrays
from moeplan.workload.stats import load_statistics, trace_statistics, union


def load_of(experts, num_experts):
    experts = np.array(experts)
    return Load(
        experts=experts,
        layers=tuple(range(experts.shape[2])),
        num_experts=num_experts,
        model="tiny",
        requests=1,
        repeated=False,
        note="",
    )


def top_1(*steps, num_experts=4):
    """A load of one layer and top-1; each step lists the expert of every slot."""
    return load_of(np.array(steps)[:, :, None, None], num_experts)


def test_skew_of_one_step_by_hand():
    # four tokens on experts 0, 0, 0, 1: counts 3, 1, 0, 0, mean 1
    found = load_statistics(top_1([0, 0, 0, 1]), unions=(1, 2))
    # Gini: ascending 0, 0, 1, 3 with ranks -3, -1, 1, 3: (1 + 9) / (4 * 4)
    assert found.gini.mean == pytest.approx(0.625)
    assert found.hottest_over_mean.mean == 3.0
    assert found.top8_share.mean == 1.0
    # of the six pairs of tokens three show one expert and three show two
    assert {b: figure.mean for b, figure in found.union.items()} == pytest.approx({1: 1.0, 2: 1.5, 4: 2.0})
    assert found.persistence is None


def test_equal_counts_have_no_skew():
    found = load_statistics(top_1([0, 1, 2, 3]))
    assert found.gini.mean == 0.0
    assert found.hottest_over_mean.mean == found.peak_over_mean == 1.0


def test_top_8_of_16_experts():
    # 16 experts; expert i has 3 tokens for i < 8 and 1 token for the rest: 24 of 32
    found = load_statistics(top_1([i for i in range(16) for _ in range(3 if i < 8 else 1)], num_experts=16))
    assert found.top8_share.mean == 0.75


def test_steps_are_averaged_and_layers_kept_apart():
    # layer 0: ratios 2 and 1 over its two steps; layer 1: 2 and 2
    steps = [[[[0], [1]], [[0], [1]]], [[[0], [0]], [[1], [0]]]]
    found = load_statistics(load_of(steps, 2))
    assert found.hottest_over_mean.per_layer == (1.5, 2.0)
    assert found.hottest_over_mean.mean == 1.75
    assert found.peak_over_mean == 2.0


def test_persistence_by_hand():
    # {0, 1} -> {1, 2}: 1 of 2 again; {1, 2} -> {2}: 1 of 2
    found = load_statistics(top_1([0, 1, 1], [1, 2, 2], [2, 2, 2]))
    assert found.persistence.mean == 0.5
    assert found.hot_persistence.mean == pytest.approx(2 / 3)  # expert 2 in two of three steps


def test_union_against_all_subsets():
    rng = np.random.default_rng(0)
    tokens = rng.random((6, 5)).argsort(axis=-1)[:, :2]  # six tokens, top-2 of 5
    counts = np.bincount(tokens.ravel(), minlength=5)
    for size in range(1, 7):
        subsets = itertools.combinations(range(6), size)
        sizes = [len(set(tokens[list(subset)].ravel().tolist())) for subset in subsets]
        assert union(counts, 6, size) == pytest.approx(np.mean(sizes))


def test_union_sizes_follow_the_batch():
    assert set(load_statistics(top_1([0] * 10)).union) == {1, 8, 10}
    with pytest.raises(UsageError, match="at least one token"):
        load_statistics(top_1([0]), unions=(0,))


def test_pairs_by_hand(make_trace):
    # half of 120 tokens choose {0, 1}, half {2, 3}: 60 of each pair; all popularities 1/2, so that
    # independent pairs would be 120 / 6 = 20 each. Distance: (2 * 40 + 4 * 20) / 2 / 120
    experts = np.array([[[0, 1]], [[3, 2]]] * 60)
    found = trace_statistics(make_trace((120,), layers=(5,), num_experts=4, experts=experts))
    assert found.pair_distance.mean == pytest.approx(2 / 3)
    lift = found.top_lifts[0]
    assert (lift.layer, lift.tokens) == (5, 60)
    assert lift.experts in ((0, 1), (2, 3))
    assert lift.lift == pytest.approx(3.0)
    # consecutive tokens share nothing; two random ones 4 * (1/2)^2 / 2
    assert found.overlap.mean == 0.0
    assert found.overlap_by_chance.mean == pytest.approx(0.5)


def test_overlap_counts_consecutive_positions_of_a_request_only(make_trace):
    experts = np.array([[[0, 1]], [[1, 2]], [[1, 2]], [[2, 1]], [[4, 5]]])
    trace = make_trace(
        (2, 3), layers=(0,), experts=experts, position=np.array([0, 1, 0, 1, 3])
    )  # 0 -> 1 shares 1 of 2, 2 -> 3 shares 2 of 2; 3 -> 4 skips a position
    assert trace_statistics(trace).overlap.mean == 0.75


def test_single_tokens_have_no_overlap_and_top_1_no_pairs(make_trace):
    found = trace_statistics(make_trace((1, 1), top_k=1))
    assert found.overlap is None
    assert found.pair_distance.mean == 0.0
    assert found.top_lifts == ()


def test_dictionaries_are_plain_json(make_trace):
    for found in (load_statistics(top_1([0, 1], [1, 1])), trace_statistics(make_trace())):
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))


def test_recorded_traces_have_their_published_correlation(traces_folder):
    # overlap of consecutive tokens 0.44 and 0.28, pair distance 0.34 to 0.37
    decode = trace_statistics(
        read_arrays(traces_folder / "gpt-oss-20b-decode.npz", load_model("gpt-oss-20b"))
    )
    assert decode.overlap.mean == pytest.approx(0.44, abs=0.01)
    assert decode.pair_distance.mean == pytest.approx(0.34, abs=0.01)
    summary = trace_statistics(
        read_arrays(traces_folder / "deepseek-v2-lite-summary.npz", load_model("deepseek-v2-lite"))
    )
    assert summary.overlap.mean == pytest.approx(0.28, abs=0.02)
    assert summary.pair_distance.mean == pytest.approx(0.37, abs=0.01)
