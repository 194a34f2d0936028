import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moeplan.workload.trace import RoutingTrace


@pytest.fixture
def make_trace():
    """Build a small trace; `lengths` are the tokens of each request, choices are drawn unless given."""

    def build(lengths=(3, 2), *, layers=(1, 3), num_experts=6, top_k=2, seed=0, **changes):
        rng = np.random.default_rng(seed)
        tokens = sum(lengths)
        if "experts" not in changes:
            draws = rng.random((tokens, len(layers), num_experts)).argsort(axis=-1)
            changes["experts"] = draws[..., :top_k]
        fields = {
            "request": np.repeat(np.arange(len(lengths)), lengths),
            "position": np.concatenate([np.arange(length) for length in lengths]),
            "model": "tiny",
            "layers": layers,
            "num_experts": num_experts,
            "top_k": top_k,
            "source": "test",
        }
        return RoutingTrace(**fields | changes)

    return build


@pytest.fixture
def numbered_trace(make_trace):
    """A trace whose one expert id per token is its row, so that a load shows which rows it replayed."""

    def build(lengths, **changes):
        rows = np.arange(sum(lengths)).reshape(-1, 1, 1)
        return make_trace(lengths, layers=(0,), num_experts=32_767, top_k=1, experts=rows, **changes)

    return build


@pytest.fixture
def traces_folder():
    folder = os.environ.get("MOEPLAN_TRACES")
    if not folder:
        pytest.skip("MOEPLAN_TRACES does not name the folder of recorded traces")
    return Path(folder)


@pytest.fixture
def write_version_1():
    """Write a trace as format version 1 did: a column of lists for all layers."""

    def write(trace, path, row_group_size=65_536):
        width = len(trace.layers) * trace.top_k
        columns = {}
        for name, kind in (("experts", pa.int16()), ("weights", pa.float32())):
            values = getattr(trace, name)
            if values is not None:
                columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel(), type=kind), width)
        for name in ("request", "position", "step", "phase"):
            values, kind = getattr(trace, name), pa.int8() if name == "phase" else pa.int32()
            if values is not None:
                columns[name] = pa.array(values, type=kind)
        names = ("model", "layers", "num_experts", "top_k", "source")
        header = {"version": 1} | {name: getattr(trace, name) for name in names}
        fields = [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
        schema = pa.schema(fields, metadata={b"moeplan.trace": json.dumps(header)})
        table = pa.Table.from_arrays(list(columns.values()), schema=schema)
        pq.write_table(
            table, path, row_group_size=row_group_size, compression="zstd", write_page_checksum=True
        )

    return write


@pytest.fixture
def small_groups(monkeypatch):
    """Let traces be written in row groups of 16 rows, so that small ones have many."""
    monkeypatch.setattr("moeplan.workload.trace_writer.ROW_GROUP_ROWS", 16)
