"""Time of a matrix-vector product (GEMV) in DRAM whose banks multiply: HBM-PIM, GDDR6-AiM, Newton, AttAcc.

All banks of a lock-step group obey one command stream: write the input vector into the group's buffer,
activate the same row everywhere, multiply-accumulate one column per bank and command, read the results,
precharge. Tokens are served one after the other, and each reads the weights again (Sieve, NeuPIMs).

The closed form was checked against the command-level simulators of AttAcc (scale-snu/attacc_simulator),
AiM (arkhadem/aim_simulator) and Newton (casys-kaist/NeuPIMs, NewtonSim), with the timing parameters that
each of them publishes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from ..common.errors import UsageError

ACTIVATIONS = ("all_bank", "four_per_faw")
PRECHARGES = ("all_bank", "per_bank")
LAYOUTS = ("packed", "row_per_output")
ROW_POLICIES = ("closed", "open")
REFRESH_RULES = ("off", "average", "interrupt", "deadline")


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"unknown {name} {value!r}", allowed=", ".join(allowed))


class Operation(NamedTuple):
    """A buffer fill or a DRAM row, `times` in a row: what a controller starts only if it can end it."""

    seconds: float
    times: int
    is_row: bool


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """How refresh stretches work. Every `interval_s` the group stands still for `cycle_s`."""

    rule: str = "off"
    """off; average: the mean of long runs, a constant factor; interrupt: each refresh halts the work
    where it is; deadline: an operation that would not end before the refresh waits for it. The last
    two count whole refreshes, the first one `interval_s` after the start, as a simulator's run does."""
    interval_s: float = math.inf
    """tREFI; or tREFI / ranks, where ranks take turns and the whole group waits for each."""
    cycle_s: float = 0.0
    """tRFC."""
    guard_s: float = 0.0
    """Lost besides tRFC, closing and reopening rows. Under the rule deadline: by how much the
    controller's estimate of a row exceeds its duration."""

    def __post_init__(self) -> None:
        _choice("refresh rule", self.rule, REFRESH_RULES)
        if self.rule != "off" and not 0.0 <= self.cycle_s + self.guard_s < self.interval_s:
            raise UsageError(
                f"refresh takes {self.cycle_s + self.guard_s:.3g} s of every {self.interval_s:.3g} s",
                allowed="cycle + guard shorter than the interval",
            )

    def stretch(self, busy_s: float) -> float:
        """Return the time in which `busy_s` of undisturbed work gets done (any rule but deadline)."""
        lost_s = self.cycle_s + self.guard_s
        if self.rule == "average":
            return busy_s / (1.0 - lost_s / self.interval_s)
        if self.rule == "interrupt" and busy_s > self.interval_s:
            return busy_s + lost_s * (1 + (busy_s - self.interval_s) // (self.interval_s - lost_s))
        return busy_s

    def walk(self, operations: list[Operation]) -> float:
        """Return when the last of `operations` ends under the rule deadline."""
        now, due = 0.0, self.interval_s
        for seconds, times, is_row in operations:
            estimate_s = seconds + self.guard_s * is_row
            never_fits = estimate_s > self.interval_s - self.cycle_s
            left = times
            while left:
                fits = 1 + math.floor((due - now - estimate_s) / seconds) if seconds else left
                done = min(left, max(0, fits))
                now += done * seconds
                left -= done
                if left:
                    now, due = due + self.cycle_s, due + self.interval_s
                    now, left = now + never_fits * seconds, left - never_fits
        return now


@dataclass(frozen=True)
class Gemv:
    """Where the time of one GEMV goes: four parts of one vector among others, before refresh."""

    input_write_s: float
    activate_s: float
    """Row turn-over that nothing else hides: precharge and activation."""
    mac_s: float
    read_s: float
    """Reading results, with the mode switches around it."""
    saved_if_open_s: float
    """What a further vector saves because its row is still open."""
    saved_if_idle_s: float
    """What the first vector saves on an idle device: it closes no row, but enters the mode."""
    operations: tuple[Operation, ...] = field(repr=False)
    refresh: Refresh

    @property
    def busy_s(self) -> float:
        """One vector, without refresh: the sum of the four parts."""
        return self.input_write_s + self.activate_s + self.mac_s + self.read_s

    @property
    def refresh_factor(self) -> float:
        """How much longer refresh makes one vector."""
        return self.seconds() / self.busy_s

    def seconds(self, tokens: int = 1, *, idle: bool = False) -> float:
        """Return the time of `tokens` vectors in sequence, with refresh; 0.0 for none.

        In back-to-back work the row of the matrix before has to be closed; with `idle` the device
        has no row open at the start, and the time ends when the last result has been read.
        """
        if tokens == 0:
            return 0.0
        saved_s = self.saved_if_idle_s if idle else 0.0
        if self.refresh.rule == "deadline":
            again = self.operations if not self.saved_if_open_s else self._operations_if_open()
            return self.refresh.walk([*self.operations, *again * (tokens - 1)]) - saved_s
        busy_s = tokens * self.busy_s - (tokens - 1) * self.saved_if_open_s - saved_s
        return self.refresh.stretch(busy_s)

    def _operations_if_open(self) -> tuple[Operation, ...]:
        """Of a further vector in the open row: one buffer fill, and the row without activation."""
        fill, row = self.operations
        return (fill, row._replace(seconds=row.seconds - self.saved_if_open_s))


@dataclass(frozen=True)
class Layout:
    """How the inputs of a matrix are split over banks and groups, and the time that the shape takes."""

    k_banks: int
    k_groups: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Pim:
    """A lock-step group of banks with one processing unit (PU) each, and its command timing.

    Raises UsageError where values contradict each other.
    """

    ranks: int
    """Ranks, times the pseudo-channels that share the group's commands."""
    bank_groups: int
    banks_per_bank_group: int
    row_bytes: int
    column_bytes: int
    """Read from a bank by one MAC command."""

    pu_lanes: int
    """Elements that a PU multiplies per cycle."""
    pu_clock_hz: float
    mac_power_s: float = 0.0
    """Shortest interval of all-bank MACs that the power budget allows."""

    t_ccd_s: float
    t_rcd_s: float
    t_rp_s: float
    t_ras_s: float
    t_rtp_s: float
    t_faw_s: float = 0.0
    command_s: float = 0.0
    """Slot of one row command, where banks are activated or precharged in turn."""
    activation: str = "all_bank"
    """all_bank: one command opens the row everywhere; four_per_faw: four banks per tFAW."""
    faw_banks: int = 0
    """Banks that share one four-activation window; 0: those of a rank."""
    precharge: str = "all_bank"
    """all_bank, or per_bank: one command per bank."""
    row_policy: str = "closed"
    """open: a row stays open for the next vector where a bank needs no other row."""
    layout: str = "packed"
    """packed: outputs follow each other in a row; row_per_output: each output starts a new row."""

    input_write_s: float
    """Per column_bytes of input; a vector is written once per group."""
    input_buffer_bytes: float = math.inf
    """Input held at a time; a longer vector is worked off in slices of this size."""
    input_from_bank: bool = False
    """The buffer is filled by copying a whole row of a bank, opened and closed for it (Newton)."""
    activate_under_input: bool = False
    """The row turns over while the input is written."""

    outputs_per_read: int = 1
    """Outputs that a PU accumulates before results are read."""
    pu_result_bytes: int = 2
    """Handed over by one PU in one read."""
    read_width_bytes: int
    """Moved by one read command."""
    result_read_s: float
    read_under_row_turn: bool = False
    """Results are read while rows turn over; else the group waits for them."""
    mode_switch_s: float = 0.0
    """Between computing and accessing registers: once before and once after each batch of reads."""

    refresh: Refresh = Refresh()

    def __post_init__(self) -> None:
        _choice("activation", self.activation, ACTIVATIONS)
        _choice("precharge", self.precharge, PRECHARGES)
        _choice("layout", self.layout, LAYOUTS)
        _choice("row_policy", self.row_policy, ROW_POLICIES)
        if self.row_bytes % self.column_bytes:
            raise UsageError(f"a row of {self.row_bytes} bytes does not hold whole {self.column_bytes}s")
        if self.banks % self._window_banks:
            raise UsageError(f"faw_banks {self.faw_banks} does not divide {self.banks} banks of a group")

    @cached_property
    def banks(self) -> int:
        """Banks that act in lock-step."""
        return self.ranks * self.bank_groups * self.banks_per_bank_group

    @cached_property
    def _window_banks(self) -> int:
        return self.faw_banks or self.bank_groups * self.banks_per_bank_group

    @cached_property
    def open_s(self) -> float:
        """From the first activation of a row to the first MAC on it."""
        if self.activation == "all_bank":
            return self.t_rcd_s
        windows = math.ceil(self._window_banks / 4) - 1
        stagger_s = (self.banks // self._window_banks - 1) * self.command_s
        return windows * self.t_faw_s + stagger_s + self.t_rcd_s

    @cached_property
    def close_s(self) -> float:
        """From the first precharge of a row to the next activation."""
        if self.precharge == "all_bank":
            return self.t_rp_s
        commands_s = self.banks * self.command_s
        if self.activation == "all_bank":
            return commands_s + self.t_rp_s
        # The four banks that open first were closed first; tFAW covers tRP of the others.
        return max(commands_s, 4 * self.command_s + self.t_rp_s)

    def mac_interval_s(self, weight_bytes: float, inputs: float = math.inf) -> float:
        """Return the time per column of at most `inputs` weights: the slowest of column, power and PU."""
        cycles = math.ceil(min(inputs, self.column_bytes / weight_bytes) / self.pu_lanes)
        return max(self.t_ccd_s, self.mac_power_s, cycles / self.pu_clock_hz)

    def gemv(
        self,
        outputs: int,
        inputs: int,
        *,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        k_banks: int = 1,
        k_groups: int = 1,
    ) -> Gemv:
        """Return the time of y = W x, W [outputs, inputs], spread over `groups` lock-step groups.

        Inputs are split `k_banks` ways over the banks of a group, which adds the partial sums itself,
        and `k_groups` ways over groups, whose partial sums the host must add (not included here).
        Outputs are split over what remains, and the fullest bank decides. Raises UsageError where a
        split does not divide.
        """
        self._check(outputs, inputs, groups, k_banks, k_groups)
        shards = groups // k_groups * (self.banks // k_banks)
        share = _Share(self, math.ceil(outputs / shards), k_banks, weight_bytes, activation_bytes)
        inputs = math.ceil(inputs / k_groups)
        held = max(1, int(min(inputs, self.input_buffer_bytes / activation_bytes)))
        full, rest = divmod(inputs, held)
        fills = [share.fill(held)] * full + ([share.fill(rest)] if rest else [])
        return self._assemble(fills)

    def gemv_s(
        self,
        outputs: int,
        inputs: int,
        *,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        k_banks: int = 1,
        k_groups: int = 1,
        tokens: int = 1,
    ) -> float:
        """Return the seconds of `tokens` GEMVs in back-to-back work, refresh included; see `gemv`.

        Linear in `tokens`, unless the row stays open from one to the next.
        """
        split = self.gemv(
            outputs,
            inputs,
            weight_bytes=weight_bytes,
            activation_bytes=activation_bytes,
            groups=groups,
            k_banks=k_banks,
            k_groups=k_groups,
        )
        return split.seconds(tokens)

    def expert_s(
        self,
        hidden: int,
        intermediate: int,
        *,
        matrices: int,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        tokens: int = 1,
        mode: str = "row",
        tp: int = 1,
        k_banks: int = 1,
    ) -> float:
        """Return the seconds that one of `tp` equal shards of an expert takes for `tokens` tokens.

        Gate and up (`matrices` 3; 2: only up) are split by outputs. Down is split by inputs in mode
        "row", so that shards hold partial sums, and by outputs in mode "col", which needs the whole
        intermediate vector (SPIMOE 3.3.2). Activation function and communication are left out.
        """
        _choice("mode", mode, ("row", "col"))
        gemv = partial(self.gemv, weight_bytes=weight_bytes, activation_bytes=activation_bytes, groups=groups)
        shard = math.ceil(intermediate / tp)
        up = gemv(shard, hidden, k_banks=k_banks)
        down_shape = (hidden, shard) if mode == "row" else (math.ceil(hidden / tp), intermediate)
        down = gemv(*down_shape, k_banks=k_banks)
        return (matrices - 1) * up.seconds(tokens) + down.seconds(tokens)

    def best_layout(
        self,
        outputs: int,
        inputs: int,
        *,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        host_bytes_per_s: float,
        tokens: int = 1,
    ) -> Layout:
        """Return the fastest split of the inputs over banks and groups, in powers of two.

        `host_bytes_per_s` is the rate at which the host reads and adds the partial sums of a split
        over groups; math.inf makes them free. Ties go to the smaller split.
        """
        gemv = partial(self.gemv, weight_bytes=weight_bytes, activation_bytes=activation_bytes, groups=groups)
        found = []
        for k_groups in _powers_of_two(groups):
            partial_bytes = k_groups * outputs * activation_bytes * tokens if k_groups > 1 else 0.0
            for k_banks in _powers_of_two(self.banks):
                pim_s = gemv(outputs, inputs, k_banks=k_banks, k_groups=k_groups).seconds(tokens)
                found.append(Layout(k_banks, k_groups, pim_s + partial_bytes / host_bytes_per_s))
        return min(found, key=lambda layout: layout.seconds)

    def _check(self, outputs: int, inputs: int, groups: int, k_banks: int, k_groups: int) -> None:
        if min(outputs, inputs, groups, k_banks, k_groups) < 1:
            raise UsageError(f"a GEMV [{outputs}, {inputs}] on {groups} groups has no work in it")
        if self.banks % k_banks:
            raise UsageError(f"k_banks {k_banks} does not divide the {self.banks} banks of a group")
        if groups % k_groups:
            raise UsageError(f"k_groups {k_groups} does not divide {groups} groups")

    def _assemble(self, fills: list[_Fill]) -> Gemv:
        """Put the buffer fills of one vector together: what overlaps, and what can be saved."""
        turn_s = self.close_s + self.open_s
        hidden_s = fills[0].input_s if self.activate_under_input else 0.0
        overlap_s = min(turn_s, hidden_s)
        idle_turn_s = max(0.0, self.open_s - hidden_s)
        rows = sum(fill.rows for fill in fills)
        stays_open = rows == 1 and self.row_policy == "open"
        # The copied input row took the place of the weight row in one bank.
        reopen_s = self.command_s + self.t_rcd_s if self.input_from_bank else 0.0
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
            saved_if_open_s=max(0.0, turn_s - overlap_s - reopen_s) if stays_open else 0.0,
            saved_if_idle_s=turn_s - overlap_s - idle_turn_s - self.mode_switch_s,
            operations=tuple(operations),
            refresh=self.refresh,
        )


class _Fill(NamedTuple):
    """Work between two writes of the input buffer. Tail: after the last MAC until a row may close."""

    input_s: float
    mac_s: float
    read_s: float
    tail_s: float
    rows: int


class _Share(NamedTuple):
    """What the fullest bank holds: `outputs` rows of W, each a `k_banks`-th of the inputs long."""

    pim: Pim
    outputs: int
    k_banks: int
    weight_bytes: float
    activation_bytes: float

    def fill(self, elements: int) -> _Fill:
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
        return _Fill(
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
        return math.ceil(elements * self.activation_bytes / pim.column_bytes) * pim.input_write_s

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


def _powers_of_two(n: int) -> list[int]:
    """Powers of two that divide n."""
    return [1 << i for i in range(n.bit_length()) if n % (1 << i) == 0]
