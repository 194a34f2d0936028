"""`moeplan trace import` of what engines recorded, and `moeplan trace record`."""

from __future__ import annotations

import base64
import io
import json
import sys

import numpy as np
import pytest

from moeplan.workload.counts import read_counts
from moeplan.workload.trace import read_trace

# The model of `world` has 4 layers, of which 1 to 3 have 8 experts, top-2.


def test_counts_become_a_file_of_counts(cli, world, tmp_path):
    counts = np.ones((2, 3, 8))
    counts[:, :, 7] = 0
    np.save(tmp_path / "c.npy", counts)
    out = tmp_path / "c.npz"
    ended = cli(
        "trace", "import", tmp_path / "c.npy", "--model", world.model, "-o", out, "--source", "by hand"
    )
    assert ended.code == 0, ended.err
    assert f"counts: {out}" in ended.out
    read = read_counts(out)
    assert read.counts.tolist() == counts.tolist()
    assert read.source == "by hand"


@pytest.mark.parametrize("name", ["c.parquet", "other.npy"])
def test_counts_get_no_name_of_something_else(cli, world, tmp_path, name):
    np.save(tmp_path / "c.npy", np.ones((2, 3, 8)))
    ended = cli("trace", "import", tmp_path / "c.npy", "--model", world.model, "-o", tmp_path / name)
    assert ended.code == 2
    assert ".npz" in ended.err
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["t.npz", "t.json"])
def test_tokens_get_no_name_of_something_else(cli, world, tmp_path, name):
    np.savez(tmp_path / "a.npz", experts=np.tile([1, 5], (4, 3, 1)))
    ended = cli("trace", "import", tmp_path / "a.npz", "--model", world.model, "-o", tmp_path / name)
    assert ended.code == 2
    assert "name it t.parquet" in ended.err
    assert not (tmp_path / name).exists()
    ended = cli("trace", "import", world.trace, "--model", world.model, "-o", tmp_path / "t.parquet")
    assert ended.code == 3
    assert "used as it is" in ended.err


def test_answers_become_a_trace(cli, world, tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.tile(np.uint8([1, 5]), (4, 3, 1)))
    text = base64.b64encode(stream.getvalue()).decode()
    (tmp_path / "a.json").write_text(json.dumps({"choices": [{"routed_experts": text}]}))
    out = tmp_path / "t.parquet"
    ended = cli("trace", "import", tmp_path / "a.json", "--model", world.model, "-o", out)
    assert ended.code == 0, ended.err
    assert read_trace(out).tokens == 4
    ended = cli(
        "trace", "import", tmp_path / "a.json", "--format", "arrays", "--model", world.model, "-o", out
    )
    assert ended.code == 3


def test_dumps_need_torch(cli, world, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "d.pt").write_bytes(b"")
    ended = cli("trace", "import", tmp_path / "d.pt", "--model", world.model, "-o", tmp_path / "c.npz")
    assert ended.code == 6
    assert "moeplan[torch]" in ended.err
    assert not (tmp_path / "c.npz").exists()


def test_record_needs_its_extra(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "p.txt").write_text("hello\n")
    ended = cli("trace", "record", "x", "--prompts", tmp_path / "p.txt", "-o", tmp_path / "t.parquet")
    assert ended.code == 6
    assert "moeplan[transformers]" in ended.err
    (tmp_path / "p.txt").write_text("\n")
    ended = cli("trace", "record", "x", "--prompts", tmp_path / "p.txt", "-o", tmp_path / "t.parquet")
    assert ended.code == 3


def test_record_a_tiny_model(cli, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed (extra 'transformers')")
    library = pytest.importorskip("transformers", reason="transformers is not installed (its extra)")
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": None}
    config = library.MixtralConfig(**sizes, **heads, num_local_experts=4, num_experts_per_tok=2)
    library.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "Tiny")
    (tmp_path / "p.jsonl").write_text('{"tokens": [1, 2, 3]}\n{"tokens": [4]}\n')
    out = tmp_path / "t.parquet"
    asked = ("trace", "record", tmp_path / "Tiny", "--prompts", tmp_path / "p.jsonl", "--new-tokens", 3)
    ended = cli(*asked, "-o", out)
    assert ended.code == 0, ended.err
    trace = read_trace(out)
    assert (trace.model, trace.layers, trace.tokens) == ("tiny", (0, 1), 8)
    (tmp_path / "p.jsonl").write_text('{"prompt": "text"}\n')
    ended = cli(*asked, "-o", out)
    assert ended.code == 3
    assert "no tokenizer" in ended.err
