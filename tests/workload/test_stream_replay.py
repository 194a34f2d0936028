import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.replay import replay, split
from moeplan.workload.stream import open_trace
from moeplan.workload.stream_replay import replay_stream, split_stream
from moeplan.workload.trace import write_trace

pytestmark = pytest.mark.usefixtures("small_groups")
PROPERTIES = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def same_load(left, right):
    assert np.array_equal(left.experts, right.experts)
    names = ("layers", "num_experts", "model", "requests", "repeated", "note", "fingerprint")
    assert [getattr(left, name) for name in names] == [getattr(right, name) for name in names]


def shuffled(trace, seed):
    """Tokens of requests in any order, as only a file that was put together by hand has them."""
    return trace.take(np.random.default_rng(seed).permutation(trace.tokens))


@PROPERTIES
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    batch=st.integers(1, 8),
    steps=st.integers(1, 40),
    seed=st.integers(0, 3),
    files=st.integers(1, 3),
)
def test_replay_is_the_same_as_in_memory(tmp_path_factory, make_trace, lengths, batch, steps, seed, files):
    trace = shuffled(make_trace(lengths, num_experts=9, seed=seed), seed)
    folder = tmp_path_factory.mktemp("parts")
    for number, rows in enumerate(np.array_split(np.arange(trace.tokens), files)):
        if rows.size:
            write_trace(trace.take(rows), folder / f"{number}.parquet")
    stream = open_trace(folder)
    whole = stream.read()
    if trace.tokens < batch:
        with pytest.raises(BadInput, match=f"one step of batch {batch} needs {batch}"):
            replay_stream(stream, batch=batch, steps=steps, seed=seed)
        return
    same_load(
        replay_stream(stream, batch=batch, steps=steps, seed=seed),
        replay(whole, batch=batch, steps=steps, seed=seed),
    )


@PROPERTIES
@given(
    lengths=st.lists(st.integers(1, 20), min_size=2, max_size=9),
    fraction=st.floats(0.05, 0.95),
    by=st.sampled_from(["request", "time", "steps", "shuffled steps"]),
    seed=st.integers(0, 3),
)
def test_split_is_the_same_as_in_memory(tmp_path, make_trace, lengths, fraction, by, seed):
    tokens = sum(lengths)
    steps = {"steps": np.arange(tokens) // 5}
    steps["shuffled steps"] = np.random.default_rng(seed).integers(0, 6, tokens)
    trace = shuffled(make_trace(lengths, num_experts=9, seed=seed), seed)
    if by in steps:
        trace = make_trace(lengths, num_experts=9, seed=seed, step=steps[by])
    write_trace(trace, tmp_path / "t")
    how = {"by": "request" if by == "request" else "time", "seed": seed}
    expected = split(trace, fraction, **how)
    found = split_stream(open_trace(tmp_path / "t"), fraction, **how)
    for part, whole in zip(found, expected, strict=True):
        assert part.tokens == whole.tokens
        assert part.read().fingerprint == whole.fingerprint
        same_load(replay_stream(part, batch=1, steps=9, seed=2), replay(whole, batch=1, steps=9, seed=2))


def test_parts_of_parts(tmp_path, make_trace):
    trace = make_trace((12, 30, 8, 25), step=np.arange(75) // 3)
    write_trace(trace, tmp_path / "t")
    stream = split_stream(open_trace(tmp_path / "t"), 0.4, seed=0)[0]
    whole = split(trace, 0.4, seed=0)[0]
    for by in ("request", "time"):
        parts = zip(split_stream(stream, 0.5, by=by, seed=1), split(whole, 0.5, by=by, seed=1), strict=True)
        assert all(part.read().fingerprint == expected.fingerprint for part, expected in parts)


def test_layers_that_are_not_wanted_are_not_read(tmp_path, make_trace):
    trace = make_trace((40, 30), layers=(1, 3, 5))
    write_trace(trace, tmp_path / "t")
    part = replay_stream(open_trace(tmp_path / "t").with_layers((3,)), batch=2, steps=8, seed=0)
    whole = replay(trace, batch=2, steps=8, seed=0)
    assert np.array_equal(part.experts, whole.experts[:, :, 1:2])
    assert part.layers == (3,)


def test_progress_counts_the_rows_that_are_shown(tmp_path, make_trace):
    write_trace(make_trace((60,) * 4), tmp_path / "t")
    seen = []
    replay_stream(
        open_trace(tmp_path / "t"), batch=4, steps=10, seed=0,
        on_progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen[-1] == (40, 40)


def test_impossible_choices_name_their_row(tmp_path, make_trace, monkeypatch):
    experts = np.tile([0, 1], (40, 2, 1))
    experts[37, 1] = 4
    with monkeypatch.context() as patch:  # what a foreign program may write
        patch.setattr("moeplan.workload.trace.check_choices", lambda *_, **__: None)
        write_trace(make_trace((40,), experts=experts), tmp_path / "t")
    with pytest.raises(BadInput, match="twice") as error:
        replay_stream(open_trace(tmp_path / "t"), batch=1, steps=40, seed=0)
    assert "row 37, layer 3" in str(error.value)
    assert "/t'" in str(error.value)


def test_refusals(tmp_path, make_trace):
    write_trace(make_trace((4,)), tmp_path / "t")
    stream = open_trace(tmp_path / "t")
    with pytest.raises(UsageError, match="batch must be at least 1"):
        replay_stream(stream, batch=0, steps=1, seed=0)
    with pytest.raises(UsageError, match="between 0 and 1"):
        split_stream(stream, 1.0, seed=0)
    with pytest.raises(UsageError, match="cannot split by 'layer'"):
        split_stream(stream, 0.5, by="layer", seed=0)
    with pytest.raises(BadInput, match="one request"):
        split_stream(stream, 0.5, seed=0)
