"""PIM GEMV times against four command-level simulators of PIM devices.

Each simulator is met with the parameters that it publishes: those of the platform preset of its device,
with the refresh of the run. Three constants are not published, but read from command logs or runs: what
Newton's controller loses around a refresh (121 ns as a deadline here, 230 ns on average in its preset), and
the session of HBM-PIM (300 ns in its preset). Each has a physical name, and none depends on a shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...common.errors import BadInput, UsageError
from ...hardware.pim import Pim
from ...hardware.platform import load_platform
from ...hardware.refresh import NO_REFRESH
from .case import Case
from .reference import Row, read_rows

TABLE = "pim_gemv.csv"
COLUMNS = ("simulator", "config", "rows", "cols", "tokens", "channels", "cycles")
SMALL_SHAPES = "PIM small shapes"
FP16_BYTES = 2.0
LARGE = 256
"""Rows and columns from which on a configuration is counted by itself; smaller shapes are toys."""

NEWTON_GUARD_S = 121e-9
"""By how much NewtonSim's controller over-estimates a row. It takes tRTP instead of a slot for each of 32
precharges, but leaves out tRTP and the slots of P_HEADER and of the second rank: 32 x (5 - 1) - 5 - 2."""


class Device(NamedTuple):
    """A simulated group of banks, the split of inputs over its banks, and the clock that counts."""

    pim: Pim
    k_banks: int
    cycle_s: float


def pim_cases(folder: Path) -> Iterator[Case]:
    """Yield a case in seconds for every row of `folder`/pim_gemv.csv. Raises BadInput on a bad table.

    Runs start on an idle device and end with the last result. A model is a simulator's configuration;
    shapes with fewer than 256 rows or columns are one model together. "[2048, 768] x 4 on 16" are 4 tokens
    times a matrix of 2048 rows and 768 columns, on 16 channels.
    """
    devices: dict[tuple[str, str], Device] = {}
    for row in read_rows(folder / TABLE, COLUMNS):
        key = row["simulator"], row["config"]
        if key not in devices:
            devices[key] = simulated(*key, row.where)
        yield _case(devices[key], row)


def _case(device: Device, row: Row) -> Case:
    config, outputs, inputs = row["config"], row.whole("rows"), row.whole("cols")
    tokens, groups = row.whole("tokens"), row.whole("channels")
    k_split = re.search(r"Ksplit(\d+)", config)
    try:
        gemv = device.pim.gemv(
            outputs,
            inputs,
            weight_bytes=FP16_BYTES,
            activation_bytes=FP16_BYTES,
            groups=groups,
            k_banks=device.k_banks,
            k_groups=int(k_split[1]) if k_split else 1,
        )
    except UsageError as error:
        raise BadInput(error.what, where=row.where) from error
    shape, large = f"[{outputs}, {inputs}] x {tokens} on {groups}", min(outputs, inputs) >= LARGE
    return Case(
        model=f"PIM {config}" if large else SMALL_SHAPES,
        name=shape if large else f"{config} {shape}",
        predicted=gemv.seconds(tokens, idle=True),
        reference=row.whole("cycles") * device.cycle_s,
        source=row["simulator"],
    )


def simulated(simulator: str, config: str, where: str) -> Device:
    """Return the device of a simulator's configuration. Raises BadInput where it is unknown."""
    refreshed = config.endswith("/refresh")
    match simulator.partition("@")[0]:
        case "aim_simulator":
            pim = replace(_preset("gddr6-aim"), outputs_per_read=32 if "reuse-GB" in config else 1)
            return Device(pim, 1, 0.5e-9)
        case "attacc_bank":
            pim = _preset("h100-attacc-npc" if "_NPC" in config else "h100-attacc")
            return Device(_with_refresh(pim, "interrupt" if refreshed else "off"), 4, 0.769e-9)
        case "NeuPIMs-NewtonSim":
            pim = _with_refresh(_preset("newton-hbm2"), "deadline" if refreshed else "off", NEWTON_GUARD_S)
            return Device(pim, 1, 1e-9)
        case "SAIT-PIMSimulator":
            return Device(_preset("samsung-hbmpim"), 1, 1e-9)
    raise BadInput(
        f"unknown simulator {simulator!r}",
        where=where,
        allowed="aim_simulator, attacc_bank, NeuPIMs-NewtonSim, SAIT-PIMSimulator",
    )


def _preset(name: str) -> Pim:
    pim = load_platform(name).pim
    assert pim is not None
    return pim


def _with_refresh(pim: Pim, rule: str, guard_s: float = 0.0) -> Pim:
    """Take the refresh of a run, which starts with the run, instead of the mean of long ones."""
    refresh = NO_REFRESH if rule == "off" else replace(pim.refresh, rule=rule, guard_s=guard_s)
    return replace(pim, refresh=refresh)
