import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.counts import (
    CountLoad,
    check_counts,
    count_trace,
    idle_experts,
    read_counts,
    write_counts,
)
from moeplan.workload.model import load_model
from moeplan.workload.readers.arrays import read_count_array, read_plain
from moeplan.workload.readers.formats import guess, read_load, read_recording
from moeplan.workload.trace import RoutingTrace


@pytest.fixture
def model():
    """OLMoE cut to 4 layers, of which 1 and 3 have 4 experts each, top-2."""
    return dataclasses.replace(
        load_model("olmoe-1b-7b"),
        layers=4,
        experts=4,
        top_k=2,
        moe_layers=(1, 3),
        dense_intermediate_size=8,
    )


def make(**changes):
    fields = {
        "counts": np.arange(16).reshape(2, 2, 4),
        "layers": (1, 3),
        "windows": ("a", "b"),
        "model": "tiny",
        "source": "by hand",
    }
    return CountLoad(**{**fields, **changes})


def test_total_and_empty_layers():
    load = make(counts=np.array([[[1, 2, 0, 0], [0] * 4], [[0, 1, 0, 4], [0] * 4]]))
    assert load.total.tolist() == [[1, 3, 0, 4], [0, 0, 0, 0]]
    assert load.empty_layers == (3,)
    assert load.num_experts == 4
    with pytest.raises(ValueError, match="read-only"):
        load.counts[0, 0, 0] = 1


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"counts": np.ones((2, 4))}, "the axes [windows, layers, experts]"),
        ({"counts": np.ones((1, 2, 4))}, "1 windows and 2 layers, but 2 windows"),
        ({"counts": np.full((2, 2, 4), "x")}, "counts must be numbers"),
        ({"counts": np.zeros((2, 2, 4))}, "all counts are zero"),
        ({"counts": np.where(np.arange(16) == 13, np.nan, 1.0).reshape(2, 2, 4)}, "layer 3, expert 1"),
        (
            {"counts": np.where(np.arange(16) == 2, -1, 1).reshape(2, 2, 4)},
            "count -1.0 is no number of tokens",
        ),
        (
            {"counts": np.where(np.arange(16) == 2, np.inf, 1).reshape(2, 2, 4)},
            "window 'a', layer 1, expert 2",
        ),
        ({"counts": np.where(np.arange(16) == 2, 1e31, 1).reshape(2, 2, 4)}, "count 1e+31 is no number"),
        ({"layers": (3, 1)}, "layer ids must be distinct, ascending"),
    ],
)
def test_faulty_counts_name_the_place(changes, complaint):
    with pytest.raises(BadInput) as error:
        make(**changes)
    assert complaint in str(error.value)


def test_round_trip_and_same_bytes(tmp_path):
    load = make(remarks=("one", "two"))
    write_counts(load, tmp_path / "a.npz")
    write_counts(load, tmp_path / "b")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b").read_bytes()
    again = read_counts(tmp_path / "b")
    assert again.fingerprint == load.fingerprint
    for name in ("layers", "windows", "model", "source", "remarks"):
        assert getattr(again, name) == getattr(load, name)
    assert np.array_equal(again.counts, load.counts)


def test_damaged_files(tmp_path):
    write_counts(make(), tmp_path / "a.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    np.savez(tmp_path / "other.npz", counts=np.ones(3))
    np.savez(tmp_path / "header.npz", counts=np.ones((1, 1, 2)), header=np.array("{}"))
    np.savez(tmp_path / "pickle.npz", counts=np.array([{}], dtype=object), header=np.array("{}"))
    for name, complaint in {
        "absent.npz": "does not exist",
        "cut.npz": "not a whole numpy archive",
        "other.npz": "holds no counted load",
        "header.npz": "damaged header",
        "pickle.npz": "'counts' cannot be read",
    }.items():
        with pytest.raises(BadInput, match=complaint):
            read_counts(tmp_path / name)


def test_a_trace_is_counted():
    trace = RoutingTrace(
        experts=np.array([[[0, 1]], [[1, 3]]]),
        request=np.array([0, 0]),
        position=np.array([0, 1]),
        model="tiny",
        layers=(2,),
        num_experts=4,
        top_k=2,
        source="by hand",
    )
    assert count_trace(trace).counts.tolist() == [[[1, 2, 0, 1]]]


def test_idle_experts_are_remarked():
    assert idle_experts(np.ones((1, 2, 4))) == ""
    counts = np.ones((1, 2, 4))
    counts[:, :, 2:] = 0
    assert "2 of 4 experts" in idle_experts(counts)


def test_plain_arrays(tmp_path, model):
    flat, windows = np.arange(8).reshape(2, 4), np.arange(16).reshape(2, 2, 4)
    np.save(tmp_path / "flat.npy", flat)
    np.save(tmp_path / "windows.npy", windows.astype(np.float32))
    assert read_load(tmp_path / "flat.npy", model).counts.tolist() == [flat.tolist()]
    read = read_recording([tmp_path / "windows.npy"], model)
    assert read.counts.tolist() == windows.tolist()
    assert read.layers == (1, 3)
    assert read_count_array(tmp_path / "flat.npy").layers == (0, 1)
    assert read_count_array(tmp_path / "flat.npy", layers=(4, 7)).layers == (4, 7)
    write_counts(make(), tmp_path / "made.npz")
    assert read_load(tmp_path / "made.npz", model).layers == (1, 3)


def test_plain_choices_are_told_by_the_last_axis(tmp_path, model):
    np.save(tmp_path / "choices.npy", np.array([[[0, 1], [2, 3]], [[1, 3], [0, 2]], [[3, 0], [1, 2]]]))
    trace = read_plain(tmp_path / "choices.npy", model)
    assert trace.request.tolist() == [0, 0, 0]
    assert trace.position.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.ones((2, 5)), "has the shape (2, 5)"),
        (np.ones((3, 4)), "has 3 layers, not 2"),
        (np.ones(4), "has the shape (4,)"),
        (np.array([[1, 2, 3, np.nan], [1, 2, 3, 4]]), "window 'window 0', layer 1, expert 3"),
        (np.zeros((2, 4)), "all counts are zero"),
        (np.array([{}], dtype=object), "is not a whole numpy array"),
    ],
)
def test_faulty_plain_arrays(tmp_path, model, array, complaint):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(BadInput) as error:
        read_plain(tmp_path / "a.npy", model)
    assert complaint in str(error.value)
    assert "a.npy" in str(error.value)


def test_counts_of_another_model(model):
    with pytest.raises(BadInput, match="layer 2 of the counts is no MoE layer"):
        check_counts(make(layers=(1, 2)), model)
    with pytest.raises(BadInput, match="4 experts, olmoe-1b-7b has 8"):
        check_counts(make(), dataclasses.replace(model, experts=8))


def test_formats_are_guessed_from_names(tmp_path):
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / "meta_info.json").write_text("{}")
    (tmp_path / "dumps").mkdir()
    for name in ("a.pt", "a.json", "a.jsonl", "a.npz", "a"):
        (tmp_path / name).write_text("")
    names = ("stats", "dumps", "a.pt", "a.json", "a.jsonl", "a.npz", "a")
    assert [guess([tmp_path / name]) for name in names] == [
        "tensorrt-llm",
        "sglang",
        "sglang",
        "vllm",
        "vllm",
        "arrays",
        "arrays",
    ]
    with pytest.raises(BadInput, match="does not exist"):
        guess([tmp_path / "absent"])
