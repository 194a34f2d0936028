"""Energy per byte moved and per FLOP, for machines of which such figures are published.

Dynamic energy only: leakage, refresh, clocks and cooling are left out, as in the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ..common.errors import UsageError, did_you_mean

_PJ: Final = 1e-12
_PJ_PER_BIT: Final = 8e-12
"""One pJ per bit, in J per byte."""

HBM_SEGMENT_J_PER_BYTE: Final[Mapping[str, float]] = MappingProxyType(
    {
        "bank": (0.11 + 0.44) * _PJ_PER_BIT,
        "bank_group": 1.01 * _PJ_PER_BIT,
        "buffer_die": (1.23 + 0.50) * _PJ_PER_BIT,
        "host": 0.30 * _PJ_PER_BIT,
    }
)
"""The way of a byte out of HBM in order: row activation (of rows that are read whole) and cell access;
column decoder to bank-group multiplexer; from there through the TSVs; silicon interposer. O'Connor et al.,
Fine-Grained DRAM (MICRO 2017), as split in AttAcc (scale-snu/attacc_simulator src/config.py). O'Connor's
average of GPU applications, 3.92 pJ/bit, has 1.21 for activations, because their rows are read in part."""

REXPERT_HBM_J_PER_BYTE: Final = 4.00 * _PJ
"""HBM as ReXpert counts it (Table VII), twenty times its ReRAM. O'Connor has 3.92 pJ per bit, eight times
as much; take `HBM_SEGMENT_J_PER_BYTE` where ReXpert is not what is compared with."""


@dataclass(frozen=True)
class Energy:
    """Energy of some work and its parts."""

    read_j: float
    compute_j: float
    link_j: float

    @property
    def total_j(self) -> float:
        """Sum of the parts."""
        return self.read_j + self.compute_j + self.link_j


@dataclass(frozen=True, kw_only=True)
class EnergyModel:
    """What bytes and FLOP cost on one kind of machine; `sources` by field name."""

    read_j_per_byte: float
    """From memory to the multipliers."""
    compute_j_per_flop: float
    link_j_per_byte: float
    """To or from the next device: GPU, host or die."""
    sources: Mapping[str, str]

    def energy(self, *, read_bytes: float, flop: float, link_bytes: float = 0.0) -> Energy:
        """Return the energy of reading, computing and exchanging that much."""
        return Energy(
            read_j=read_bytes * self.read_j_per_byte,
            compute_j=flop * self.compute_j_per_flop,
            link_j=link_bytes * self.link_j_per_byte,
        )


def hbm_j_per_byte(reach: str) -> float:
    """Return J per byte read from HBM as far as "bank", "bank_group", "buffer_die" or "host".

    Raises UsageError for any other `reach`.
    """
    segments = list(HBM_SEGMENT_J_PER_BYTE)
    if reach not in segments:
        raise UsageError(f"HBM has no {reach!r}", fix=did_you_mean(str(reach), segments))
    return sum(HBM_SEGMENT_J_PER_BYTE[name] for name in segments[: segments.index(reach) + 1])


def noc_hop_j_per_byte(link_mm: float) -> float:
    """Return J per byte and hop of an on-chip router and `link_mm` of wire.

    Router: write and read of an 8-deep buffer and the crossbar, 64-bit flits; wire: 48.8 fJ per bit and mm
    (davidepatti/noxim bin/power.yaml). Routing and arbitration of head flits are below 3 % of it.
    """
    router_j = (2.08 + 1.58 + 0.40) * _PJ / 8
    return router_j + link_mm * 0.0488 * _PJ_PER_BIT


GPU_HBM: Final = EnergyModel(
    read_j_per_byte=hbm_j_per_byte("host"),
    compute_j_per_flop=0.32 / 2 * _PJ,
    link_j_per_byte=1.3 * _PJ_PER_BIT,
    sources=MappingProxyType(
        {
            "read_j_per_byte": "3.59 pJ/bit: O'Connor et al. (MICRO 2017), as in AttAcc src/config.py",
            "compute_j_per_flop": "AttAcc src/config.py: 0.32 pJ per FP16 multiply-add",
            "link_j_per_byte": "1.3 pJ/bit of NVLink-C2C (ISSCC 2023), as in AttAcc; SerDes cost 5.5 pJ/bit",
        }
    ),
)
"""A GPU that reads HBM; caches and registers are left out."""

HBM_PIM: Final = EnergyModel(
    read_j_per_byte=hbm_j_per_byte("bank"),
    compute_j_per_flop=0.32 / 2 * _PJ,
    link_j_per_byte=hbm_j_per_byte("host") - hbm_j_per_byte("bank"),
    sources=MappingProxyType(
        {
            "read_j_per_byte": "0.55 pJ/bit: O'Connor et al. (MICRO 2017), as in AttAcc src/config.py",
            "compute_j_per_flop": "AttAcc src/config.py: 0.32 pJ per FP16 multiply-add",
            "link_j_per_byte": "3.04 pJ/bit from bank to host: O'Connor et al. (MICRO 2017), as in AttAcc",
        }
    ),
)
"""HBM with a processing unit per bank; its link is the way to the host."""

REXPERT: Final = EnergyModel(
    read_j_per_byte=0.20 * _PJ,
    compute_j_per_flop=0.4 * _PJ,
    link_j_per_byte=0.5 * _PJ_PER_BIT,
    sources=MappingProxyType(
        {
            "read_j_per_byte": "ReXpert Tables VII and XII: ReRAM read",
            "compute_j_per_flop": "ReXpert Table XII: RTL synthesis at 12 nm, FP8",
            "link_j_per_byte": "ReXpert Table XII: UCIe standard package, 0.5 pJ/bit at 16 GT/s",
        }
    ),
)
"""A near-memory die of ReXpert; its link is the one between dies."""
