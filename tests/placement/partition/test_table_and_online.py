"""The cost table learns, and the online object splits with it from many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition import CostTable, OnlinePartition, partition_layer
from moeplan.placement.solve import solve
from moeplan.workload.model import load_model


def proportional(tokens: int) -> np.ndarray:
    return 2.0 * np.arange(tokens + 1)


def test_first_observation_replaces_the_model_and_later_ones_are_averaged():
    table = CostTable(proportional, weight=0.25, size=8)
    assert table.snapshot.seconds.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    table.observe([3, 3], [10.0, 14.0])  # 10, then 10 + (14 - 10) / 4
    assert table.snapshot.seconds[3] == 11.0
    assert np.flatnonzero(table.snapshot.observed).tolist() == [3]
    table.observe(4, 1.0)
    assert table.snapshot.seconds[4] == 1.0


def test_snapshots_do_not_change():
    table = CostTable(proportional, size=8)
    before = table.snapshot
    table.observe([2], [1.0])
    assert before.seconds[2] == 4.0
    with pytest.raises(ValueError, match="read-only"):
        table.snapshot.seconds[1] = 0.0


def test_never_decreasing_in_use_keeps_what_was_observed():
    table = CostTable(proportional, never_decreasing=True, size=4)
    table.observe([2, 3], [9.0, 1.0])
    assert table.snapshot.seconds.tolist() == [0.0, 2.0, 9.0, 9.0, 9.0]
    assert table.snapshot.means.tolist() == [0.0, 2.0, 9.0, 1.0, 8.0]


def test_grows_with_its_observations():
    table = CostTable(proportional, size=4)
    table.observe([2, 100], [1.0, 7.0])
    seconds = table.snapshot.seconds
    assert (seconds[2], seconds[3], seconds[99], seconds[100]) == (1.0, 6.0, 198.0, 7.0)


def test_saved_and_loaded(tmp_path):
    table = CostTable(proportional, size=4)
    table.observe([2, 100], [1.0, 7.0])
    table.save(tmp_path / "table.npz")
    other = CostTable(proportional, size=16)
    other.load(tmp_path / "table.npz")
    assert np.flatnonzero(other.snapshot.observed).tolist() == [2, 100]
    assert other.snapshot.seconds[[1, 2, 100]].tolist() == [2.0, 1.0, 7.0]
    CostTable(proportional).save(tmp_path / "empty.npz")
    other.load(tmp_path / "empty.npz")
    assert other.snapshot.seconds[2] == 1.0


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [
        ([0], [1.0]),
        ([-1], [1.0]),
        ([1.5], [1.0]),
        ([1], [-1.0]),
        ([1], [np.nan]),
        ([1, 2], [1.0]),
        ([2**21], [1]),
        (["a"], [1.0]),
        ([2**70], [1.0]),
        ([[1, 2], [3]], [1.0, 1.0]),
        ([True], [1.0]),
        ([1], ["a"]),
        ([1], ["1.5"]),
        ([1], [1j]),
        ([1], [None]),
        ([1], [[1.0], [2.0, 3.0]]),
    ],
)
def test_impossible_observations_are_refused(tokens, seconds):
    with pytest.raises(BadInput):
        CostTable(proportional, size=4).observe(tokens, seconds)


def test_wrong_files_are_refused(tmp_path):
    table = CostTable(proportional, size=4)
    (tmp_path / "text.npz").write_text("no table")
    np.savez(tmp_path / "other.npz", tokens=np.array([1]))
    np.savez(tmp_path / "floats.npz", tokens=np.array([1.0]), seconds=np.array([1.0]))
    np.savez(tmp_path / "nan.npz", tokens=np.array([1]), seconds=np.array([np.nan]))
    for name in ("text", "other", "floats", "nan", "missing"):
        with pytest.raises(BadInput, match=name):
            table.load(tmp_path / f"{name}.npz")


def test_damaged_files_are_refused(tmp_path):
    good, table = tmp_path / "good.npz", CostTable(proportional, size=4)
    table.observe(np.arange(1, 200), np.ones(199))
    table.save(good)
    whole = good.read_bytes()
    inside = whole.index(b"NUMPY") + 200
    cases = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:inside] + bytes([whole[inside] ^ 255]) + whole[inside + 1 :],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "one.npy", np.ones(3))
    one = np.array([1])
    np.savez(tmp_path / "text.npz", tokens=one, seconds=np.array(["fast"]))
    np.savez(tmp_path / "complex.npz", tokens=one, seconds=np.array([1.0 + 1.0j]))
    np.savez(tmp_path / "object.npz", tokens=one, seconds=np.array([None], dtype=object))
    np.savez(tmp_path / "flags.npz", tokens=one, seconds=np.array([True]))
    np.savez(tmp_path / "scalar.npz", tokens=np.array(1), seconds=np.array(1.0))
    before = table.snapshot
    for name in (*cases, "one.npy", "text.npz", "complex.npz", "object.npz", "flags.npz", "scalar.npz", "."):
        with pytest.raises(BadInput):
            table.load(tmp_path / name)
    assert table.snapshot is before


def test_wrong_settings_are_refused():
    for settings in ({"weight": 0.0}, {"weight": 1.5}, {"size": 0}):
        with pytest.raises(UsageError):
            CostTable(proportional, **settings)


@pytest.fixture(scope="module", params=["tp", "ep"])
def layer(request):
    return partition_layer(load_model("deepseek-v3"), load_platform("b200-hbmpim"), layout=request.param)


def steps(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(256, 0.5))
    return [rng.multinomial(2048, shares) for _ in range(count)]


def test_split_agrees_with_the_problem(layer):
    online = OnlinePartition(layer)
    online.observe(np.arange(1, 50), layer.timing.snapshot.seconds[1:50] * np.linspace(0.8, 1.2, 49))
    for tokens in steps(10):
        split = online.split(tokens, 5e-5, 1e-4)
        problem = layer.problem(tokens, attention_s=5e-5, comm_s=1e-4, table=online.table)
        best = solve(problem, "exact")
        assert split.total_s == pytest.approx(
            problem.times(solve(problem, "fast").decision).total_s, rel=1e-12
        )
        assert split.bound_s <= best.cost.total_s * (1 + 1e-9)
        assert split.total_s >= best.cost.total_s * (1 - 1e-9)
        assert split.gap <= 0.01
        assert not split.on_gpu[tokens == 0].any()


def test_split_takes_any_whole_numbers(layer):
    online = OnlinePartition(layer)
    tokens = steps(1)[0]
    want = online.split(tokens)
    for other in (tokens.tolist(), tokens.astype(np.int32), np.repeat(tokens, 2)[::2]):
        assert online.split(other).on_gpu.tolist() == want.on_gpu.tolist()


@pytest.mark.parametrize(
    "tokens", [[1] * 255, [-1] + [1] * 255, [0.5] * 256, ["1"] * 256, [1j] * 256, [[1], [2, 3]] * 128]
)
def test_split_refuses_what_is_no_count(layer, tokens):
    with pytest.raises(BadInput):
        OnlinePartition(layer).split(tokens)


@pytest.mark.parametrize("seconds", [-1.0, np.inf, np.nan, "1", None, 1j])
def test_what_is_no_time_is_refused(layer, seconds):
    for name in ("attention_s", "comm_s", "batch"):
        if seconds is None and name == "batch":
            continue  # the default
        with pytest.raises(BadInput, match=name):
            layer.problem([1] * 256, **{name: seconds})


def test_split_survives_a_refusal(layer):
    online = OnlinePartition(layer)
    tokens = steps(1)[0]
    want = online.split(tokens)
    bad = tokens.copy()
    bad[200] = -5
    with pytest.raises(BadInput, match="expert 200"):
        online.split(bad)
    assert online.split(tokens).total_s == want.total_s


def test_split_of_huge_counts(layer):
    tokens = np.zeros(256, dtype=np.int64)
    tokens[:3] = 10**6, 3, 3
    split = OnlinePartition(layer).split(tokens)
    assert split.on_gpu[0]
    assert split.gap == 0.0


def test_too_many_choices_are_refused_online_and_left_to_heuristics_offline():
    model, platform = load_model("deepseek-v3"), load_platform("b200-hbmpim")
    layer = partition_layer(model, platform, layout="ep", home=np.zeros(256, dtype=np.int64))
    tokens = np.arange(256)
    with pytest.raises(BadInput, match="more channels"):
        OnlinePartition(layer).split(tokens)
    problem = layer.problem(tokens)
    result = solve(problem, "exact")
    assert result.cost.total_s == min(solve(problem, name).cost.total_s for name in ("sieve", "pimoe"))


def test_threads_split_while_another_observes(layer):
    online, tokens = OnlinePartition(layer), steps(8)
    want = [online.split(step).total_s for step in tokens]
    done = threading.Event()

    def observe() -> None:
        while not done.is_set():  # what the model says already, so that answers stay the same
            online.observe([1, 2, 3], online.table.snapshot.seconds[1:4])

    def split(repeat: int) -> bool:
        return all(online.split(step).total_s == s for step, s in zip(tokens, want, strict=True))

    with ThreadPoolExecutor(5) as pool:
        observer = pool.submit(observe)
        try:
            assert all(pool.map(split, range(100)))
        finally:
            done.set()
        observer.result()


@pytest.mark.parametrize("counts", [[2**62, 2**62], [2**62, 2**62, 2**62, 2**62], [2**44], [-(2**62)]])
def test_split_refuses_counts_that_do_not_add_up_in_any_form(layer, counts):
    tokens = np.zeros(len(layer.home), dtype=np.int64)
    tokens[: len(counts)] = counts
    online = OnlinePartition(layer)
    for form in (tokens, tokens.tolist()):
        for batch in (None, 4.0):
            with pytest.raises(BadInput, match=r"too large to add up|negative"):
                online.split(form, batch=batch)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attention_s": None}, "attention_s must be a finite time"),
        ({"comm_s": True}, "comm_s must be a finite time"),
        ({"comm_s": 10**400}, "comm_s must be a finite time"),
        ({"batch": "3"}, "batch must be a finite number of tokens"),
        ({"batch": -1}, "batch must be a finite number of tokens"),
    ],
)
def test_split_says_which_number_cannot_be(layer, more, words):
    with pytest.raises(BadInput, match=words):
        OnlinePartition(layer).split(np.ones(len(layer.home), dtype=np.int64), **more)
