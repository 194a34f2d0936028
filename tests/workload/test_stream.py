import dataclasses
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.workload.scan import count_stream, scan
from moeplan.workload.stream import open_trace
from moeplan.workload.trace import read_trace, write_trace

pytestmark = pytest.mark.usefixtures("small_groups")
COLUMNS = ("experts", "weights", "request", "position", "step", "phase")


@pytest.fixture
def rich_trace(make_trace):
    """50 rows of three layers with every optional column, and one dropped expert."""
    rng = np.random.default_rng(3)
    experts = rng.random((50, 3, 9)).argsort(axis=-1)[..., :3]
    experts[17, 1, 0] = -1
    weights = np.where(experts < 0, 0, rng.random(experts.shape)).astype(np.float32)
    return make_trace(
        (20, 30), layers=(2, 4, 7), num_experts=9, top_k=3, experts=experts, weights=weights,
        step=np.arange(50) // 4, phase=np.minimum(np.arange(50) // 20, 2).astype(np.int8),
    )  # fmt: skip


def equal(left, right):
    for name in COLUMNS:
        a, b = getattr(left, name), getattr(right, name)
        if (a is None) != (b is None) or (a is not None and not np.array_equal(a, b)):
            return False
    return (left.layers, left.num_experts, left.top_k) == (right.layers, right.num_experts, right.top_k)


def test_header_without_reading_tokens(tmp_path, rich_trace):
    write_trace(rich_trace, tmp_path / "t")
    stream = open_trace(tmp_path / "t")
    names = ("model", "layers", "num_experts", "top_k", "source", "tokens")
    assert all(getattr(stream, name) == getattr(rich_trace, name) for name in names)
    assert stream.optional == ("weights", "step", "phase")
    assert [group.rows for group in stream.groups] == [16, 16, 16, 2]
    assert stream.in_memory_bytes == rich_trace.experts.nbytes


def test_blocks_are_the_row_groups(tmp_path, rich_trace):
    write_trace(rich_trace, tmp_path / "t")
    seen = []
    blocks = list(open_trace(tmp_path / "t").blocks(lambda done, total: seen.append((done, total))))
    assert seen == [(16, 50), (32, 50), (48, 50), (50, 50)]
    for name in COLUMNS:
        whole = np.concatenate([getattr(block, name) for block in blocks])
        assert np.array_equal(whole, getattr(rich_trace, name))


@pytest.mark.parametrize("version", [1, 2])
def test_some_layers_only(tmp_path, rich_trace, write_version_1, version):
    if version == 1:
        write_version_1(rich_trace, tmp_path / "t", row_group_size=16)
    else:
        write_trace(rich_trace, tmp_path / "t")
    part = open_trace(tmp_path / "t").with_layers((7, 2))
    expected = dataclasses.replace(
        rich_trace,
        layers=(2, 7),
        experts=rich_trace.experts[:, [0, 2]],
        weights=rich_trace.weights[:, [0, 2]],
    )
    assert equal(part.read(), expected)
    with pytest.raises(UsageError, match="no layer 3"):
        part.with_layers((3,))
    with pytest.raises(UsageError, match="no layer is named"):
        part.with_layers(())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes that a process reads")
def test_one_layer_costs_its_share_of_the_bytes(tmp_path, make_trace, monkeypatch):
    monkeypatch.setattr("moeplan.workload.trace_writer.ROW_GROUP_ROWS", 8192)
    layers = 24
    trace = make_trace((16_384,), layers=tuple(range(layers)), num_experts=256, top_k=4)
    write_trace(trace, tmp_path / "t")
    stream = open_trace(tmp_path / "t")
    count_stream(stream, threads=1)  # compiles, which reads files

    def read_bytes(work):
        def asked():
            lines = Path("/proc/self/io").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))

        before = asked()
        work()
        return asked() - before

    whole = read_bytes(lambda: count_stream(stream, threads=1))
    one = read_bytes(lambda: count_stream(stream.with_layers((5,)), threads=1))
    assert (
        whole > 0.9 * 16_384 * layers * 4 * 0.9
    )  # nearly eight bits an expert: there is nothing to compress
    assert one / whole == pytest.approx(1 / layers, rel=0.25)


def test_a_folder_is_one_trace(tmp_path, rich_trace):
    parts = [rich_trace.take(np.arange(50)[rows]) for rows in (slice(0, 20), slice(20, 23), slice(23, 50))]
    parts[1] = dataclasses.replace(parts[1], source="elsewhere")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, part in zip(("a", "b", "c"), parts, strict=True):
        write_trace(part, folder / f"{name}.parquet")
    (folder / "notes.txt").write_text("not a trace")
    (folder / ".hidden.parquet").write_text("half a trace")
    stream = open_trace(folder)
    whole = stream.read()
    assert (stream.tokens, stream.source, whole.source) == (50, "test; elsewhere", "test; elsewhere")
    assert np.array_equal(whole.experts, rich_trace.experts)
    assert np.array_equal(whole.weights, rich_trace.weights)
    # the files hold requests 0, 1 and 1 again; steps end at 4, 5 and 12
    assert np.unique(whole.request).tolist() == [0, 1 + 1, 1 + 2 + 1]
    assert whole.step.tolist() == [
        *(rich_trace.step[:20]), *(rich_trace.step[20:23] + 5), *(rich_trace.step[23:] + 5 + 6)
    ]  # fmt: skip
    assert equal(read_trace(folder), whole)
    assert equal(open_trace([folder / "a.parquet", folder / "b.parquet", folder / "c.parquet"]).read(), whole)
    assert scan(stream).requests == 3


def test_files_that_do_not_belong_together(tmp_path, make_trace):
    write_trace(make_trace(), tmp_path / "a.parquet")
    others = {
        "model: other and tiny": make_trace(model="other"),
        "layers: 1 and 1, 3": make_trace(layers=(1,)),
        "experts: 7 and 6": make_trace(num_experts=7),
        "top-k: 1 and 2": make_trace(top_k=1),
        "optional columns: step and none": make_trace(step=np.arange(5)),
    }
    for difference, other in others.items():
        write_trace(other, tmp_path / "b.parquet")
        with pytest.raises(BadInput, match="not parts of one trace") as error:
            open_trace(tmp_path)
        assert difference in str(error.value)
        assert "b.parquet" in str(error.value)
        assert "fix:" in str(error.value)


def test_folders_without_traces(tmp_path, make_trace):
    with pytest.raises(BadInput, match="is empty"):
        open_trace(tmp_path)
    (tmp_path / "readme.md").write_text("nothing here")
    with pytest.raises(BadInput, match="holds no traces"):
        open_trace(tmp_path)
    with pytest.raises(BadInput, match="does not exist"):
        open_trace(tmp_path / "absent.parquet")
    with pytest.raises(BadInput, match="no trace is named"):
        open_trace([])
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(BadInput, match=r"x\.parquet.*no trace of moeplan"):
        open_trace(tmp_path)
    (tmp_path / "x.parquet").unlink()
    write_trace(make_trace((200,)), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[:-20])
    with pytest.raises(BadInput, match=r"t\.parquet.*not a whole Parquet file"):
        open_trace(tmp_path)


def test_request_numbers_that_do_not_fit_together(tmp_path, make_trace):
    for name in ("a", "b"):
        write_trace(make_trace(request=np.array([0, 0, 0, 1, 2**31 - 1])), tmp_path / f"{name}.parquet")
    assert open_trace(tmp_path / "a.parquet").read().request.max() == 2**31 - 1
    with pytest.raises(BadInput, match="request numbers beyond"):
        open_trace(tmp_path)


def test_damage_is_found_when_it_is_read(tmp_path, make_trace):
    path = tmp_path / "t.parquet"
    write_trace(make_trace((160,), layers=(0, 1)), path)
    content = bytearray(path.read_bytes())
    at = pq.ParquetFile(path).metadata.row_group(4).column(1).data_page_offset
    content[at + 40 : at + 60] = bytes(20)
    path.write_bytes(content)
    stream = open_trace(path)
    count_stream(stream.with_layers((0,)))  # another column is whole
    with pytest.raises(BadInput, match=r"t\.parquet.*not a whole Parquet file"):
        count_stream(stream)
    with pytest.raises(BadInput, match=r"t\.parquet.*not a whole Parquet file"):
        stream.read()
