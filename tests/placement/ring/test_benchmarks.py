"""The figure of the README and the micro-benchmark."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from moeplan.benchmarks import ring_figure
from moeplan.benchmarks.micro import ring as micro
from moeplan.common.errors import BadInput


def test_speed_ups_by_hand():
    # 3 cycles a hop, 3 + 2 around it, S - 1 for the tail: 3 h + 5 + S - 1 cycles for S flits over h hops.
    # Row-major through 4 x 8 closes over 3 + 7 = 10 hops, the comb takes 1.
    full, half = (
        dict(zip(ring_figure.FLITS, ring_figure.speed_ups(duplex), strict=True))
        for duplex in ("full", "half")
    )
    assert full[1] == pytest.approx(35 / 8)
    assert full[2048] == pytest.approx((35 + 2047) / (8 + 2047))
    # On half-duplex wires rows are walked there and, by the hop to the next row, back: load 2, so twice the
    # flits; the comb uses every wire once.
    assert half[2048] == pytest.approx(2.0, abs=0.02)
    assert all(half[flits] >= full[flits] for flits in ring_figure.FLITS)


def test_the_figure_is_the_same_every_time(tmp_path):
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        ring_figure.draw(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    text = " ".join(ET.parse(paths[0]).getroot().itertext())
    for words in ("full duplex", "half duplex", "SPIMOE: 3.12x"):
        assert words in text
    with pytest.raises(BadInput):
        ring_figure.draw(tmp_path / "missing" / "a.svg")


def test_micro_benchmark_rows(monkeypatch):
    monkeypatch.setattr(micro, "CASES", (micro.Case(3, 4, 6, 3),))
    rows = micro.run()
    assert [row["objective"] for row in rows] == ["hops", "load,hops,total"]
    for row in rows:
        assert (row["mesh"], row["cores"], row["sets"], row["exact_proven"]) == ("3x4", 6, 3, 1.0)
        assert 0.0 <= row["nn_2opt_optimal"] <= 1.0
        assert row["exact_ms"] > 0.0
