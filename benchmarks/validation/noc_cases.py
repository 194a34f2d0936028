"""NoC times against two cycle-level simulators, BookSim2 and Noxim: single packets and ring rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...common.errors import BadInput, UsageError
from ...hardware.noc import (
    Router,
    booksim2_router,
    noxim_router,
    ring_link_load,
    ring_round_cycles,
    zero_load_cycles,
)
from ...hardware.topology import Topology, mesh
from .case import Case
from .reference import Row, read_rows

TABLE = "noc_rounds.csv"
COLUMNS = (
    "experiment", "simulator", "mesh_rows", "mesh_cols", "cycles_per_hop", "packet_flits", "ring", "hops",
    "msg_flits", "cycles",
)  # fmt: skip
CONFLICTING = "conflicting rounds"


def noc_cases(folder: Path) -> Iterator[Case]:
    """Yield a case in cycles for every row of `folder`/noc_rounds.csv. Raises BadInput on a bad table.

    Models are, for each simulator and head latency, zero load, rounds in which no two transfers share
    a link, and rounds in which some do.
    """
    meshes: dict[tuple[int, int], Topology] = {}
    for row in read_rows(folder / TABLE, COLUMNS):
        shape = row.whole("mesh_rows"), row.whole("mesh_cols")
        if shape not in meshes:
            meshes[shape] = mesh(*shape, link_bandwidth_bytes_per_s=1.0, hop_latency_s=0.0)
        try:
            yield _case(row, meshes[shape])
        except UsageError as error:
            raise BadInput(error.what, where=row.where, allowed=error.allowed) from error


def _case(row: Row, topology: Topology) -> Case:
    router, simulator = _router(row)
    match row["experiment"]:
        case "zero_load":
            hops, flits = row.whole("hops"), row.whole("packet_flits")
            kind, name = "zero load", f"{flits} flits, {hops} hops"
            predicted = zero_load_cycles(router, hops, flits)
        case "ring_allgather_round":
            order, flits = _ring(row), row.whole("msg_flits")
            shared = ring_link_load(topology, order).max() > 1
            kind = CONFLICTING if shared else "contention-free rounds"
            name = f"{topology.rows} x {topology.cols}, ring of {len(order)}, line {row.line}"
            predicted = ring_round_cycles(router, topology, order, flits)
        case other:
            raise BadInput(
                f"unknown experiment {other!r}", where=row.where, allowed="zero_load, ring_allgather_round"
            )
    return Case(
        model=f"NoC {simulator}, {kind}",
        name=name,
        predicted=float(predicted),
        reference=float(row.whole("cycles")),
        source=row["simulator"],
    )


def _router(row: Row) -> tuple[Router, str]:
    """Return the router of a row, and its simulator with the head latency where that is a choice."""
    packet, head = row.whole("packet_flits"), row.whole("cycles_per_hop")
    match row["simulator"]:
        case "booksim2":
            return booksim2_router(head, packet_flits=packet), f"BookSim2 t={head}"
        case "noxim":
            return noxim_router(packet_flits=packet), "Noxim"
    raise BadInput(f"unknown simulator {row['simulator']!r}", where=row.where, allowed="booksim2, noxim")


def _ring(row: Row) -> list[int]:
    try:
        return [int(node) for node in row["ring"].split()]
    except ValueError as error:
        raise BadInput(f"ring is {row['ring']!r}", where=row.where, allowed="node ids") from error
