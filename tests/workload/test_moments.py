import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import UsageError
from moeplan.workload.load import Load
from moeplan.workload.model import load_model
from moeplan.workload.moments import MOMENT_NAMES, Sample, Target, measure
from moeplan.workload.synthetic import SyntheticRouting


def sample_of(experts, num_experts):
    """A sample of choices [S, B, L, K]."""
    experts = np.array(experts)
    return Sample(
        Load(
            experts=experts,
            layers=tuple(range(experts.shape[2])),
            num_experts=num_experts,
            model="tiny",
            requests=experts.shape[1],
            repeated=False,
            note="",
        )
    )


def top_1(*steps, num_experts=4):
    """One layer and top-1; each step lists the expert of every slot."""
    return sample_of(np.array(steps)[:, :, None, None], num_experts)


def moment(sample, name, tokens=None):
    return sample.measure(Target(name, 1.0, sample.load.batch, 0.1, tokens))


def test_window_and_step_by_hand():
    # counts 3, 1, 0, 0 and 1, 3, 0, 0; together 4, 4, 0, 0 with mean 2
    sample = top_1([0, 0, 0, 1], [1, 1, 1, 0])
    assert moment(sample, "gini") == pytest.approx(0.5)  # (4 + 3 * 4) / (4 * 8)
    assert moment(sample, "step_gini") == pytest.approx(0.625)  # (1 + 3 * 3) / (4 * 4) at either step
    assert moment(sample, "hottest_over_mean") == 2.0
    assert moment(sample, "step_hottest_over_mean") == 3.0
    assert moment(sample, "hot_persistence") == 0.5
    assert moment(sample, "union") == 2.0
    assert moment(sample, "union", tokens=2) == 1.5  # three of six pairs show both experts


def test_shares_of_the_hottest_by_hand():
    # 32 experts: 8 with 3 tokens, 8 with 2, 16 with 1: 56 tokens
    tokens = [e for e in range(32) for _ in range((3, 2, 1, 1)[e // 8])]
    sample = top_1(tokens, num_experts=32)
    assert moment(sample, "top8_share") == pytest.approx(24 / 56)
    assert moment(sample, "top16_share") == pytest.approx(40 / 56)


def test_layers_are_averaged_and_the_peak_is_of_the_hottest():
    # layer 0: 1, 1 (Gini 0, ratio 1); layer 1: 2, 0 (Gini 1/2, ratio 2)
    sample = sample_of([[[[0], [0]], [[1], [0]]]], 2)
    assert moment(sample, "gini") == pytest.approx(0.25)
    assert moment(sample, "gini_spread") == pytest.approx(1.0)  # 0.25 / 0.25
    assert moment(sample, "hottest_over_mean") == 1.5
    assert moment(sample, "peak_over_mean") == 2.0


def test_overlap_lift_by_hand():
    # every request stays with its expert; two random tokens share one with probability 1/2
    assert moment(top_1([0, 0, 1, 1], [0, 0, 1, 1]), "overlap_lift") == pytest.approx(2.0)
    assert moment(top_1([0, 0, 1, 1], [1, 1, 0, 0]), "overlap_lift") == 0.0


def test_pair_distance_by_hand():
    # half of the tokens choose {0, 1}, half {2, 3}; independence expects a sixth of every pair:
    # (2 * (1/2 - 1/6) + 4 * 1/6) / 2
    sample = sample_of([[[[0, 1]], [[3, 2]]]] * 3, 4)
    assert moment(sample, "pair_distance") == pytest.approx(2 / 3)


def test_every_name_is_measured():
    model = dataclasses.replace(load_model("olmoe-1b-7b"), moe_layers=(0, 1))
    targets = [Target(name, 1.0, 8, 0.1) for name in MOMENT_NAMES]
    routing = SyntheticRouting(sampler="draws")
    found = measure(model, routing, targets, steps=4, seed=0)
    assert all(np.isfinite(found))
    assert found == measure(model, routing, targets, steps=4, seed=0)
    assert found != measure(model, routing, targets, steps=4, seed=1)


def test_overlap_needs_two_steps():
    with pytest.raises(UsageError, match="at least two steps"):
        moment(top_1([0, 1]), "overlap_lift")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "ginny"}, "there is no moment 'ginny'"),
        ({"value": 0.0}, "value must be above 0"),
        ({"tolerance": float("nan")}, "tolerance must be above 0"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"tokens": 4}, "4 tokens of a batch of 8"),
        ({"name": "union", "tokens": 9}, "9 tokens of a batch of 8"),
    ],
)
def test_targets_that_cannot_be_meant(changes, complaint):
    fields = {"name": "gini", "value": 0.5, "batch": 8, "tolerance": 0.1} | changes
    with pytest.raises(UsageError, match=complaint):
        Target(**fields)
