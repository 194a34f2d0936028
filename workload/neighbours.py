"""Which token of its request came before a token, found block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common.errors import BadInput


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What a block of T tokens needs to be compared with the tokens before.

    - `before` [T]: the row of the block with the request's position before, -2 - s where that token lies in
      carried row s, -1 where there is none.
    - `rows` and `slots` [n]: after the block, token `rows[i]` is to be carried in row `slots[i]`; at least
      `room` rows are needed for that.
    - `pairs`: tokens that have one before.
    """

    before: NDArray[np.int64]
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    room: int
    pairs: int


class Carrier:
    """Walks the tokens in the order of the file and carries the last token of every request under way.

    `ids` [R] are all requests in ascending order, `lengths` [R] their tokens: a request that has ended gives
    its row back, so that as many rows are carried as requests run side by side.
    """

    def __init__(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self._ids = ids
        self._left = lengths.copy()
        self._position = np.full(ids.size, -1, dtype=np.int64)
        self._slot = np.full(ids.size, -1, dtype=np.int64)
        self._free: list[int] = []
        self._room = 0

    def next(self, request: NDArray[np.int64], position: NDArray[np.int64]) -> Neighbours:
        """Take the next block. Raises BadInput where a request's positions do not ascend in the file."""
        order = np.argsort(request, kind="stable")
        whose, where = request[order], position[order]
        begins = np.flatnonzero(np.r_[True, whose[1:] != whose[:-1]])
        ends = np.r_[begins[1:], whose.size] - 1
        members = np.searchsorted(self._ids, whose[begins])
        # What every token follows in its request, its position, and the row that it lies in.
        last, row = np.empty_like(where), np.empty_like(order)
        last[1:], row[1:] = where[:-1], order[:-1]
        last[begins] = np.where(self._slot[members] >= 0, self._position[members], -2)
        row[begins] = -2 - self._slot[members]
        backwards = where < last
        if backwards.any():
            at = int(backwards.argmax())
            raise BadInput(
                f"request {whose[at]} goes back from position {last[at]} to {where[at]}",
                allowed="rows in the order of recording, in which the positions of a request ascend",
                fix="sort the rows by position, or read the trace into memory (read_trace)",
            )
        follows = where == last + 1
        before = np.full(order.size, -1, dtype=np.int64)
        before[order[follows]] = row[follows]
        rows, slots = self._keep(members, order[ends], where[ends], ends - begins + 1)
        return Neighbours(before, rows, slots, self._room, int(follows.sum()))

    def _keep(
        self,
        members: NDArray[np.int64],
        rows: NDArray[np.int64],
        position: NDArray[np.int64],
        tokens: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Free the rows of requests that ended, and give one to those that go on."""
        self._left[members] -= tokens
        self._position[members] = position
        over = self._left[members] == 0
        slots = self._slot[members]
        self._free.extend(slots[over & (slots >= 0)].tolist())
        self._slot[members[over]] = -1
        new = members[~over & (slots < 0)]
        for member in new.tolist():
            if self._free:
                self._slot[member] = self._free.pop()
            else:
                self._slot[member] = self._room
                self._room += 1
        going = members[~over]
        return rows[~over], self._slot[going].copy()
