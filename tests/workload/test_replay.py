import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.model import load_model
from moeplan.workload.readers.arrays import read_arrays
from moeplan.workload.replay import replay, split
from moeplan.workload.stats import load_statistics

PROPERTIES = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def rows_of(load):
    """Trace rows [S, B] of the replay of a numbered trace."""
    return load.experts[:, :, 0, 0].astype(int)


def test_one_request_in_three_slots_is_a_ring(numbered_trace):
    # six tokens, starts 0, 2, 4; the third step walks on to where the next slot began
    load = replay(numbered_trace([6]), batch=3, steps=3, seed=0)
    assert rows_of(load).tolist() == [[0, 2, 4], [1, 3, 5], [2, 4, 0]]
    assert load.repeated
    assert "1 requests replayed in 3 slots" in load.note
    assert "other starting positions" in load.note
    assert "3 of 9 tokens are repetitions" in load.note


def test_one_slot_runs_request_after_request_and_begins_again(numbered_trace):
    # a single slot starts at position 0; requests are rows 0-1 and 2-4
    load = replay(numbered_trace([2, 3]), batch=1, steps=6, seed=0)
    first, again = rows_of(load)[:5, 0].tolist(), rows_of(load)[5, 0]
    assert first in ([0, 1, 2, 3, 4], [2, 3, 4, 0, 1])
    assert again == first[0]
    assert load.repeated
    assert "1 of 6 tokens are repetitions" in load.note


def test_enough_requests_do_not_repeat(numbered_trace):
    load = replay(numbered_trace([4] * 12), batch=3, steps=8, seed=0)
    assert not load.repeated
    assert load.requests == 12
    assert load.note == "12 requests replayed in 3 slots."


def test_positions_count_and_not_the_order_of_rows(numbered_trace):
    trace = numbered_trace([3, 1], position=np.array([2, 0, 1, 0]))
    walked = rows_of(replay(trace, batch=1, steps=4, seed=0))[:, 0].tolist()
    assert walked in ([1, 2, 0, 3], [3, 1, 2, 0])


@PROPERTIES
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    batch=st.integers(1, 8),
    steps=st.integers(1, 40),
    seed=st.integers(0, 3),
)
def test_every_slot_walks_requests_in_order(numbered_trace, lengths, batch, steps, seed):
    if sum(lengths) < batch:
        return
    trace = numbered_trace(lengths)
    load = replay(trace, batch=batch, steps=steps, seed=seed)
    rows = rows_of(load)
    request, position = trace.request[rows], trace.position[rows]
    last = position == np.array(lengths)[request] - 1
    inside, ended = ~last[:-1], last[:-1]
    assert np.all((request[1:] == request[:-1])[inside])
    assert np.all((position[1:] == position[:-1] + 1)[inside])
    assert np.all(position[1:][ended] == 0)
    assert all(len(set(step)) == batch for step in rows.tolist())  # no token twice in a step
    if len(lengths) >= batch:  # and no request either
        assert all(len(set(step)) == batch for step in request.tolist())
    distinct = np.unique(rows).size
    assert load.repeated == (len(lengths) < batch or distinct < rows.size)
    assert np.array_equal(rows, rows_of(replay(trace, batch=batch, steps=steps, seed=seed)))


def test_few_requests_use_every_token_before_any_twice(numbered_trace):
    rows = rows_of(replay(numbered_trace([7, 11, 6]), batch=4, steps=6, seed=1))
    assert sorted(rows.ravel().tolist()) == list(range(24))


def test_slots_start_staggered(numbered_trace):
    # 64 requests of 100 tokens in 50 slots: fractions 0, 1/50, ... of 100 tokens, in some order
    trace = numbered_trace([100] * 64)
    first = rows_of(replay(trace, batch=50, steps=1, seed=0))[0]
    assert sorted(trace.position[first].tolist()) == list(range(0, 100, 2))


def test_seed_changes_the_steps(numbered_trace):
    trace = numbered_trace([5] * 9)
    loads = [replay(trace, batch=3, steps=9, seed=seed).fingerprint for seed in (0, 0, 1)]
    assert loads[0] == loads[1] != loads[2]


def test_refusals(make_trace):
    with pytest.raises(BadInput, match="5 tokens, one step of batch 6 needs 6"):
        replay(make_trace((3, 2)), batch=6, steps=1, seed=0)
    with pytest.raises(UsageError, match="batch must be at least 1"):
        replay(make_trace(), batch=0, steps=1, seed=0)
    with pytest.raises(UsageError, match="steps must be at least 1"):
        replay(make_trace(), batch=1, steps=0, seed=0)


def test_decode_trace_of_gpt_oss_reproduces_its_statistics(traces_folder):
    trace = read_arrays(traces_folder / "gpt-oss-20b-decode.npz", load_model("gpt-oss-20b"))
    statistics = load_statistics(replay(trace, batch=128, steps=128, seed=0))
    assert statistics.hottest_over_mean.mean == pytest.approx(2.91, rel=0.03)
    assert statistics.union[8].mean == pytest.approx(17.6, rel=0.03)
    assert statistics.union[64].mean == pytest.approx(29.2, rel=0.03)


@PROPERTIES
@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=9),
    fraction=st.floats(0.05, 0.95),
    by=st.sampled_from(["request", "time"]),
    seed=st.integers(0, 3),
)
def test_split_parts_the_rows(numbered_trace, lengths, fraction, by, seed):
    trace = numbered_trace(lengths)
    profile, held_out = split(trace, fraction, by=by, seed=seed)
    rows = [part.experts[:, 0, 0].tolist() for part in (profile, held_out)]
    assert all(rows)
    assert sorted(rows[0] + rows[1]) == list(range(trace.tokens))
    assert all(part == sorted(part) for part in rows)
    assert (held_out.model, held_out.layers, held_out.source) == (trace.model, trace.layers, trace.source)
    if by == "request":
        assert not set(profile.request.tolist()) & set(held_out.request.tolist())
        # whole requests: off the fraction by at most the longest of them
        assert abs(held_out.tokens - fraction * trace.tokens) <= max(lengths)
    else:
        assert held_out.tokens == min(max(round(fraction * trace.tokens), 1), trace.tokens - 1)


def test_split_by_time_goes_by_step_where_there_is_one(numbered_trace):
    trace = numbered_trace([2, 2])
    assert split(trace, 0.5, by="time", seed=0)[1].experts.ravel().tolist() == [2, 3]
    stepped = numbered_trace([2, 2], step=np.array([5, 6, 0, 1]))
    assert split(stepped, 0.5, by="time", seed=0)[1].experts.ravel().tolist() == [0, 1]


def test_split_refusals(make_trace):
    for fraction in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            split(make_trace(), fraction, seed=0)
    with pytest.raises(UsageError, match="cannot split by 'layer'"):
        split(make_trace(), 0.5, by="layer", seed=0)
    with pytest.raises(BadInput, match="one request") as error:
        split(make_trace((4,)), 0.5, seed=0)
    assert "split by time" in str(error.value)
    with pytest.raises(BadInput, match="one token"):
        split(make_trace((1,)), 0.5, by="time", seed=0)
