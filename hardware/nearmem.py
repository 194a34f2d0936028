"""Near-memory cores: weights stay in ReRAM arrays, and digital units beside the arrays multiply (ReXpert).

A unit streams its array one column per `column_s` past a tile of a few tokens. Units form cores that share
read-outs, cores form dies, dies packages, packages nodes; every level scales memory, read bandwidth and
compute by its number of units. Section and table numbers are ReXpert's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..common.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .topology import Topology

    Array = np.ndarray[Any, np.dtype[Any]]


class Folding(NamedTuple):
    """How one feed-forward block lies in units, and how long they stream it."""

    shards: int
    """Units that hold a part of the block: its tensor-parallel degree."""
    slices: int
    """Slices of the inner width in the fullest unit."""
    columns: int
    """Columns used in the fullest unit."""
    utilization: float
    """Share of that unit's columns."""
    seconds: float
    """One pass over the block: t_layer of equation 3."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The smallest weight store that can be read, with its processing element (section IV-B).

    Weights are FP8: one byte each, block scales not counted. Raises UsageError where a size is not positive.
    """

    columns: int
    """Depth of the array."""
    column_bytes: int
    """Weights read at a time."""
    column_s: float
    """Time per column."""
    tile_tokens: int
    """Tokens w that share a column while it streams by."""
    flop_per_s: float

    def __post_init__(self) -> None:
        for name in ("columns", "column_bytes", "column_s", "tile_tokens", "flop_per_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} of a unit must be more than 0, not {getattr(self, name)!r}")

    @property
    def memory_bytes(self) -> float:
        """Weights that the array holds."""
        return float(self.columns * self.column_bytes)

    @property
    def read_bytes_per_s(self) -> float:
        """Local read bandwidth."""
        return self.column_bytes / self.column_s

    @property
    def balance_flop_per_byte(self) -> float:
        """FLOP per weight byte at which the roofline bends."""
        return self.flop_per_s / self.read_bytes_per_s

    def roofline_cap(self, tokens: int) -> float:
        """Return the share of the peak that a tile of `tokens` tokens can reach.

        Each byte of weights meets 2 FLOP per token: min(1, 2 w / balance), section IV-D.
        """
        return min(1.0, 2 * tokens / self.balance_flop_per_byte)

    def fold(self, hidden: int, intermediate: int, *, matrices: int = 3) -> Folding:
        """Return how a feed-forward block of width `intermediate` inside `hidden` lies in units.

        It is cut into slices of `column_bytes` inner elements; a slice takes `hidden` columns per matrix
        (3d with a gate, section V-D) and is not cut further. Raises UsageError where no slice fits.
        """
        slice_columns = matrices * hidden
        fit = self.columns // slice_columns
        if fit == 0:
            raise UsageError(
                f"a slice of {matrices} x {hidden} columns does not fit into {self.columns} columns",
                fix="use a deeper array",
            )
        slices = math.ceil(intermediate / self.column_bytes)
        shards = math.ceil(slices / fit)
        fullest = math.ceil(slices / shards)
        columns = fullest * slice_columns
        return Folding(shards, fullest, columns, columns / self.columns, columns * self.column_s)


@dataclass(frozen=True)
class Units:
    """`count` equal units and what they do together."""

    unit: Unit
    count: int

    @property
    def memory_bytes(self) -> float:
        """Weights held."""
        return self.count * self.unit.memory_bytes

    @property
    def read_bytes_per_s(self) -> float:
        """Sum of the local read ports; no interconnect limits it."""
        return self.count * self.unit.read_bytes_per_s

    @property
    def flop_per_s(self) -> float:
        """Peak at FP8."""
        return self.count * self.unit.flop_per_s

    @property
    def bytes_per_flop(self) -> float:
        """Read bandwidth over peak; the same at every level (Table III)."""
        return self.read_bytes_per_s / self.flop_per_s

    def roofline_s(self, read_bytes: float, flop: float) -> float:
        """Return the longer of reading and computing, where every unit has its share (section VI)."""
        return max(read_bytes / self.read_bytes_per_s, flop / self.flop_per_s)


@dataclass(frozen=True, kw_only=True)
class Core:
    """side x side units on a mesh that can carry weights: the bound of sharing (section IV-C)."""

    unit: Unit
    side: int
    link_bytes_per_s: float
    """One link of the core mesh."""
    multicast_bytes_per_s: float
    """All read-outs together that the mesh carries at a time."""

    @property
    def units(self) -> Units:
        """Its units, which are also its groups G of processing elements."""
        return Units(self.unit, self.side**2)


@dataclass(frozen=True, kw_only=True)
class Die:
    """rows x cols units, cut into cores that a mesh connects."""

    core: Core
    rows: int
    cols: int
    link_bytes_per_s: float
    """One link of the mesh between cores."""
    hop_latency_s: float = 0.0
    """One hop of that mesh."""

    @property
    def units(self) -> Units:
        """All units of the die."""
        return Units(self.core.unit, self.rows * self.cols)

    @property
    def cores(self) -> int:
        """Number of cores N; where the side does not divide the die, the last one is not full."""
        return math.ceil(self.rows * self.cols / self.core.side**2)

    @property
    def is_tiled(self) -> bool:
        """Whether cores cover the die without remainder."""
        return self.rows % self.core.side == 0 == self.cols % self.core.side

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cores. Raises UsageError where cores do not tile the die."""
        side = self.core.side
        if not self.is_tiled:
            raise UsageError(f"cores of side {side} do not tile {self.rows} x {self.cols} units")
        return self.rows // side, self.cols // side

    def network(self) -> Topology:
        """Return the mesh between cores. Raises UsageError where cores do not tile the die."""
        from .topology import mesh

        return mesh(
            *self.grid, link_bandwidth_bytes_per_s=self.link_bytes_per_s, hop_latency_s=self.hop_latency_s
        )

    def dies_for(self, weight_bytes: float) -> int:
        """Return the fewest dies whose memory holds `weight_bytes`, unused columns not counted."""
        return math.ceil(weight_bytes / self.units.memory_bytes)

    def pool(self, dies: int) -> Units:
        """Return the units of `dies` dies."""
        return Units(self.core.unit, dies * self.units.count)


@dataclass(frozen=True, kw_only=True)
class Package:
    """Dies side by side on one substrate."""

    die: Die
    dies: int
    die_link_bytes_per_s: float
    """Between dies, per die."""

    @property
    def units(self) -> Units:
        """All units of the package."""
        return self.die.pool(self.dies)


@dataclass(frozen=True, kw_only=True)
class Node:
    """Packages on one board."""

    package: Package
    packages: int
    die_link_bytes_per_s: float
    """Out of the package, per die."""

    @property
    def units(self) -> Units:
        """All units of the node."""
        return self.package.die.pool(self.packages * self.package.dies)

    def resized(self, *, side: int | None = None, columns: int | None = None) -> Node:
        """Return the same hierarchy with other cores, or arrays of another depth."""
        core = self.package.die.core
        unit = replace(core.unit, columns=columns or core.unit.columns)
        core = replace(core, unit=unit, side=side or core.side)
        return replace(self, package=replace(self.package, die=replace(self.package.die, core=core)))


@dataclass(frozen=True)
class Pool:
    """Dies that hold a model's experts, and GPUs beside them that run its attention.

    `dies` and `gpus` say how many the machine has; 0 where it leaves the number open. GPUs come in
    fractions where they are matched to the dies' peak (ReXpert Table V).
    """

    node: Node
    dies: int = 0
    gpus: float = 0.0

    @property
    def die(self) -> Die:
        """The die that it is made of."""
        return self.node.package.die


def rexpert(*, side: int = 4, columns: int = 32 * 1024) -> Node:
    """Return ReXpert's hierarchy with cores of `side` x `side` units and arrays `columns` deep.

    Raises UsageError where `side` is not 1 to 16 or `columns` not positive.
    """
    if not 1 <= side <= 16:
        raise UsageError(f"no core of side {side}", allowed="1 to 16; ReXpert compares 2, 4, 6 and 8")
    unit = Unit(
        columns=columns,  # section V-D: 32K columns are 4 MiB
        column_bytes=128,  # section IV-B: rows of 128 E4M3 elements
        column_s=2.5e-9,  # equation 3; 16 macros x 128 bit x 200 MHz = 51.2 GB/s
        tile_tokens=4,  # section IV-B
        flop_per_s=400e9,  # Table III; 4 tokens x 128 lanes x 400 MHz are 409.6, which it rounds
    )
    core = Core(
        unit=unit,
        side=side,
        link_bytes_per_s=64e9,  # Table IV: 512 bit at 1 GHz
        multicast_bytes_per_s=256e9,  # Table IV: five streams; 204.8 GB/s is the 99th percentile
    )
    # Section IV-B; Table IV; three cycles at 1 GHz are BookSim2's shortest pipeline, ReXpert gives none.
    die = Die(core=core, rows=16, cols=20, link_bytes_per_s=64e9, hop_latency_s=3 / 1e9)
    package = Package(die=die, dies=4, die_link_bytes_per_s=96e9)  # Tables III and IV
    return Node(package=package, packages=8, die_link_bytes_per_s=34e9)  # Tables III and IV


class Part(NamedTuple):
    """A row of a die's budget."""

    name: str
    area_mm2: float
    power_w: float
    source: str


REXPERT_DIE_BUDGET = (
    Part("ReRAM array", 268.0, 3.3, "Table XII: reported 1T1R macro density at 12 nm; 0.2 pJ/B read"),
    Part("PE and scheduler", 82.0, 19.5, "Table XII: RTL synthesis at 12 nm, 0.4 pJ/FLOP at MFU 0.38"),
    Part("core mesh", 35.6, 19.0, "Table XII: BookSim2 and DSENT scaled to 12 nm, 512 bit"),
    Part("die NoC", 2.2, 1.8, "Table XII: BookSim2 and DSENT scaled to 12 nm, 512 bit"),
    Part("D2D and other IO", 12.0, 3.0, "Table XII: UCIe PHY scaled to 12 nm, 130 GB/s"),
)
"""Area and power of the reference die: cores of side 4, arrays of 32K columns, 20 x 20 mm."""


class Mfu(NamedTuple):
    """Where the peak goes: equation 2."""

    rounds: int
    """Passes on the critical path, rho."""
    ideal: float
    """T / (J w): how full the issued tiles are."""
    occupancy: float
    """J / (rho N G): how many groups have a tile while the slowest still works."""

    @property
    def actual(self) -> float:
        """T / (rho N G w): ideal times occupancy."""
        return self.ideal * self.occupancy


def tiles(tokens: ArrayLike, width: int) -> Array:
    """Return as int64 the jobs of up to `width` tokens that queues of `tokens` issue."""
    jobs: Array = -(-np.asarray(tokens, dtype=np.int64) // width)
    return jobs


def mfu(tokens: int, jobs: ArrayLike, width: int, *, broadcast: bool) -> Mfu:
    """Return the MFU of `tokens` tokens in `jobs` [N, G] jobs, queued by core and unit.

    With `broadcast` idle groups take jobs of their core's other units: max over cores of ceil(jobs / G)
    rounds; else each unit works off its own queue (section IV-C). Raises UsageError where there is no
    job, or more tokens than the jobs have room for.
    """
    queued = np.asarray(jobs, dtype=np.int64)
    issued = int(queued.sum())
    if queued.ndim != 2 or not 0 < tokens <= issued * width:
        raise UsageError(
            f"{tokens} tokens do not fit {issued} jobs of {width}", allowed="jobs of shape [N, G]"
        )
    in_core = -(-queued.sum(axis=1) // queued.shape[1])
    rounds = int(in_core.max() if broadcast else queued.max())
    return Mfu(rounds, tokens / (issued * width), issued / (rounds * queued.size))
