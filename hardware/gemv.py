"""One vector times a matrix on a lock-step group of banks: what the fullest bank does, and for how long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .refresh import Operation, Refresh

if TYPE_CHECKING:
    from .pim import Pim

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Gemv:
    """Where the time of one GEMV goes: four parts of one vector among others, before refresh."""

    input_write_s: float
    activate_s: float
    """Row turn-over that nothing else hides: precharge and activation."""
    mac_s: float
    read_s: float
    """Reading results, with the mode switches around it."""
    session_s: float
    """Once for any number of vectors."""
    saved_if_open_s: float
    """What a further vector saves because its row is still open."""
    saved_if_idle_s: float
    """What the first vector saves on an idle device: it closes no row, but enters the mode."""
    operations: tuple[Operation, ...] = field(repr=False)
    refresh: Refresh

    @cached_property
    def busy_s(self) -> float:
        """One vector, without refresh: the sum of the four parts."""
        return self.input_write_s + self.activate_s + self.mac_s + self.read_s

    @property
    def refresh_factor(self) -> float:
        """How much longer refresh makes one vector."""
        return self.seconds() / (self.busy_s + self.session_s)

    def seconds(self, tokens: int = 1, *, idle: bool = False) -> float:
        """Return the time of `tokens` vectors in sequence, with refresh; 0.0 for none.

        In back-to-back work the row of the matrix before has to be closed; with `idle` the device
        has no row open at the start, and the time ends when the last result has been read.
        """
        if tokens == 0:
            return 0.0
        saved_s = self.saved_if_idle_s if idle else 0.0
        if self.refresh.rule == "deadline":
            return max(self._ends(tokens)) + self.session_s - saved_s
        busy_s = tokens * self.busy_s - (tokens - 1) * self.saved_if_open_s
        return self.refresh.stretch(busy_s + self.session_s - saved_s)

    def table(self, tokens: int) -> Array:
        """Return float64 [tokens + 1] `seconds` of 0, 1, ..., `tokens` vectors in back-to-back work."""
        if self.refresh.rule == "deadline":
            return np.array([0.0, *(end_s + self.session_s for end_s in self._ends(tokens))])
        return np.array([self.seconds(n) for n in range(tokens + 1)])

    def _ends(self, tokens: int) -> Iterator[float]:
        again = self.operations if not self.saved_if_open_s else self._operations_if_open()
        return self.refresh.ends(chain((self.operations,), repeat(again, tokens - 1)))

    def _operations_if_open(self) -> tuple[Operation, ...]:
        """Of a further vector in the open row: one buffer fill, and the row without activation."""
        fill, row = self.operations
        return (fill, row._replace(seconds=row.seconds - self.saved_if_open_s))


class Fill(NamedTuple):
    """Work between two writes of the input buffer. Tail: after the last MAC until a row may close."""

    input_s: float
    mac_s: float
    read_s: float
    tail_s: float
    rows: int


class Share(NamedTuple):
    """What the fullest bank holds: `outputs` rows of W, each a `k_banks`-th of the inputs long."""

    pim: Pim
    outputs: int
    k_banks: int
    weight_bytes: float
    activation_bytes: float

    def fills(self, inputs: int) -> list[Fill]:
        """Return all work on one vector of `inputs`: passes over outputs, each in slices of the inputs."""
        held = self.pim.accumulators or self.outputs
        full, rest = divmod(self.outputs, held)
        fills = self._replace(outputs=held)._slices(inputs) * full
        return fills + self._replace(outputs=rest)._slices(inputs) if rest else fills

    def _slices(self, inputs: int) -> list[Fill]:
        held = max(1, int(min(inputs, self.pim.input_buffer_bytes / self.activation_bytes)))
        full, rest = divmod(inputs, held)
        slices = [self._fill(held)] * full + ([self._fill(rest)] if rest else [])
        if not self.pim.accumulators:
            return slices
        return [fill._replace(read_s=0.0) for fill in slices[:-1]] + slices[-1:]

    def _fill(self, elements: int) -> Fill:
        """Return the work on `elements` inputs, which fit into the buffer."""
        pim, outputs = self.pim, self.outputs
        inputs = math.ceil(elements / self.k_banks)
        mac_s = pim.mac_interval_s(self.weight_bytes, inputs)
        row = pim.row_bytes // pim.column_bytes
        columns = math.ceil(inputs * self.weight_bytes / pim.column_bytes)
        if pim.layout == "packed":
            full, rest = divmod(outputs * columns, row)
            short = int(rest > 0)
        else:
            per_output, rest = divmod(columns, row)
            full, short = outputs * per_output, outputs if rest else 0
        full_tail_s, short_tail_s = self._tail_s(row, mac_s), self._tail_s(rest, mac_s)
        last_tail_s = short_tail_s if short else full_tail_s
        return Fill(
            input_s=self._input_s(elements),
            mac_s=outputs * columns * mac_s,
            read_s=self._read_s(columns, row, last_tail_s, mac_s),
            tail_s=full * full_tail_s + short * short_tail_s,
            rows=full + short,
        )

    def _input_s(self, elements: int) -> float:
        pim = self.pim
        if pim.input_from_bank:
            return pim.t_rcd_s + pim.row_bytes / pim.column_bytes * pim.input_write_s + pim.t_rp_s
        writes = math.ceil(elements * self.activation_bytes / pim.column_bytes)
        return writes * pim.input_write_s + pim.input_turn_s

    def _tail_s(self, columns: int, mac_s: float) -> float:
        """What tRTP and tRAS still ask for after the last MAC interval of a row of `columns`."""
        pim = self.pim
        return max(0.0, pim.t_rtp_s - mac_s, pim.t_ras_s - pim.t_rcd_s - columns * mac_s)

    def _read_s(self, columns: int, row: int, tail_s: float, mac_s: float) -> float:
        """Return the time of all reads that row turn-overs do not hide."""
        pim = self.pim
        full, rest = divmod(self.outputs, pim.outputs_per_read)
        between = full - (rest == 0)  # batches of reads with MACs after them
        if pim.layout == "packed":
            batch = columns * pim.outputs_per_read
            at_row_end = between * batch // math.lcm(batch, row)
        else:
            at_row_end = between
        beside_s = mac_s if pim.read_under_row_turn else 0.0
        turn_s = pim.close_s + pim.open_s if pim.read_under_row_turn else 0.0
        batch_s, last_s = self._batch_s(pim.outputs_per_read), self._batch_s(rest or pim.outputs_per_read)
        return (
            at_row_end * max(0.0, batch_s - beside_s - tail_s - turn_s)
            + (between - at_row_end) * max(0.0, batch_s - beside_s)
            + max(0.0, last_s - beside_s - tail_s)
        )

    def _batch_s(self, outputs: int) -> float:
        """Reading `outputs` results of every PU, with the mode switches around it."""
        pim = self.pim
        reads = math.ceil(outputs * self.activation_bytes / pim.pu_result_bytes)
        commands = math.ceil(pim.banks // self.k_banks * pim.pu_result_bytes / pim.read_width_bytes)
        return 2 * pim.mode_switch_s + reads * commands * pim.result_read_s


def assemble(pim: Pim, fills: list[Fill]) -> Gemv:
    """Put the buffer fills of one vector together: what overlaps, and what can be saved."""
    turn_s = pim.close_s + pim.open_s
    hidden_s = fills[0].input_s if pim.activate_under_input else 0.0
    overlap_s = min(turn_s, hidden_s)
    idle_turn_s = max(0.0, pim.open_s - hidden_s)
    rows = sum(fill.rows for fill in fills)
    stays_open = rows == 1 and pim.row_policy == "open"
    # The copied input row took the place of the weight row in one bank.
    reopen_s = pim.command_s + pim.t_rcd_s if pim.input_from_bank else 0.0
    operations = []
    for fill in fills:
        row_s = turn_s + (fill.mac_s + fill.read_s + fill.tail_s) / fill.rows
        operations += [Operation(fill.input_s, 1, False), Operation(row_s, fill.rows, True)]
    operations[0] = operations[0]._replace(seconds=fills[0].input_s - overlap_s)
    return Gemv(
        input_write_s=sum(fill.input_s for fill in fills),
        activate_s=rows * turn_s - overlap_s + sum(fill.tail_s for fill in fills),
        mac_s=sum(fill.mac_s for fill in fills),
        read_s=sum(fill.read_s for fill in fills),
        session_s=pim.session_s,
        saved_if_open_s=max(0.0, turn_s - overlap_s - reopen_s) if stays_open else 0.0,
        saved_if_idle_s=turn_s - overlap_s - idle_turn_s - pim.mode_switch_s,
        operations=tuple(operations),
        refresh=pim.refresh,
    )
