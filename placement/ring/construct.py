"""Rings that can be written down: by core id, as a snake, and as the comb that closes a rectangle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ...hardware.topology import Topology


def row_major(cores: Iterable[int]) -> tuple[int, ...]:
    """Return the cores by ascending id.

    Under XY routing on full-duplex links no two transfers of a round share a link: in a row they follow each
    other to the right, each row is left once, and columns are walked down in pieces that do not overlap.
    """
    return tuple(sorted(cores))


def snake(topology: Topology, cores: Iterable[int]) -> tuple[int, ...]:
    """Return the rectangle's closed tour where the cores fill one, else rows in alternating direction.

    An open snake over an even number of rows closes with rows - 1 hops, which is why rectangles take
    `rectangle_tour`. Without a grid the order is by id.
    """
    ids = np.array(sorted(cores))
    if not topology.rows:
        return row_major(ids.tolist())
    row, col = np.divmod(ids, topology.cols)
    height, width = int(np.ptp(row)) + 1, int(np.ptp(col)) + 1
    if height * width == len(ids):
        tour = rectangle_tour(height, width)
        return tuple(((tour[:, 0] + row.min()) * topology.cols + tour[:, 1] + col.min()).tolist())
    turn = np.unique(row, return_inverse=True)[1] % 2
    return tuple(ids[np.lexsort((np.where(turn, -col, col), row))].tolist())


def rectangle_tour(height: int, width: int) -> NDArray[np.int64]:
    """Return (row, col) [height * width, 2] of a ring through a rectangle: 1 hop if the area is even, else 2.

    Both are optimal. With an even number of rows it snakes over all columns but the first, which is the way
    home (a comb); with only the columns even it is the same on its side. With both odd, the last two rows are
    walked in a zigzag and one hop is diagonal. A line is walked over its even places and back over the odd.
    No two hops share a direction of a link.
    """
    if height == 1 or width == 1:
        along = np.arange(height * width)
        there = np.concatenate([along[::2], along[1::2][::-1]])
        return np.stack([there, 0 * there] if width == 1 else [0 * there, there], axis=1)
    if height % 2 and width % 2 == 0:
        return rectangle_tour(width, height)[:, ::-1]
    snaked = height if height % 2 == 0 else height - 2
    cells = [(0, 0)] + [(r, c) for r in range(snaked) for c in _turning(1, width, r % 2)]
    if snaked < height:
        cells += [(r, c) for c in range(width - 1, 0, -1) for r in _turning(snaked, height, c % 2)]
    cells += [(r, 0) for r in range(height - 1, 0, -1)]
    return np.array(cells)


def _turning(first: int, last: int, backwards: int) -> range:
    return range(last - 1, first - 1, -1) if backwards else range(first, last)
