"""The trace that the benchmark of streamed traces is measured on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moeplan.benchmarks.micro import streaming
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gone",), "no folder 'gone'"),
        ((".", "few"), "'few' is no number of tokens"),
        ((".", "0"), "'0' is no number of tokens"),
        ((".", "1e11"), "take 46400.0 GB"),  # 8 bytes in each of 58 layers
    ],
)
def test_wrong_arguments_are_said_before_anything_is_written(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streaming.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**12))
    with pytest.raises(SystemExit) as ended:
        streaming.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_arguments_measure_a_small_trace_in_a_temporary_folder(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(streaming, "rows", lambda *job: asked.append(job) or [("what", "figure", "where")])
    streaming.main([])
    streaming.main([".", "1e6"])
    assert asked == [(None, 131_072), (Path(), 1_000_000)]
    assert "0.06 GB" in capsys.readouterr().out  # 131,072 x 464 bytes
