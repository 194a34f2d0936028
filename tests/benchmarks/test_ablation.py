"""The ablation: its table, and its figures on a small scale."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.benchmarks import ablation, ablation_cases
from moeplan.benchmarks.ablation import Row, markdown
from moeplan.benchmarks.ablation_cases import EP, Case, half_duplex, wide_port
from moeplan.placement.result import Budget


@pytest.fixture
def small(monkeypatch):
    """One layer, few steps, a short search."""
    for name, value in (("LAYERS", 1), ("STEPS", 2), ("PROFILE_STEPS", 4)):
        monkeypatch.setattr(ablation_cases, name, value)
    monkeypatch.setattr(ablation_cases, "BUDGET", Budget(time_s=None, iterations=50))
    ablation_cases.case.cache_clear()
    yield
    ablation_cases.case.cache_clear()


def test_only_large_differences_are_explained():
    near, far = Row("a", "b", 2.0, 1.7, "why"), Row("a", "b", 2.0, 1.5, "why")
    assert near.difference == pytest.approx(-0.15)
    assert (near.explained, far.explained) == ("", "why")
    assert Row("a", "b", None, 5.0, "why").explained == ""


def test_markdown_numbers_each_reason_once():
    rows = [
        Row("x", "s", 2.0, 1.0, "first"),
        Row("y", "s", 2.0, 9.0, "second"),
        Row("z", "s", 1.0, 3.0, "first"),
    ]
    text = markdown(rows)
    assert "| x | s | 2 | 1 | -50% [1] |" in text
    assert "| z | s | 1 | 3 | +200% [1] |" in text
    assert text.endswith("[1] first.\n[2] second.")


def test_every_published_figure_has_a_reason(small):
    """Should ours be far from it, that is."""
    for section in (ablation.sparse, ablation.routing):
        for row in section():
            assert row.ours > 0.0
            assert row.published is None or len(row.reason) > 40


def test_sparse_attention_is_one_comparison(small):
    both, on, off = ablation.sparse()
    assert on.ours / off.ours == pytest.approx(both.ours)
    assert both.published == pytest.approx(on.published / off.published)


def test_pimoe_by_hand(small):
    """Its time is the longer of GPU and busiest channel, and beats its channels alone."""
    one = Case("switch-large-128", 32)
    found = one.pimoe_s()
    placed = one.placement(EP)
    (layer,) = placed.problems
    token_s = placed.problems[layer].tables.token_s[0]
    counts = one.traffic.simulated.load.counts()[:, 0]
    # Contiguous, four experts a site.
    busiest = counts.reshape(len(counts), 32, 4).sum(axis=2).max(axis=1)
    alone_s = float(np.mean(busiest * token_s))
    assert found["experts_s"] < alone_s
    assert 0.0 < found["gpu_share"] < 1.0
    assert one.experts_s(EP) == pytest.approx(alone_s + found["network_s"])


def test_variants_of_the_machine():
    half, wide = half_duplex(), wide_port()
    assert half.topology.duplex == "half"
    assert half.topology.links == 52  # one a pair instead of 104
    assert wide.sram_pim.port_bytes_per_s == 102.4e9
