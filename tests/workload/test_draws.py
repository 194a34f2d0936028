"""The kernel against a plain implementation that sums all odds at every draw."""

import numpy as np
import pytest

from moeplan.workload.draws import LANES, draw_without_replacement

_MASK = (1 << 64) - 1
KEY = 0x1234567890ABCDEF


def uniform(counter):
    z = (KEY + (counter + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) / 2**53


def plainly(odds, top_k, first_counter):
    """Experts in lane order, one cumulated sum per draw, in double precision."""
    odds, chosen = odds.astype(np.float64), []
    order = np.argsort(np.arange(odds.size) % LANES, kind="stable")
    for k in range(top_k):
        until = np.cumsum(odds[order])
        chosen.append(order[np.searchsorted(until, uniform(first_counter + k) * until[-1], side="right")])
        odds[chosen[-1]] = 0.0
    return chosen


@pytest.fixture
def instance():
    """40 of 48 experts are real; 3 steps, 5 requests, groups of 7 and 8."""
    rng = np.random.default_rng(0)
    by_step = np.exp(rng.standard_normal((3, 48))).astype(np.float32)
    by_step[:, 40:] = 0.0
    by_request = np.exp(rng.standard_normal((5, 48))).astype(np.float32)
    members = np.full((2, 8), -1)
    members[0, :7], members[1] = np.arange(7), np.arange(20, 28)
    step, request = np.repeat(np.arange(3), 500), np.tile(np.arange(5), 300)
    return by_step, step, by_request, request, members


def draw(instance, group_until=(), boost=1.0, first=0, top_k=6, rows=slice(None)):
    by_step, step, by_request, request, members = instance
    step, request = step[rows], request[rows]
    choices = np.empty((step.size, top_k), dtype=np.int16)
    until = np.array(group_until, dtype=np.float64)
    draw_without_replacement(
        by_step, step, by_request, request, members, until, boost, KEY, first + (rows.start or 0), choices
    )
    return choices


def test_it_draws_as_a_plain_implementation_does(instance):
    by_step, step, by_request, request, _ = instance
    choices = draw(instance)
    same = [
        plainly(by_step[step[t]] * by_request[request[t]], 6, t * 7 + 1) == choices[t].tolist()
        for t in range(len(step))
    ]
    assert np.mean(same) > 0.999  # single precision may turn a close choice


def test_experts_are_distinct_and_real(instance):
    choices = draw(instance, top_k=40)
    assert (np.sort(choices, axis=-1) == np.arange(40)).all()


def test_the_group_is_favoured(instance):
    # with a boost of 10^9 six draws stay within the group, whose share is 0.3 and 0.7
    choices = draw(instance, group_until=(0.3, 1.0), boost=1e9)
    first, second = (choices < 7).all(axis=-1), ((choices >= 20) & (choices < 28)).all(axis=-1)
    assert (first | second).all()
    assert first.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 1500))


def test_a_token_depends_on_its_row_alone(instance):
    whole = draw(instance, group_until=(0.3, 1.0), boost=5.0)
    assert (draw(instance, group_until=(0.3, 1.0), boost=5.0, rows=slice(700, None)) == whole[700:]).all()
