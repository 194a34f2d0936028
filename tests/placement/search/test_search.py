"""The shared parts of searches: random numbers and temperatures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from moeplan.placement.search.cooling import temperature, temperatures
from moeplan.placement.search.random import below, next_uint64, seeded, uniform

MASK = 2**64 - 1


def rotate(x: int, k: int) -> int:
    return ((x << k) | (x >> (64 - k))) & MASK


def test_generator_is_xoroshiro128plus():
    """Against the published recurrence with rotations 24, 16, 37 in Python integers."""
    state = seeded(1, 2)
    a, b = (int(x) for x in state)
    for _ in range(100):
        assert int(next_uint64(state)) == (a + b) & MASK
        b ^= a
        a, b = rotate(a, 24) ^ b ^ ((b << 16) & MASK), rotate(b, 37)


def test_seeds_differ_and_repeat():
    assert seeded(3).tolist() == seeded(3).tolist()
    assert len({tuple(seeded(n).tolist()) for n in range(1000)} | {tuple(seeded(0, 1).tolist())}) == 1001


def test_numbers_are_uniform():
    """20,000 draws over 10 cells: chi-square with 9 degrees of freedom stays below the 0.999 quantile."""
    state = seeded(5)
    cells = np.bincount([below(state, 10) for _ in range(20_000)], minlength=10)
    assert ((cells - 2000) ** 2 / 2000).sum() < 27.9
    draws = [uniform(state) for _ in range(1000)]
    assert min(draws) >= 0.0
    assert max(draws) < 1.0


def test_temperatures_by_hand():
    """Uphill deltas 1, 2, 3, 4: lower quartile 1.75, accepted half of the time at 1.75 / ln 2; the least
    (1 % quantile 1.03) once in a hundred at 1.03 / ln 100."""
    hot, cold = temperatures(np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]))
    assert hot == pytest.approx(1.75 / math.log(2))
    assert cold == pytest.approx(1.03 / math.log(100))
    assert temperature(hot, cold, 0.0) == pytest.approx(hot)
    assert temperature(hot, cold, 1.0) == pytest.approx(cold)
    assert temperature(hot, cold, 0.5) == pytest.approx(math.sqrt(hot * cold))


def test_nothing_uphill_descends():
    assert temperatures(np.array([-1.0, 0.0])) == (0.0, 0.0)
    assert temperature(0.0, 0.0, 0.5) == 0.0
