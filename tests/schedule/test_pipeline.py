"""Equation 6 and partitions: by hand, by an event simulation, and the optimum against all partitions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.schedule.pipeline import (
    attention_table,
    best_partition,
    fixed_partition,
    greedy_partition,
    partition_times,
    pipeline_s,
    step_pipeline,
)


def lockstep(attention, moe):
    """Run a step [L, n] stage by stage: both substrates start their next item together."""
    items = [(layer, b) for layer in range(len(attention)) for b in range(len(attention[0]))]
    finished, total, pending = set(), 0.0, None
    while items or pending is not None:
        ready = items and (items[0][0] == 0 or (items[0][0] - 1, items[0][1]) in finished)
        working = items.pop(0) if ready else None
        stage = [attention[working[0]][working[1]]] if working else []
        stage += [moe[pending[0]][pending[1]]] if pending is not None else []
        total += max(stage)
        if pending is not None:
            finished.add(pending)
        pending = working
    return total


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_a_step_is_what_lockstep_execution_takes(seed, layers, n):
    rng = np.random.default_rng(seed)
    attention, moe = rng.random((layers, n)), rng.random((layers, n))
    assert step_pipeline(attention, moe).total_s == pytest.approx(lockstep(attention, moe))


def test_equation_6_by_hand():
    # startup 2, max(1, 5), max(4, 3), drain 6
    assert pipeline_s(np.array([2.0, 1.0, 4.0]), np.array([5.0, 3.0, 6.0])) == 17.0
    two = pipeline_s(np.array([[1.0, 1.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 3.0]]))
    assert two.tolist() == [3.0, 6.0]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=5))
def test_one_sub_batch_takes_the_serial_time(times):
    attention, moe = np.array(times).T[:, :, None]
    done = step_pipeline(attention, moe)
    assert done.total_s == pytest.approx(attention.sum() + moe.sum())
    assert pipeline_s(attention, moe) == pytest.approx((attention + moe)[:, 0])
    if done.total_s > 0:
        assert done.efficiency == pytest.approx(0.5)


def test_efficiency_and_bottleneck_by_hand():
    # T = 1 + max(1, 2) + max(1, 2) + 2 = 7; attention works 3, experts 6
    done = step_pipeline(np.array([[1.0, 1.0, 1.0]]), np.array([[2.0, 2.0, 2.0]]))
    assert (done.total_s, done.startup_s, done.drain_s, done.sub_batches) == (7.0, 1.0, 2.0, 3)
    assert done.efficiency == pytest.approx(9 / 14)
    assert done.bottleneck_share == pytest.approx(6 / 7)


def test_layers_are_chained():
    # two layers, two sub-batches, all 1: five slots instead of 2 x 3
    ones = np.ones((2, 2))
    assert step_pipeline(ones, ones).total_s == 5.0


def test_fixed_partition():
    assert fixed_partition(10, 3).tolist() == [0, 3, 6, 10]
    assert fixed_partition(4, 4).tolist() == [0, 1, 2, 3, 4]
    for wrong in (0, 5):
        with pytest.raises(UsageError, match="4 tokens do not make"):
            fixed_partition(4, wrong)


def test_greedy_packing_by_hand():
    attention = attention_table(np.arange(7) * 2.0)
    # a token costs 1, but one that joins tokens already there 3: {1: 1, 2: 4, 3: 7, ...}
    moe = attention_table(np.array([0.0, 1.0, 4.0, 7.0, 10.0, 13.0, 16.0]))
    # 1 <= 2, 4 <= 4, 7 > 6: three tokens close a sub-batch
    assert greedy_partition(moe, attention).tolist() == [0, 3, 6]
    # the attention of four tokens is 8: the fourth token exceeds it
    assert greedy_partition(moe, attention, nominal=4).tolist() == [0, 4, 6]
    assert greedy_partition(0 * moe, attention).tolist() == [0, 6]
    assert greedy_partition(100 + moe, attention).tolist() == [0, 1, 2, 3, 4, 5, 6]
    # layers are summed: the second layer's experts are free
    both = np.stack([moe, 0 * moe])
    assert greedy_partition(both, attention).tolist() == [0, 6]


def tables(seed, layers, tokens):
    """Times of sub-batches that grow with every token, by steps that are random."""
    rng = np.random.default_rng(seed)
    grown = rng.random((2, layers, tokens + 1, tokens + 1)).cumsum(axis=-1)
    grown += rng.random((2, layers, 1, 1)) * rng.integers(0, 3)
    return grown[0], grown[1]


def partitions(tokens):
    for inner in range(tokens):
        for cuts in combinations(range(1, tokens), inner):
            yield np.array([0, *cuts, tokens])


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_the_optimum_is_the_least_of_all_partitions(seed, layers, tokens):
    moe, attention = tables(seed, layers, tokens)
    starts, total_s = best_partition(moe, attention)
    least = min(partition_times(moe, attention, cuts).total_s for cuts in partitions(tokens))
    assert total_s == pytest.approx(least, rel=1e-12)
    assert partition_times(moe, attention, starts).total_s == pytest.approx(total_s, rel=1e-12)


@given(st.data(), st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 24))
@settings(max_examples=60, deadline=None)
def test_no_partition_of_the_order_is_better_than_the_optimum(data, seed, layers, tokens):
    moe, attention = tables(seed, layers, tokens)
    _, total_s = best_partition(moe, attention)
    cuts = data.draw(st.sets(st.integers(1, tokens - 1))) if tokens > 1 else set()
    tried = [np.array([0, *sorted(cuts), tokens]), greedy_partition(moe, attention)]
    tried.append(greedy_partition(moe, attention, nominal=data.draw(st.integers(1, tokens))))
    tried.append(fixed_partition(tokens, data.draw(st.integers(1, tokens))))
    for starts in tried:
        assert total_s <= partition_times(moe, attention, starts).total_s * (1 + 1e-12)


def test_attention_that_is_the_same_in_all_layers_need_not_be_repeated():
    moe, attention = tables(3, 3, 6)
    same = attention[0]
    assert best_partition(moe, same)[1] == best_partition(moe, np.stack([same] * 3))[1]


def test_what_is_no_partition_or_table():
    moe, attention = tables(0, 2, 4)
    for wrong in ([0, 3], [1, 4], [0, 2, 2, 4], [0, 3, 2, 4]):
        with pytest.raises(UsageError, match="is no partition"):
            partition_times(moe, attention, np.array(wrong))
    with pytest.raises(UsageError, match="do not describe sub-batches"):
        best_partition(moe[:, :3], attention)
    with pytest.raises(UsageError, match="do not describe sub-batches"):
        greedy_partition(moe[0], attention)
    with pytest.raises(UsageError, match="nominal sub-batch of 0"):
        greedy_partition(moe, attention, nominal=0)
    with pytest.raises(UsageError, match="beside expert times"):
        pipeline_s(np.ones(3), np.ones(2))
    with pytest.raises(UsageError, match="one sub-batch at least"):
        pipeline_s(np.ones(0), np.ones(0))
    with pytest.raises(UsageError, match=r"axes \[layers, sub-batches\]"):
        step_pipeline(np.ones(3), np.ones(3))
    long = np.zeros((2, 258, 258))
    with pytest.raises(UsageError, match="out of reach"):
        best_partition(long, long)
