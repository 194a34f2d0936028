"""Time of a matrix-vector product (GEMV) in DRAM whose banks multiply: HBM-PIM, GDDR6-AiM, Newton, AttAcc.

All banks of a lock-step group obey one command stream: write the input vector into the group's buffer,
activate the same row everywhere, multiply-accumulate one column per bank and command, read the results,
precharge. Tokens are served one after the other, and each reads the weights again (Sieve, NeuPIMs).

The closed form was checked against the command-level simulators of AttAcc (scale-snu/attacc_simulator),
AiM (arkhadem/aim_simulator), Newton (casys-kaist/NeuPIMs, NewtonSim) and Samsung's HBM-PIM
(SAITPublic/PIMSimulator), with the timing parameters that each of them publishes; see
`moeplan validate`. A platform file says of every value where it is from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.errors import UsageError
from .gemv import Gemv, Share, assemble
from .refresh import NO_REFRESH, Refresh, check_choice

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

ACTIVATIONS = ("all_bank", "four_per_faw")
PRECHARGES = ("all_bank", "per_bank")
LAYOUTS = ("packed", "row_per_output")
ROW_POLICIES = ("closed", "open")
MAX_BANKS = 1 << 16
"""Of a lock-step group, several hundred times those of any device: layouts try every divisor of them."""


@dataclass(frozen=True)
class Layout:
    """How a matrix lies on a device, and the time of one GEMV with it, reduction on the host included."""

    groups: int
    """Lock-step groups that hold a part of it."""
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
    input_turn_s: float = 0.0
    """Once per filling of the buffer: the bus turns round, and the row of input registers opens (HBM-PIM)."""
    activate_under_input: bool = False
    """The row turns over while the input is written."""

    accumulators: int = 0
    """Outputs that a PU sums up over all slices of the input. Further ones are a pass of their own, which
    writes the input again (HBM-PIM). 0: sums are read after each slice, for any number of outputs."""
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
    session_s: float = 0.0
    """Once for vectors in sequence: parking the banks, entering and leaving the mode, microcode (HBM-PIM)."""

    dual_row_buffer: bool = False
    """Banks have a second row buffer for reads and writes of the host (NeuPIMs); see `beside_host_s`."""
    refresh: Refresh = NO_REFRESH

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("precharge", self.precharge, PRECHARGES)
        check_choice("layout", self.layout, LAYOUTS)
        check_choice("row_policy", self.row_policy, ROW_POLICIES)
        if self.row_bytes % self.column_bytes:
            raise UsageError(f"a row of {self.row_bytes} bytes does not hold whole {self.column_bytes}s")
        if self.input_buffer_bytes < self.column_bytes:
            raise UsageError(
                f"an input buffer of {self.input_buffer_bytes:.15g} bytes",
                allowed=f"at least the {self.column_bytes} bytes of a column, which one write fills",
            )
        if not 1 <= self.banks <= MAX_BANKS:
            raise UsageError(
                f"a group of {self.ranks} x {self.bank_groups} x {self.banks_per_bank_group} banks",
                allowed=f"ranks x bank_groups x banks_per_bank_group from 1 to {MAX_BANKS}",
                fix="give the banks that act in lock-step; groups side by side are pseudo-channels",
            )
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
        """Return the mean time per column of an output of `inputs`: the slowest of column, power and PU.

        A PU works off its inputs `pu_lanes` a cycle, whatever their number in a column.
        """
        columns = inputs * weight_bytes / self.column_bytes
        if columns < math.inf:
            cycles = math.ceil(inputs / self.pu_lanes) / math.ceil(columns)
        else:
            cycles = self.column_bytes / weight_bytes / self.pu_lanes
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
        key = (outputs, inputs, weight_bytes, activation_bytes, groups, k_banks, k_groups)
        known = self._gemvs.get(key)
        if known is None:
            self._check(outputs, inputs, groups, k_banks, k_groups)
            shards = groups // k_groups * (self.banks // k_banks)
            share = Share(self, math.ceil(outputs / shards), k_banks, weight_bytes, activation_bytes)
            known = self._gemvs[key] = assemble(self, share.fills(math.ceil(inputs / k_groups)))
        return known

    @cached_property
    def _gemvs(self) -> dict[tuple[float, ...], Gemv]:
        """Every shape that was asked for: a model has few, and planners ask for them very often."""
        return {}

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
        up, down = self._expert(
            hidden, intermediate, weight_bytes, activation_bytes, groups, mode, tp, k_banks
        )
        return (matrices - 1) * up.seconds(tokens) + down.seconds(tokens)

    def expert_table(
        self,
        hidden: int,
        intermediate: int,
        *,
        matrices: int,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        tokens: int,
        factors: Iterable[int],
        mode: str = "row",
        k_banks: int = 1,
    ) -> Array:
        """Return float64 [F, tokens + 1] `expert_s` for F `factors` (tp), and 0 to `tokens` tokens."""
        shards = (
            self._expert(hidden, intermediate, weight_bytes, activation_bytes, groups, mode, tp, k_banks)
            for tp in factors
        )
        return np.array([(matrices - 1) * up.table(tokens) + down.table(tokens) for up, down in shards])

    def _expert(
        self,
        hidden: int,
        intermediate: int,
        weight_bytes: float,
        activation_bytes: float,
        groups: int,
        mode: str,
        tp: int,
        k_banks: int,
    ) -> tuple[Gemv, Gemv]:
        """Return gate or up, and down, of one of `tp` shards of an expert."""
        key = (hidden, intermediate, weight_bytes, activation_bytes, groups, mode, tp, k_banks)
        known = self._experts.get(key)
        if known is None:
            check_choice("mode", mode, ("row", "col"))
            gemv = partial(
                self.gemv,
                weight_bytes=weight_bytes,
                activation_bytes=activation_bytes,
                groups=groups,
                k_banks=k_banks,
            )
            shard = math.ceil(intermediate / tp)
            down = (hidden, shard) if mode == "row" else (math.ceil(hidden / tp), intermediate)
            known = self._experts[key] = (gemv(shard, hidden), gemv(*down))
        return known

    @cached_property
    def _experts(self) -> dict[tuple[float | str, ...], tuple[Gemv, Gemv]]:
        return {}

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
        """Return the fastest way to lay a matrix over at most `groups` groups.

        Tried are halves of `groups`, and of each the splits of the inputs over banks and groups in powers
        of two. `host_bytes_per_s` is the rate at which the host reads and adds the partial sums of a
        split over groups; math.inf makes them free. Ties go to fewer groups, then to the smaller split.
        """
        found = []
        for used in (groups // parts for parts in reversed(_powers_of_two(groups))):
            for k_groups, k_banks in product(_powers_of_two(used), _powers_of_two(self.banks)):
                gemv = self.gemv(
                    outputs,
                    inputs,
                    weight_bytes=weight_bytes,
                    activation_bytes=activation_bytes,
                    groups=used,
                    k_banks=k_banks,
                    k_groups=k_groups,
                )
                summed_bytes = k_groups * outputs * activation_bytes * tokens if k_groups > 1 else 0.0
                seconds = gemv.seconds(tokens) + summed_bytes / host_bytes_per_s
                found.append(Layout(used, k_banks, k_groups, seconds))
        return min(found, key=lambda layout: layout.seconds)

    def beside_host_s(self, pim_s: float, host_s: float) -> float:
        """Return when both `pim_s` of computing and `host_s` of host traffic on the same banks are done.

        One after the other; with a second row buffer side by side, which makes no GEMV faster (NeuPIMs).
        """
        return max(pim_s, host_s) if self.dual_row_buffer else pim_s + host_s

    def _check(self, outputs: int, inputs: int, groups: int, k_banks: int, k_groups: int) -> None:
        if min(outputs, inputs, groups, k_banks, k_groups) < 1:
            raise UsageError(f"a GEMV [{outputs}, {inputs}] on {groups} groups has no work in it")
        if self.banks % k_banks:
            raise UsageError(f"k_banks {k_banks} does not divide the {self.banks} banks of a group")
        if groups % k_groups:
            raise UsageError(f"k_groups {k_groups} does not divide {groups} groups")


def _powers_of_two(n: int) -> list[int]:
    """Powers of two that divide n."""
    return [1 << i for i in range(n.bit_length()) if n % (1 << i) == 0]
