import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeplan.common.errors import BadInput
from moeplan.workload.model import load_model
from moeplan.workload.trace import check_model, read_trace, write_trace

COLUMNS = ("experts", "weights", "request", "position", "step", "phase")


def same(left, right):
    for name in COLUMNS:
        a, b = getattr(left, name), getattr(right, name)
        if (a is None) != (b is None) or (a is not None and (a.dtype != b.dtype or not np.array_equal(a, b))):
            return False
    names = ("model", "layers", "num_experts", "top_k", "source")
    return all(getattr(left, name) == getattr(right, name) for name in names)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    layers=st.sets(st.integers(0, 60), min_size=1, max_size=4),
    top_k=st.integers(1, 3),
    optional=st.booleans(),
)
def test_round_trip(tmp_path, make_trace, lengths, layers, top_k, optional):
    tokens = sum(lengths)
    shape = (tokens, len(layers), top_k)
    extra = {"weights": np.random.default_rng(1).random(shape), "step": np.arange(tokens)} if optional else {}
    trace = make_trace(lengths, layers=tuple(sorted(layers)), top_k=top_k, **extra)
    write_trace(trace, tmp_path / "t.parquet")
    again = read_trace(tmp_path / "t.parquet")
    assert same(trace, again)
    assert again.fingerprint == trace.fingerprint


def test_same_trace_same_bytes_in_row_groups(tmp_path, make_trace):
    trace = make_trace((70_000,), layers=(0,), phase=np.zeros(70_000, dtype=np.int8))
    for name in ("a", "b"):
        write_trace(trace, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    file = pq.ParquetFile(tmp_path / "a")
    assert [file.metadata.row_group(i).num_rows for i in range(2)] == [65_536, 70_000 - 65_536]
    assert same(read_trace(tmp_path / "a"), trace)


def test_layout_on_disk(tmp_path, make_trace):
    experts = np.array([[[5, 0], [1, 2]], [[3, -1], [4, 5]]])
    weights = np.array([[[0.5, 0.25], [0.75, 0.0]], [[1.0, 0.0], [0.5, 0.5]]], dtype=np.float32)
    write_trace(make_trace((2,), experts=experts, weights=weights), tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names == [
        "experts_1", "experts_3", "weights_1", "weights_3", "request", "position",
    ]  # fmt: skip
    # a byte an expert, 255 for the dropped one; weights in IEEE 754, the least significant byte first
    assert table.column("experts_1").to_pylist() == [b"\x05\x00", b"\x03\xff"]
    assert table.column("experts_3").to_pylist() == [b"\x01\x02", b"\x04\x05"]
    assert table.column("weights_1").to_pylist()[0] == bytes.fromhex("0000003f 0000803e")
    assert json.loads(table.schema.metadata[b"moeplan.trace"]) == {
        "version": 2, "model": "tiny", "layers": [1, 3], "num_experts": 6, "top_k": 2, "source": "test",
        "id_bytes": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("num_experts", "dropped", "id_bytes"),
    [(255, True, 1), (256, False, 1), (256, True, 2), (257, False, 2), (300, True, 2)],
)
def test_ids_take_the_fewest_bytes(tmp_path, make_trace, num_experts, dropped, id_bytes):
    last = num_experts - 1
    experts = np.array([[[last, -1 if dropped else 0]], [[1, last]]])
    trace = make_trace((2,), layers=(0,), num_experts=num_experts, experts=experts)
    write_trace(trace, tmp_path / "t")
    assert same(read_trace(tmp_path / "t"), trace)
    stored = pq.read_table(tmp_path / "t").column("experts_0").to_pylist()[1]
    assert stored == (1).to_bytes(id_bytes, "little") + last.to_bytes(id_bytes, "little")


def test_the_first_format_is_still_read(tmp_path, make_trace, write_version_1):
    shape = (5, 2, 2)
    experts = np.array([[[0, 1], [2, -1]], *[[[5, 4], [3, 2]]] * 4])
    weights = np.where(experts < 0, 0, np.random.default_rng(0).random(shape))
    trace = make_trace(
        experts=experts, weights=weights, step=np.arange(5), phase=np.array([0, 0, 1, 2, 2], dtype=np.int8)
    )
    write_version_1(trace, tmp_path / "t", row_group_size=2)
    assert same(read_trace(tmp_path / "t"), trace)


def test_arrays_are_read_only_and_the_callers_stay_writable(make_trace):
    experts = np.zeros((5, 2, 1), dtype=np.int16)
    trace = make_trace(top_k=1, experts=experts)
    with pytest.raises(ValueError, match="read-only"):
        trace.experts[0] = 1
    experts[0] = 1


def test_fingerprint_follows_the_content_and_not_the_source(make_trace):
    trace = make_trace()
    assert dataclasses.replace(trace, source="elsewhere").fingerprint == trace.fingerprint
    assert dataclasses.replace(trace, position=trace.position + 1).fingerprint != trace.fingerprint
    assert make_trace(seed=1).fingerprint != trace.fingerprint


def test_take_keeps_rows_in_the_order_asked_for(make_trace):
    trace = make_trace(weights=np.random.default_rng(0).random((5, 2, 2)), step=np.arange(5))
    part = trace.take(np.array([4, 0]))
    assert part.step.tolist() == [4, 0]
    assert np.array_equal(part.experts, trace.experts[[4, 0]])
    assert np.array_equal(part.weights, trace.weights[[4, 0]])


def rewrite(path, *, drop=(), change=None, header=None):
    """Write a Parquet file again with columns dropped or changed, or another header."""
    table = pq.read_table(path).drop_columns(list(drop))
    metadata = dict(table.schema.metadata)
    for name, array in (change or {}).items():
        table = table.set_column(table.column_names.index(name), name, array)
    if header is not None:
        metadata[b"moeplan.trace"] = header if isinstance(header, bytes) else json.dumps(header).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)


HEADER = {"version": 1, "model": "tiny", "layers": [1, 3], "num_experts": 6, "top_k": 2, "source": "test"}


def lists(values, kind):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(values), type=kind), 4)


@pytest.mark.parametrize(
    ("faults", "complaints"),
    [
        ({"drop": ["request"]}, ["no column 'request'"]),
        ({"change": {"request": pa.array(range(5), pa.int64())}}, ["'request' has the type int64", "int32"]),
        ({"change": {"request": pa.array([0, 1, None, 2, 3], pa.int32())}}, ["'request' has 1 empty values"]),
        (
            {"change": {"experts": pa.array([[0, 1, 2, None]] * 5, pa.list_(pa.int16(), 4))}},
            ["'experts' has 5 empty values"],
        ),
        (
            {"change": {"experts": lists([0, 1, 2, 3] * 4 + [0, 1, 2, 6], pa.int16())}},
            ["row 4, layer 3", "id 6"],
        ),
        (
            {"change": {"experts": lists([-2, 1, 2, 3] * 5, pa.int16())}},
            ["row 0, layer 1", "id -2", "0 to 5, or -1 for a dropped expert"],
        ),
        (
            {"change": {"experts": lists([0, 1, -1, -1] + [0, 1, 2, 3] * 4, pa.int16())}},
            ["row 0, layer 3", "all experts of a token are dropped"],
        ),
        (
            {"change": {"experts": lists([0, 1, 2, 3] * 4 + [0, -1, 2, 3], pa.int16())}},
            ["row 4, layer 1", "a dropped expert has the router weight 0.5"],
        ),
        (
            {"change": {"experts": lists([0, 1, 2, 3, 4, 4, 2, 3] * 3, pa.int16())[:5]}},
            ["row 1, layer 1", "twice"],
        ),
        ({"change": {"weights": lists([0.5] * 18 + [np.nan, 0.5], pa.float32())}}, ["row 4, layer 3", "nan"]),
        ({"change": {"weights": lists([0.5, -0.5] * 10, pa.float32())}}, ["row 0, layer 1", "-0.5"]),
        ({"change": {"weights": lists([0.5, np.inf] * 10, pa.float32())}}, ["row 0, layer 1", "inf"]),
        ({"header": HEADER | {"version": 3}}, ["format version 3", "version 1 or 2"]),
        ({"header": HEADER | {"version": 2}}, ["damaged header", "id_bytes"]),
        ({"header": HEADER | {"version": 2, "id_bytes": 1}}, ["no column 'experts_1'"]),
        ({"header": HEADER | {"layers": [1]}}, ["'experts' has the type"]),
        ({"header": HEADER | {"layers": [3, 1]}}, ["layer ids must be distinct, ascending"]),
        ({"header": HEADER | {"num_experts": 1}}, ["top-2 of 1 experts is not possible"]),
        ({"header": {"version": 1}}, ["damaged header"]),
        ({"header": HEADER | {"top_k": 2**40}}, ["damaged header"]),
        ({"header": HEADER | {"layers": []}}, ["damaged header"]),
        ({"header": b"{"}, ["damaged header"]),
        ({"header": b"[]"}, ["damaged header"]),
    ],
)
def test_faulty_files_name_the_place(tmp_path, make_trace, write_version_1, faults, complaints):
    path = tmp_path / "t.parquet"
    write_version_1(make_trace(weights=np.full((5, 2, 2), 0.5)), path)
    rewrite(path, **faults)
    with pytest.raises(BadInput) as error:
        read_trace(path)
    for complaint in [*complaints, "t.parquet"]:
        assert complaint in str(error.value)


def blobs(*values):
    return pa.array(values, pa.binary(2))


NEW_HEADER = HEADER | {"version": 2, "id_bytes": 1}


@pytest.mark.parametrize(
    ("faults", "complaints"),
    [
        ({"drop": ["experts_3"]}, ["no column 'experts_3'"]),
        ({"drop": ["weights_1"]}, ["no column 'weights_1'"]),
        (
            {"change": {"experts_1": pa.array([b"abc"] * 5, pa.binary(3))}},
            ["'experts_1' has the type", "[2]"],
        ),
        ({"change": {"experts_3": blobs(b"\0\1", None, *[b"\0\1"] * 3)}}, ["'experts_3' has 1 empty values"]),
        ({"change": {"experts_3": blobs(*[b"\0\1"] * 4, b"\0\6")}}, ["row 4, layer 3", "id 6"]),
        ({"change": {"experts_3": blobs(*[b"\0\1"] * 3, b"\2\2", b"\0\1")}}, ["row 3, layer 3", "twice"]),
        ({"change": {"experts_1": blobs(b"\xff\xff", *[b"\0\1"] * 4)}}, ["row 0, layer 1", "all experts"]),
        ({"change": {"request": pa.array([0, -1, 0, 0, 0], pa.int32())}}, ["'request' value -1", "row 1"]),
        ({"header": NEW_HEADER | {"id_bytes": 3}}, ["damaged header", "3 bytes for an id"]),
        ({"header": NEW_HEADER | {"num_experts": 257}}, ["damaged header", "1 bytes for an id of 257"]),
        ({"header": NEW_HEADER | {"top_k": 3}}, ["'experts_1' has the type"]),
        ({"header": NEW_HEADER | {"layers": [1, 4]}}, ["no column 'experts_4'"]),
    ],
)
def test_faulty_files_of_the_second_format_name_the_place(tmp_path, make_trace, faults, complaints):
    path = tmp_path / "t.parquet"
    write_trace(make_trace(weights=np.full((5, 2, 2), 0.5)), path)
    rewrite(path, **faults)
    with pytest.raises(BadInput) as error:
        read_trace(path)
    for complaint in [*complaints, "t.parquet"]:
        assert complaint in str(error.value)


def test_missing_truncated_and_foreign_files(tmp_path, make_trace):
    path = tmp_path / "t.parquet"
    with pytest.raises(BadInput, match="does not exist"):
        read_trace(path)
    write_trace(make_trace((500,)), path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[4:200] = bytes(196)
    for content in (whole[:-100], whole[: len(whole) // 2], b"", b"PAR1", bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="not a whole Parquet file"):
            read_trace(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(BadInput, match="no trace of moeplan"):
        read_trace(path)


def test_unwritable_target_leaves_nothing_behind(tmp_path, make_trace):
    with pytest.raises(BadInput, match="cannot write"):
        write_trace(make_trace(), tmp_path / "absent" / "t.parquet")
    with pytest.raises(BadInput, match="it is a folder"):
        write_trace(make_trace(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_model_must_fit(make_trace):
    model = dataclasses.replace(load_model("olmoe-1b-7b"), experts=6, top_k=2)
    check_model(make_trace(layers=(0, 15)), model)  # a part of the layers is enough
    with pytest.raises(BadInput, match="6 experts, the model 8") as error:
        check_model(make_trace(), dataclasses.replace(model, experts=8))
    assert "fix:" in str(error.value)
    with pytest.raises(BadInput, match="top-2, the model top-1"):
        check_model(make_trace(), dataclasses.replace(model, top_k=1))
    with pytest.raises(BadInput, match="layer 16 of the trace is no MoE layer"):
        check_model(make_trace(layers=(15, 16)), model)


def test_weights_that_float32_cannot_hold_are_refused(make_trace):
    with pytest.raises(BadInput, match=r"weight 1e\+39"):
        make_trace(weights=np.full((5, 2, 2), 1e39))
    assert make_trace(weights=np.zeros((5, 2, 2), dtype=np.float16)).weights.max() == 0.0
