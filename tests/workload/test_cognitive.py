from dataclasses import replace

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.cognitive import TokenRule, cognitive_experts


@pytest.fixture
def trace(make_trace):
    """Expert 0 fires always; expert 2 with the first token of a request, expert 1 with the others."""
    experts = np.array([[[0, 2]], [[0, 1]], [[0, 1]], [[0, 2]], [[0, 1]]])
    phase = np.array([1, 1, 2, 1, 2], dtype=np.int8)
    return make_trace((3, 2), layers=(0,), num_experts=4, experts=experts, phase=phase)


def test_frequency_and_lift_by_hand(trace):
    first = TokenRule(last=0).marks(trace)
    assert first.tolist() == [True, False, False, True, False]
    # on first tokens experts 0 and 2 both fire always: the tie goes to the lower id
    assert cognitive_experts(trace, 1, first).tolist() == [[True, False, False, False]]
    assert cognitive_experts(trace, 2, first).tolist() == [[True, False, True, False]]
    # the lift of expert 0 is 1, that of expert 2 is 1 / (2 / 5)
    assert cognitive_experts(trace, 1, first, by="lift").tolist() == [[False, False, True, False]]
    assert not cognitive_experts(trace, 0, first).any()


def test_rules_by_phase_and_position(trace):
    assert TokenRule("think").marks(trace).tolist() == [True, True, False, True, False]
    assert TokenRule("think", first=1).marks(trace).tolist() == [False, True, False, False, False]
    assert TokenRule(first=2).marks(trace).tolist() == [False, False, True, False, False]
    assert TokenRule().marks(trace).all()


def test_dropped_experts_do_not_fire(trace):
    experts = trace.experts.copy()
    experts[:, 0, 0] = -1
    left = replace(trace, experts=experts)
    assert cognitive_experts(left, 1, TokenRule(last=0).marks(left)).tolist() == [[False, False, True, False]]


def test_what_cannot_be_meant(trace):
    with pytest.raises(BadInput, match="marks no token"):
        TokenRule("prefill").marks(trace)
    with pytest.raises(BadInput, match="does not tell phases"):
        TokenRule("think").marks(replace(trace, phase=None))
    with pytest.raises(BadInput, match="no token is marked"):
        cognitive_experts(trace, 1, np.zeros(5, dtype=np.bool_))
    with pytest.raises(UsageError, match="5 cognitive experts of 4"):
        cognitive_experts(trace, 5, TokenRule().marks(trace))
    with pytest.raises(UsageError, match="unknown measure"):
        cognitive_experts(trace, 1, TokenRule().marks(trace), by="luck")
    with pytest.raises(UsageError, match="unknown phase"):
        TokenRule("sleep")
    with pytest.raises(UsageError, match="hold no token"):
        TokenRule(first=3, last=2)
