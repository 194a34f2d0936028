import os
from pathlib import Path

import numpy as np
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
