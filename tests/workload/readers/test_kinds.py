"""Files are known by their first bytes, whatever they are called."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.counts import CountLoad, write_counts
from moeplan.workload.readers.kinds import kind_of, require_plan, require_trace
from moeplan.workload.stream import open_trace


def counts(path):
    load = CountLoad(counts=np.ones((1, 2, 4)), layers=(0, 1), windows=("all",), model="m", source="by hand")
    write_counts(load, path)


def torch_file(path):
    with zipfile.ZipFile(path, "w") as archive:  # as torch.save lays it out
        archive.writestr("dump/data.pkl", b"")
        archive.writestr("dump/version", "3")


MADE = {
    "trace": lambda path: path.write_bytes(b"PAR1" + bytes(20)),
    "archive": lambda path: np.savez(path.open("wb"), experts=np.zeros((2, 1, 1), int)),
    "counts": counts,
    "array": lambda path: np.save(path.open("wb"), np.zeros(3)),
    "torch": torch_file,
    "plan": lambda path: path.write_text('\n{"format": "moeplan.plan", "version": 1}'),
    "json": lambda path: path.write_text('{"physical_to_logical_map": []}'),
    None: lambda path: path.write_text("experts\n1,2\n"),
}


@pytest.mark.parametrize("kind", MADE)
def test_kinds(tmp_path, kind):
    path = tmp_path / "named.parquet"
    MADE[kind](path)
    assert kind_of(path) == kind


def test_what_cannot_be_read_has_no_kind(tmp_path):
    assert kind_of(tmp_path / "gone") is None
    assert kind_of(tmp_path) is None
    cut = io.BytesIO()
    np.savez(cut, experts=np.zeros(9))
    (tmp_path / "cut").write_bytes(cut.getvalue()[:40])
    assert kind_of(tmp_path / "cut") == "archive"
    (tmp_path / "list").write_text("[1, 2]")
    assert kind_of(tmp_path / "list") == "json"


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        ("archive", "moeplan trace import {path} --model MODEL -o yours.parquet"),
        ("array", "moeplan trace import {path} --model MODEL -o yours.parquet"),
        ("counts", "--load"),
        ("torch", "moeplan trace import {path}"),
        ("plan", "the trace (.parquet) that was planned on"),
        ("json", "moeplan trace import {path}"),
    ],
)
def test_what_is_no_trace_is_said_with_what_to_do(tmp_path, kind, fix):
    path = tmp_path / "yours.npz"
    MADE[kind](path)
    for refuse in (require_trace, open_trace):
        with pytest.raises(BadInput, match="no trace") as caught:
            refuse(path)
        assert fix.format(path=path) in caught.value.fix
        assert "copy it again" not in str(caught.value)


def test_traces_and_unknown_files_are_left_to_their_reader(tmp_path):
    for kind in ("trace", None):
        MADE[kind](tmp_path / "t")
        require_trace(tmp_path / "t")
        with pytest.raises(BadInput, match="not a whole Parquet file"):
            open_trace(tmp_path / "t")
    require_trace(tmp_path / "gone")


@pytest.mark.parametrize(
    ("kind", "passes"), [("trace", False), ("counts", False), ("plan", True), ("json", True)]
)
def test_plans_are_json(tmp_path, kind, passes):
    MADE[kind](tmp_path / "p")
    if passes:
        require_plan(tmp_path / "p")
        return
    with pytest.raises(BadInput, match="no plan") as caught:
        require_plan(tmp_path / "p")
    assert caught.value.fix
