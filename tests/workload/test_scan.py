import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.load import count_pairs
from moeplan.workload.scan import count_stream, request_lengths, scan, stream_statistics
from moeplan.workload.scan_kernels import count_layer
from moeplan.workload.stats import trace_statistics
from moeplan.workload.step_counts import step_counts
from moeplan.workload.stream import open_trace
from moeplan.workload.stream_replay import split_stream
from moeplan.workload.trace import write_trace

pytestmark = pytest.mark.usefixtures("small_groups")
PROPERTIES = settings(
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def mixed(trace, seed):
    """The same tokens, requests side by side: a random order in which positions of a request ascend."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(trace.tokens)
    order = shuffled[np.argsort(trace.position[shuffled], kind="stable")]
    return trace.take(order if seed % 2 else np.sort(shuffled))


def drop_some(trace, seed):
    experts = trace.experts.copy()
    experts[np.random.default_rng(seed).random(experts.shape) < 0.2] = -1
    experts[..., 0] = trace.experts[..., 0]  # one is always kept
    return dataclasses.replace(trace, experts=experts)


def test_by_hand(tmp_path, make_trace):
    # Requests 5 and 8 side by side. Layer 3: 5 names {0, 1}, then {1, 2}, then {1, 2}; 8 names {0, 3} twice.
    experts = np.array([[[0, 1]], [[0, 3]], [[1, 2]], [[3, 0]], [[2, 1]]])
    trace = make_trace(
        (5,), layers=(3,), num_experts=4, experts=experts, request=np.array([5, 8, 5, 8, 5]),
        position=np.array([0, 0, 1, 1, 2]), step=np.array([0, 0, 1, 1, 2]),
    )  # fmt: skip
    write_trace(trace, tmp_path / "t")
    found = scan(open_trace(tmp_path / "t"), every=1)
    assert found.counts[:, 0].tolist() == [[2, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]]
    assert found.pairs[0].tolist() == [[3, 1, 0, 2], [1, 3, 2, 0], [0, 2, 2, 0], [2, 0, 0, 2]]
    assert (found.shared.tolist(), found.followed) == ([1 + 2 + 2], 3)
    assert (found.tokens, found.requests) == (5, 2)


@PROPERTIES
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    top_k=st.integers(1, 3),
    seed=st.integers(0, 7),
    dropped=st.booleans(),
    version=st.sampled_from([1, 2]),
    threads=st.integers(1, 4),
)
def test_the_same_as_in_memory(
    tmp_path, make_trace, write_version_1, lengths, top_k, seed, dropped, version, threads
):
    trace = mixed(make_trace(lengths, layers=(0, 2, 3), num_experts=7, top_k=top_k, seed=seed), seed)
    trace = drop_some(trace, seed) if dropped else trace
    if version == 1:
        write_version_1(trace, tmp_path / "t", row_group_size=16)
    else:
        write_trace(trace, tmp_path / "t")
    stream = open_trace(tmp_path / "t")
    assert stream_statistics(stream, threads=threads) == trace_statistics(trace)
    found = scan(stream, windows=min(3, trace.tokens), threads=threads)
    assert np.array_equal(found.pairs, count_pairs(trace.experts, 7))
    for window in range(found.counts.shape[0]):
        chosen = np.arange(trace.tokens) * found.counts.shape[0] // trace.tokens == window
        for layer in range(3):
            named = trace.experts[chosen, layer].ravel()
            assert np.array_equal(found.counts[window, layer], np.bincount(named[named >= 0], minlength=7))


def test_ids_of_two_bytes_and_many_requests(tmp_path, make_trace):
    trace = mixed(make_trace((5,) * 40, num_experts=300, top_k=4), 1)
    write_trace(trace, tmp_path / "t")
    assert stream_statistics(open_trace(tmp_path / "t")) == trace_statistics(trace)


@PROPERTIES
@given(seed=st.integers(0, 5), by=st.sampled_from(["request", "time"]))
def test_parts_have_the_statistics_of_parts(tmp_path, make_trace, seed, by):
    trace = mixed(make_trace((9, 30, 4, 17, 22), seed=seed), seed)
    write_trace(trace, tmp_path / "t")
    for part in split_stream(open_trace(tmp_path / "t"), 0.4, by=by, seed=seed):
        read = part.read()
        assert stream_statistics(part) == trace_statistics(read)
        assert count_stream(part).counts.sum() == read.tokens * 2 * 2
        for steps in (1, 3):
            assert count_stream(part, windows=steps).counts.sum() == read.tokens * 2 * 2


def test_windows_say_which_rows_they_hold(tmp_path, make_trace):
    # one layer, top-1, the expert of row r is r % 4
    trace = make_trace(
        (10,), layers=(6,), num_experts=4, top_k=1, experts=np.arange(10).reshape(-1, 1, 1) % 4
    )
    write_trace(trace, tmp_path / "t")
    load = count_stream(open_trace(tmp_path / "t"), windows=3)
    assert load.windows == ("rows 0-3", "rows 4-6", "rows 7-9")
    assert load.counts[:, 0].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert (load.model, load.layers, load.source) == ("tiny", (6,), "test")
    assert count_stream(open_trace(tmp_path / "t")).windows == ("whole trace",)


def test_windows_of_recorded_steps(tmp_path, make_trace):
    experts = np.arange(40).reshape(-1, 1, 1) % 4
    step = np.repeat([0, 1, 2, 5], [10, 10, 15, 5])
    trace = make_trace((40,), layers=(6,), num_experts=4, top_k=1, experts=experts, step=step)
    for name, rows in (("a", slice(0, 20)), ("b", slice(20, 40))):
        write_trace(trace.take(np.arange(40)[rows]), tmp_path / f"{name}.parquet")
    load = count_stream(open_trace(tmp_path / "a.parquet"), every=1)
    assert load.counts.sum(axis=(1, 2)).tolist() == [10, 10]
    # steps of the second file go on after step 1 of the first: 2 -> 4 and 5 -> 7
    load = count_stream(open_trace(tmp_path), every=2)
    assert load.windows == ("steps 0-1", "steps 2-3", "steps 4-5", "steps 6-7")
    assert load.counts.sum(axis=(1, 2)).tolist() == [20, 0, 15, 5]


@PROPERTIES
@given(seed=st.integers(0, 9), steps=st.integers(1, 30))
def test_every_step_a_few_at_a_time(tmp_path, make_trace, seed, steps):
    rng = np.random.default_rng(seed)
    trace = make_trace((70,), seed=seed, step=np.sort(rng.integers(0, steps, 70)))
    write_trace(trace, tmp_path / "t")
    stream, seen = open_trace(tmp_path / "t"), []
    parts = list(step_counts(stream, lambda done, total: seen.append((done, total))))
    found = np.concatenate([part for part, _ in parts])
    assert found.tolist() == np.unique(trace.step).tolist()
    every = count_stream(stream, every=1).counts
    assert np.array_equal(np.concatenate([counts for _, counts in parts]), every[found])
    assert seen[-1] == (70, 70)


def test_steps_in_chunks(tmp_path, make_trace, monkeypatch):
    monkeypatch.setattr("moeplan.workload.step_counts._CHUNK_BYTES", 3 * 8 * 2 * 6)  # three steps
    trace = make_trace((60,), step=np.arange(60) // 2)
    write_trace(trace, tmp_path / "t")
    parts = list(step_counts(open_trace(tmp_path / "t")))
    assert max(part.size for part, _ in parts) <= 3
    assert np.concatenate([part for part, _ in parts]).tolist() == list(range(30))
    every = count_stream(open_trace(tmp_path / "t"), every=1).counts
    assert np.array_equal(np.concatenate([counts for _, counts in parts]), every)


def test_step_counts_need_steps_in_order(tmp_path, make_trace):
    write_trace(make_trace(), tmp_path / "t")
    with pytest.raises(BadInput, match="no decode steps"):
        next(step_counts(open_trace(tmp_path / "t")))
    write_trace(make_trace(step=np.array([0, 1, 3, 2, 4])), tmp_path / "t")
    with pytest.raises(BadInput, match="goes back from step 3 to 2"):
        list(step_counts(open_trace(tmp_path / "t")))


def test_positions_that_go_back_have_no_overlap(tmp_path, make_trace):
    trace = make_trace((40,), position=np.r_[np.arange(30), 12, np.arange(31, 40)])
    write_trace(trace, tmp_path / "t")
    with pytest.raises(BadInput, match="request 0 goes back from position 29 to 12") as error:
        stream_statistics(open_trace(tmp_path / "t"))
    assert "/t'" in str(error.value)
    assert count_stream(open_trace(tmp_path / "t")).counts.sum() == 40 * 2 * 2


@pytest.mark.parametrize(
    ("row", "choice", "complaint"),
    [(33, (2, 2), "twice"), (20, (1, 6), "id 6 is out of range"), (47, (-1, -1), "all experts")],
)
def test_impossible_choices_name_file_row_and_layer(
    tmp_path, make_trace, monkeypatch, row, choice, complaint
):
    trace = make_trace((50,), layers=(1, 3))
    write_trace(trace, tmp_path / "a.parquet")
    spoilt = trace.experts.copy()
    spoilt[row, 1] = choice
    with monkeypatch.context() as patch:  # what a foreign program may write
        patch.setattr("moeplan.workload.trace.check_choices", lambda *_, **__: None)
        write_trace(dataclasses.replace(trace, experts=spoilt), tmp_path / "b.parquet")
    stream = open_trace(tmp_path)
    for work in (scan, count_stream, stream_statistics):
        with pytest.raises(BadInput, match=complaint) as error:
            work(stream)
        assert f"row {row}, layer 3" in str(error.value)
        assert "b.parquet" in str(error.value)
    assert count_stream(stream.with_layers((1,))).counts.sum() == 2 * 50 * 2


def test_refusals(tmp_path, make_trace):
    write_trace(make_trace(step=np.array([0, 1, 2, 3, 2**30])), tmp_path / "t")
    stream = open_trace(tmp_path / "t")
    for wrong in (0, 6):
        with pytest.raises(UsageError, match=f"{wrong} windows of 5 tokens"):
            count_stream(stream, windows=wrong)
    with pytest.raises(UsageError, match="at least one step"):
        count_stream(stream, every=0)
    with pytest.raises(UsageError, match=r"96\.0 GiB") as error:
        count_stream(stream, every=1)
    assert "97 times as long" in str(error.value)
    with pytest.raises(UsageError, match="threads must be at least 1"):
        count_stream(stream, threads=0)


def test_progress_ends_with_all_tokens(tmp_path, make_trace):
    write_trace(make_trace((100,)), tmp_path / "t")
    seen = []
    scan(open_trace(tmp_path / "t"), on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(16, 100), (32, 100), (48, 100), (64, 100), (80, 100), (96, 100), (100, 100)]


def test_request_lengths(tmp_path, make_trace):
    trace = mixed(make_trace((30, 1, 19), request=np.repeat([7, 3, 2**31 - 1], (30, 1, 19))), 1)
    write_trace(trace, tmp_path / "t")
    ids, lengths = request_lengths(open_trace(tmp_path / "t"))
    assert dict(zip(ids.tolist(), lengths.tolist(), strict=True)) == {3: 1, 7: 30, 2**31 - 1: 19}


def test_kernel_against_its_python():
    rng = np.random.default_rng(0)
    codes = rng.random((60, 8)).argsort(axis=-1)[:, :3].astype(np.uint8)
    codes[rng.random(codes.shape) < 0.2] = 255
    codes[:, 1] = np.where((codes == 255).all(axis=1), 0, codes[:, 1])
    arguments = (
        255,
        np.arange(60) // 20,
        np.maximum(np.arange(60) - 3, -1),
        np.zeros((2, 3), dtype=np.int16),
    )
    results = []
    for function in (count_layer, count_layer.py_func):
        counts, pairs = np.zeros((3, 8), dtype=np.int64), np.zeros((8, 8), dtype=np.uint32)
        outcome = function(codes, *arguments, counts, pairs, np.zeros(8, dtype=np.int64))
        results.append((*outcome, counts.tolist(), pairs.tolist()))
    assert results[0] == results[1]
    assert results[0][0] == -1
