"""The trace that the benchmark of streamed traces is measured on."""

from __future__ import annotations

import dataclasses

import numpy as np

from moeplan.benchmarks.micro.streaming import blocks, measure
from moeplan.workload.model import load_model
from moeplan.workload.scan import scan
from moeplan.workload.stream import open_trace
from moeplan.workload.trace_writer import write_blocks


def test_renamed_blocks_are_a_recording(tmp_path):
    model = dataclasses.replace(load_model("olmoe-1b-7b"), moe_layers=(0, 5))
    tokens = 65_536 + 4_464
    assert write_blocks(blocks(model, tokens), tmp_path / "t") == tokens
    stream = open_trace(tmp_path / "t")
    found = scan(stream, windows=1)
    # 512 requests side by side: all but their first tokens follow another
    assert (found.tokens, found.requests, found.followed) == (tokens, 512, tokens - 512)
    assert found.counts.sum(axis=2).tolist() == [[tokens * model.top_k] * 2]
    first, second = (block.experts for block in blocks(model, 2 * 65_536))
    for layer in range(2):
        popular = [np.sort(np.bincount(part[:, layer].ravel())) for part in (first, second)]
        assert np.array_equal(*popular)  # other names, the same popularities
        assert not np.array_equal(first[:, layer], second[:, layer])


def test_measuring():
    measured = measure("nothing", lambda: None)
    assert measured.cells(5)[0] == "nothing"
    assert measured.peak_bytes > 2**20
    assert 0 <= measured.cpu_s < 1
