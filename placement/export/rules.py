"""What every engine asks of a table of slots; independent of the code that writes it.

The checks speak of plain values, as they came out of a file. Each names the first places that break it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..verify import Finding, finding
from .layout import Deployment

Duplicates = Literal["forbidden", "tolerated"]
Row = tuple[str, Any]  # what to call the row, and its value

LAYER_AXIS: Final = "layer axis"
SLOT_AXIS: Final = "slot axis"
KEYS: Final = "keys"


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the checks found, and the table [rows, R] where the file holds one that can be read."""

    findings: tuple[Finding, ...]
    physical_to_logical: NDArray[np.int64] | None = None

    @property
    def ok(self) -> bool:
        """True where no check failed."""
        return all(found.ok is not False for found in self.findings)


def rejected(check: str, fault: str, *before: Finding) -> Verdict:
    """Return the verdict on a file whose table cannot even be found."""
    return Verdict((*before, Finding(check, False, fault)))


def check_layer_count(rows: Sequence[Any], deployment: Deployment, *, dense: bool) -> Finding:
    """Check the number of rows: all hidden layers where the engine counts dense ones, else the MoE layers."""
    found = len(rows)
    widths = {len(row) for row in rows if isinstance(row, list)}
    moe = len(deployment.moe_layers)
    wanted = deployment.layers if dense else moe
    kind = "hidden layers, dense ones included" if dense else "MoE layers"
    if found == wanted:
        return Finding(LAYER_AXIS, True, f"{found} rows, one for each of the {kind}")
    hint = ""
    if widths == {wanted} and found >= deployment.experts:
        hint = "; the axes look swapped: rows are layers, columns are slots"
    elif dense and found == moe:
        hint = "; these look like the MoE layers alone: dense layers want a row too"
    elif not dense and found == deployment.layers:
        hint = "; these look like all hidden layers: dense layers want no row"
    return Finding(LAYER_AXIS, False, f"{found} rows, the engine wants {wanted}: {kind}{hint}")


def check_table(rows: Sequence[Row], deployment: Deployment, duplicates: Duplicates, engine: str) -> Verdict:
    """Check the slot axis, divisibility, ids, missing experts and duplicates of named rows of slots.

    Later checks are skipped where an earlier one leaves nothing to look at.
    """
    faults = list(_slot_faults(rows, deployment))
    if faults:
        return Verdict((finding(SLOT_AXIS, faults, ""),))
    table = np.array([value for _, value in rows], dtype=np.int64)
    names = [name for name, _ in rows]
    slots = int(table.shape[1])
    found = [
        Finding(SLOT_AXIS, True, f"{slots} slots a layer, {slots - deployment.experts} of them redundant"),
        _divisibility(slots, deployment),
        finding("expert ids", _id_faults(table, names, deployment), f"all in 0 to {deployment.experts - 1}"),
    ]
    if found[-1].ok:
        missing = _missing_faults(table, names, deployment)
        found.append(finding("missing experts", missing, "every expert has a slot in every row"))
    if found[1].ok:
        found.append(_duplicates(table, names, deployment, duplicates, engine))
    return Verdict(tuple(found), table)


def _slot_faults(rows: Sequence[Row], deployment: Deployment) -> Iterator[str]:
    sizes: dict[int, str] = {}
    for name, value in rows:
        if not isinstance(value, list) or not value:
            yield f"{name} is {_kind(value)}, not a list of slots"
            return
        if any(isinstance(item, list) for item in value):
            yield f"{name} is a list of lists; the engine wants its slots flat, rank after rank"
            return
        strange = [item for item in value if isinstance(item, bool) or not isinstance(item, int)]
        if strange:
            yield f"{name} holds {strange[0]!r}, which is no expert id"
            return
        if not all(-(2**31) <= item < 2**31 for item in value):
            yield f"{name} holds a number that is no expert id"
            return
        sizes.setdefault(len(value), name)
    if not sizes:
        yield "there is no row of slots"
        return
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        yield f"{first} has {one} slots, {second} has {other}"
        return
    slots = next(iter(sizes))
    expected = None if deployment.redundant is None else deployment.experts + deployment.redundant
    if expected is not None and slots != expected:
        yield (
            f"{slots} slots a layer; {deployment.experts} experts and "
            f"{deployment.redundant} redundant ones make {expected}"
        )
    elif slots < deployment.experts:
        yield f"{slots} slots a layer cannot hold {deployment.experts} experts"


def _divisibility(slots: int, deployment: Deployment) -> Finding:
    ranks, nodes = deployment.ranks, deployment.nodes
    if ranks % nodes:
        return Finding("divisibility", False, f"{ranks} ranks do not divide among {nodes} nodes")
    if slots % ranks:
        lower = max(slots // ranks, -(-deployment.experts // ranks)) * ranks
        near = f"{lower} or {lower + ranks}" if lower < slots else f"{lower}"
        return Finding(
            "divisibility", False, f"{slots} slots do not divide among {ranks} ranks; {near} would"
        )
    return Finding("divisibility", True, f"{slots // ranks} slots on each of {ranks} ranks")


def _id_faults(table: NDArray[np.int64], names: list[str], deployment: Deployment) -> Iterator[str]:
    for row, slot in np.argwhere((table < 0) | (table >= deployment.experts)):
        yield f"{names[row]}, slot {slot} holds expert {table[row, slot]}, not 0 to {deployment.experts - 1}"


def _missing_faults(table: NDArray[np.int64], names: list[str], deployment: Deployment) -> Iterator[str]:
    for row, name in enumerate(names):
        counts = np.bincount(table[row], minlength=deployment.experts)
        missing = np.flatnonzero(counts == 0)
        if missing.size:
            more = f" and {missing.size - 1} more" if missing.size > 1 else ""
            yield f"{name} has no slot of expert {missing[0]}{more}"


def _duplicates(
    table: NDArray[np.int64], names: list[str], deployment: Deployment, rule: Duplicates, engine: str
) -> Finding:
    """Find slots that repeat an expert of their own rank: a fault, or a warning where it is tolerated."""
    rows, slots = table.shape
    by_rank = np.sort(table.reshape(rows, deployment.ranks, slots // deployment.ranks), axis=2)
    again = np.argwhere(by_rank[:, :, 1:] == by_rank[:, :, :-1])
    if not len(again):
        return Finding("duplicates", True, "no rank holds an expert twice")
    row, rank, place = again[0]
    first = f"{names[row]}, rank {rank} holds expert {by_rank[row, rank, place]} twice"
    more = f" (and {len(again) - 1} more slots)" if len(again) > 1 else ""
    if rule == "forbidden":
        return Finding("duplicates", False, f"{first}{more}; {engine} would use only the last of them")
    return Finding("duplicates", None, f"{first}{more}; {engine} accepts it, but the slot balances nothing")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" if value != [] else "empty"
