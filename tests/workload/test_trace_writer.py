import dataclasses

import numpy as np
import pytest

from moeplan.common.errors import BadInput
from moeplan.workload.model import load_model
from moeplan.workload.stream import open_trace
from moeplan.workload.synthetic import SyntheticRouting, synthesize, synthesize_blocks
from moeplan.workload.trace import read_trace, write_trace
from moeplan.workload.trace_writer import trace_writer, write_blocks

pytestmark = pytest.mark.usefixtures("small_groups")


def cut(trace, sizes):
    ends = np.cumsum(sizes)
    return [trace.take(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("sizes", [(50,), (16, 16, 16, 2), (1, 49), (7, 30, 3, 10), (1,) * 50])
def test_bytes_do_not_depend_on_the_blocks(tmp_path, make_trace, sizes):
    trace = make_trace((20, 30), weights=np.full((50, 2, 2), 0.5), step=np.arange(50))
    write_trace(trace, tmp_path / "whole")
    seen = []
    assert write_blocks(iter(cut(trace, sizes)), tmp_path / "blocks", on_block=seen.append) == 50
    assert seen == np.cumsum(sizes).tolist()
    assert (tmp_path / "blocks").read_bytes() == (tmp_path / "whole").read_bytes()
    assert [group.rows for group in open_trace(tmp_path / "blocks").groups] == [16, 16, 16, 2]


def test_drawn_blocks_make_the_drawn_trace(tmp_path):
    model = dataclasses.replace(load_model("olmoe-1b-7b"), moe_layers=(0, 3))
    routing = SyntheticRouting(concurrency=16, tokens_per_request=32, sampler="draws")
    write_blocks(synthesize_blocks(model, tokens=500, seed=1, routing=routing), tmp_path / "t")
    assert (
        read_trace(tmp_path / "t").fingerprint
        == synthesize(model, tokens=500, seed=1, routing=routing).fingerprint
    )


def test_an_interrupted_write_leaves_nothing(tmp_path, make_trace):
    (tmp_path / "t").write_text("what was there before")

    def blocks(error):
        yield from [make_trace((40,))] * 3
        raise error

    for error in (RuntimeError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            write_blocks(blocks(error), tmp_path / "t")
        assert [path.name for path in tmp_path.iterdir()] == ["t"]
        assert (tmp_path / "t").read_text() == "what was there before"


def test_blocks_must_belong_together(tmp_path, make_trace):
    strangers = {
        "model other, not tiny": make_trace(model="other"),
        "num_experts 7, not 6": make_trace(num_experts=7),
        "not experts, request, position": make_trace(step=np.arange(5)),
    }
    for complaint, stranger in strangers.items():
        with pytest.raises(BadInput, match=complaint):
            write_blocks([make_trace(), stranger], tmp_path / "t")
    with pytest.raises(BadInput, match="no tokens"):
        write_blocks([], tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_a_dropped_expert_of_256_needs_to_be_announced(tmp_path, make_trace):
    whole = make_trace((2,), layers=(0,), num_experts=256, experts=np.array([[[255, 0]], [[1, 2]]]))
    dropped = dataclasses.replace(whole, experts=np.array([[[255, -1]], [[1, 2]]]))
    with pytest.raises(BadInput, match="one byte cannot hold dropped experts beside 256 experts"):
        write_blocks([whole, dropped], tmp_path / "t")
    assert not list(tmp_path.iterdir())
    with trace_writer(tmp_path / "t", whole, dropped=True) as writer:
        writer.write(whole)
        writer.write(dropped)
    assert read_trace(tmp_path / "t").experts[:, 0].tolist() == [[255, 0], [1, 2], [255, -1], [1, 2]]
