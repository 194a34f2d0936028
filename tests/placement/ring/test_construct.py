"""Rings that are written down: rectangles at their optimum, snakes elsewhere."""

from __future__ import annotations

import pytest

from moeplan.hardware.topology import star
from moeplan.placement.ring.construct import rectangle_tour, row_major, snake
from moeplan.placement.ring.problem import RingOrder, RingProblem

from .instances import LINK, grid


def test_tours_by_hand():
    # Right along the top, back in a snake without column 0, and home through it.
    assert snake(grid(4, 3), range(12)) == (0, 1, 2, 5, 4, 7, 8, 11, 10, 9, 6, 3)
    # Odd area: the snake leaves two rows, which are walked in columns; 4 -> 6 is the diagonal.
    assert snake(grid(3, 3), range(9)) == (0, 1, 2, 5, 8, 7, 4, 6, 3)
    assert snake(grid(1, 6), range(6)) == (0, 2, 4, 5, 3, 1)
    assert row_major([5, 1, 3]) == (1, 3, 5)


@pytest.mark.parametrize("routing", ["xy", "yx"])
def test_rectangles_anywhere_on_a_mesh(routing):
    from moeplan.hardware.topology import mesh

    topology = mesh(9, 9, routing=routing, **LINK)
    for height in range(1, 8):
        for width in range(1, 9):
            cores = [(r + 1) * 9 + c for r in range(height) for c in range(width)]
            if len(cores) < 2:
                continue
            problem = RingProblem(topology, tuple(cores))
            ring = RingOrder(snake(topology, cores))
            assert problem.check(ring) is None
            even = len(cores) == 2 or (len(cores) % 2 == 0 and min(height, width) > 1)
            assert problem.measure(ring)[:2] == (1, 1 if even else 2)


def test_even_tours_use_every_half_duplex_wire_once():
    for height, width in ((2, 2), (4, 8), (5, 6), (7, 4)):
        problem = RingProblem(grid(height, width, "half"), tuple(range(height * width)))
        assert problem.measure(RingOrder(snake(problem.topology, problem.cores))) == (1, 1, height * width)


def test_tour_visits_every_cell_once():
    tour = rectangle_tour(7, 5)
    assert len({tuple(cell) for cell in tour.tolist()}) == 35
    assert tour.min(axis=0).tolist() == [0, 0]
    assert tour.max(axis=0).tolist() == [6, 4]


def test_other_sets_alternate_by_occupied_row():
    # Rows 0, 2 and 3 hold cores: right, left, right.
    assert snake(grid(4, 4), [13, 0, 2, 9, 10, 15]) == (0, 2, 10, 9, 13, 15)
    assert snake(star(5, **LINK), [4, 2, 0]) == (0, 2, 4)
