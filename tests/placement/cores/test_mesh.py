"""Multicasts inside a core, worked out by hand on 2 x 2 and 3 x 3 units."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from moeplan.hardware.nearmem import rexpert
from moeplan.placement.cores.mesh import multicasts, units_of


def core(side: int, link: float = 64e9, budget: float = 256e9):
    found = rexpert(side=side).package.die.core
    return dataclasses.replace(found, link_bytes_per_s=link, multicast_bytes_per_s=budget)


def test_units_are_filled_in_order_and_around():
    assert units_of(np.array([1, 0, 1, 0, 0, 1]), 2).tolist() == [2, 0, 3, 1, 0, 2]


def test_balanced_units_send_nothing():
    sent = multicasts(np.full((2, 4), 3), np.zeros(4, dtype=int), 1, core(2))
    assert sent.streams.tolist() == [[0], [0]]
    assert sent.stretch == 1.0


def test_one_hot_expert_is_one_stream():
    # Jobs 10, 1, 1, 1: four rounds; the hot unit lends six jobs to three units along its own tree, on whose
    # links it is alone: 51.2 of 64 GB/s.
    sent = multicasts(np.array([[10, 1, 1, 1]]), np.zeros(4, dtype=int), 1, core(2))
    assert (sent.streams.tolist(), sent.rounds.tolist(), sent.stretch) == ([[1]], [4], 1.0)
    assert sent.demand_bytes_per_s(1.0, core(2)) == 51.2e9


def test_streams_that_share_a_link_slow_down():
    # 3 x 3 units. Units 0 and 1 have 5 jobs, unit 2 none, the others 2: ceil(22 / 9) = 3 rounds. Unit 0 lends
    # two jobs first, then unit 1 lends two:
    #   Spare: unit 2 has 3, units 3..8 one each. Unit 0, one hop: 3 takes 1; two hops: 2 takes 1, by 0-1-2.
    #   Unit 1, one hop: 2 takes its last two, along 1-2. Both streams cross link 1-2: 2 x 51.2 / 64 = 1.6.
    sent = multicasts(np.array([[5, 5, 0, 2, 2, 2, 2, 2, 2]]), np.zeros(9, dtype=int), 1, core(3))
    assert sent.streams.tolist() == [[2]]
    assert sent.stretch == pytest.approx(1.6)


def test_the_budget_of_a_core_binds():
    # The same on wide links, with room for one stream of 51.2 GB/s in the core.
    sent = multicasts(
        np.array([[5, 5, 0, 2, 2, 2, 2, 2, 2]]), np.zeros(9, dtype=int), 1, core(3, 1e15, 51.2e9)
    )
    assert sent.stretch == pytest.approx(2.0)


def test_the_slowest_core_counts():
    # Core 0 takes one round more, core 1 is stretched by two streams on a link, but has less to do: 4 rounds
    # against 3 x 1.6 = 4.8.
    jobs = np.array([[4] * 9 + [5, 5, 0, 2, 2, 2, 2, 2, 2]])
    sent = multicasts(jobs, np.repeat([0, 1], 9), 2, core(3))
    assert sent.rounds.tolist() == [4]
    assert sent.stretched.tolist() == pytest.approx([4.8])
    assert sent.stretch == pytest.approx(1.2)
