"""Our placement on recorded routing: held-out rounds at side 4, as many experts a core as there are units."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from moeplan.placement.planning import Search, search_layer
from moeplan.placement.result import Budget
from moeplan.workload.replay import replay, split
from moeplan.workload.trace import RoutingTrace

from .instances import layout, posed

SEARCH = Search(budget=Budget(time_s=None, iterations=20_000))


def steps(name: str, experts: int) -> tuple:
    """Profile and held-out steps at the batch that gives an expert four tokens, of four layers."""
    folder = os.environ.get("MOEPLAN_TRACES")
    if folder is None:
        pytest.skip("MOEPLAN_TRACES does not name the folder of recorded traces")
    file = np.load(Path(folder) / f"{name}.npz")
    chosen = file["experts"][:, :: max(1, file["experts"].shape[1] // 4)][:, :4].astype(np.int16)
    tokens = len(chosen)
    trace = RoutingTrace(
        experts=chosen,
        request=file["request"] if "request" in file else np.arange(tokens) // 64,
        position=file["position"] if "position" in file else np.arange(tokens) % 64,
        model=name, layers=tuple(range(chosen.shape[1])), num_experts=experts, top_k=chosen.shape[2],
        source="recorded",
    )  # fmt: skip
    batch = -(-4 * experts // chosen.shape[2])
    return tuple(replay(part, batch=batch, steps=64, seed=0).experts for part in split(trace, 0.5, seed=0))


@pytest.mark.parametrize(
    ("name", "experts"),
    [
        ("gpt-oss-20b-decode", 32),
        ("deepseek-v2-lite-law", 64),
        ("deepseek-v2-lite-summary", 64),
        ("tiny-moe-256", 256),
    ],
)
def test_held_out_rounds(name, experts):
    profile, held_out = steps(name, experts)
    ours, published, least = [], [], []
    for layer in range(profile.shape[2]):
        die = layout(experts // 16, 16)
        unseen = posed(np.ascontiguousarray(held_out[:, :, layer]), experts, die)
        tokens = np.ascontiguousarray(profile[:, :, layer])
        problem = posed(tokens, experts, die, resample=7, held_out=unseen)
        found = search_layer(problem, SEARCH, threading.Event(), name)
        ours.append(found.result.held_out.total_s)
        published.append(found.baselines["coactivation"].held_out.total_s)
        least.append(unseen.lower_bound().value_s)
    assert np.mean(ours) <= 1.02 * np.mean(least)
    assert np.mean(ours) <= np.mean(published) * (1 + 1e-9)
