"""The file format of platforms; the presets lie beside it.

A file has the sections topology, site, pim, sram_pim, gpu and nearmem. Every value is a scalar or
{value: ..., source: ...}; the presets give a source for each. Keys are the names of the Python fields
without their unit ("t_rcd: 19.4 ns" is `Pim.t_rcd_s`), because a file writes the unit with the value.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator

from ...common.errors import UsageError
from ...common.spec import Spec, whole, within
from .. import units
from ..nearmem import Core, Die, Node, Package, Pool, Unit
from ..pim import MAX_BANKS
from ..topology import MAX_SITES, Topology, fully_connected, gpu_cluster, mesh, ring, star, torus


def _quantity(dimension: units.Dimension, low: float, high: float, unit: str, *, zero: bool = False) -> Any:
    """Return the check of a text such as "1.2 us": `low` to `high` in SI, or `zero` where that is allowed."""

    def convert(value: object) -> float:
        try:
            given = units.parse(value, dimension)
        except UsageError as error:
            raise ValueError(f"{error.what}; write it {error.allowed}") from None
        if not (low <= given <= high or (zero and given == 0.0)):
            allowed = f"{'0, or ' if zero else ''}{low:g} {unit} to {high:g} {unit}"
            raise ValueError(f"must be {dimension.name} of {allowed}")
        return given

    return BeforeValidator(convert)


# Ranges are far wider than any machine, and narrow enough that sums and products stay numbers.
Count = Annotated[int, whole(1, 1_000_000)]
Sites = Annotated[int, whole(1, MAX_SITES)]
Banks = Annotated[int, whole(1, MAX_BANKS)]
Side = Annotated[int, whole(1, math.isqrt(MAX_SITES))]
UnitsAlong = Annotated[int, whole(1, 1_000)]
Columns = Annotated[int, whole(1, 1_000_000_000)]
Seconds = Annotated[float, _quantity(units.TIME, 1e-15, 1e3, "s", zero=True)]
Interval = Annotated[float, _quantity(units.TIME, 1e-15, 1e3, "s")]
Bytes = Annotated[float, _quantity(units.BYTES, 1.0, 1e18, "B", zero=True)]
WholeBytes = Annotated[int, _quantity(units.BYTES, 1.0, 1e9, "B")]
BytesPerS = Annotated[float, _quantity(units.BYTES_PER_S, 1.0, 1e18, "B/s")]
FlopPerS = Annotated[float, _quantity(units.FLOP_PER_S, 1.0, 1e21, "FLOP/s")]
Hertz = Annotated[float, _quantity(units.HERTZ, 1.0, 1e15, "Hz")]
Efficiency = Annotated[float, within(1e-6, 1)]


class TopologySpec(Spec, ABC):
    """A section topology; its kind decides which keys it has."""

    kind: str

    @abstractmethod
    def build(self) -> Topology:
        """Return the topology. Raises UsageError where values contradict each other."""


class GridSpec(TopologySpec):
    """Topologies mesh and torus: sites in rows and columns."""

    rows: Sites
    cols: Sites
    link_bandwidth: BytesPerS
    hop_latency: Seconds
    duplex: str = "full"
    routing: str = "xy"

    def build(self) -> Topology:  # noqa: D102
        make = mesh if self.kind == "mesh" else torus
        return make(
            self.rows,
            self.cols,
            link_bandwidth_bytes_per_s=self.link_bandwidth,
            hop_latency_s=self.hop_latency,
            duplex=self.duplex,
            routing=self.routing,
        )


class FlatSpec(TopologySpec):
    """Topologies ring, fully_connected and star (around a switch): sites in no grid."""

    sites: Sites
    link_bandwidth: BytesPerS
    hop_latency: Seconds
    duplex: str = "full"

    def build(self) -> Topology:  # noqa: D102
        makers: dict[str, Callable[..., Topology]] = {
            "ring": ring,
            "fully_connected": fully_connected,
            "star": star,
        }
        return makers[self.kind](
            self.sites,
            link_bandwidth_bytes_per_s=self.link_bandwidth,
            hop_latency_s=self.hop_latency,
            duplex=self.duplex,
        )


class ClusterSpec(TopologySpec):
    """Topology gpu_cluster: servers of GPUs behind NVLink switches, joined by a network."""

    nodes: Sites
    gpus_per_node: Sites
    nvlink_bandwidth: BytesPerS
    nvlink_latency: Seconds
    network_bandwidth: BytesPerS | None = None
    network_latency: Seconds = 0.0

    def build(self) -> Topology:  # noqa: D102
        return gpu_cluster(
            self.nodes,
            self.gpus_per_node,
            nvlink_bandwidth_bytes_per_s=self.nvlink_bandwidth,
            nvlink_latency_s=self.nvlink_latency,
            network_bandwidth_bytes_per_s=self.network_bandwidth,
            network_latency_s=self.network_latency,
        )


TOPOLOGIES: dict[str, type[TopologySpec]] = {
    "mesh": GridSpec,
    "torus": GridSpec,
    "ring": FlatSpec,
    "fully_connected": FlatSpec,
    "star": FlatSpec,
    "gpu_cluster": ClusterSpec,
}


class SiteSpec(Spec):
    """What one site of the topology holds."""

    memory: Bytes
    pseudo_channels: Count
    """Lock-step groups; each is a Pim."""


class RefreshSpec(Spec):
    """Fields of refresh.Refresh."""

    rule: str
    interval: Interval
    cycle: Seconds
    guard: Seconds | None = None


class PimSpec(Spec):
    """Fields of pim.Pim; what is left out takes the default there."""

    ranks: Banks
    bank_groups: Banks
    banks_per_bank_group: Banks
    row: WholeBytes
    column: WholeBytes
    pu_lanes: Count
    pu_clock: Hertz
    mac_power: Seconds | None = None
    t_ccd: Seconds
    t_rcd: Seconds
    t_rp: Seconds
    t_ras: Seconds
    t_rtp: Seconds
    t_faw: Seconds | None = None
    command: Seconds | None = None
    activation: str | None = None
    faw_banks: Banks | None = None
    precharge: str | None = None
    row_policy: str | None = None
    layout: str | None = None
    input_write: Seconds
    input_buffer: Bytes | None = None
    input_from_bank: bool | None = None
    input_turn: Seconds | None = None
    activate_under_input: bool | None = None
    accumulators: Count | None = None
    outputs_per_read: Count | None = None
    pu_result: WholeBytes | None = None
    read_width: WholeBytes
    result_read: Seconds
    read_under_row_turn: bool | None = None
    mode_switch: Seconds | None = None
    session: Seconds | None = None
    dual_row_buffer: bool | None = None
    refresh: RefreshSpec | None = None


class SramPimSpec(Spec):
    """Fields of sram_pim.SramPim."""

    macro_groups: Count
    group_pus: Count
    pu_peak: FlopPerS
    clock: Hertz
    vector_lanes: Count
    reduce_lanes: Count
    port: BytesPerS


class GpuSpec(Spec):
    """Fields of gpu.Gpu; what is left out takes the default there."""

    memory_bandwidth: BytesPerS
    memory: Bytes
    peak: dict[str, FlopPerS]
    nvlink: BytesPerS
    memory_efficiency: Efficiency | None = None
    compute_efficiency: Efficiency | None = None
    kernel: Seconds | None = None


class UnitSpec(Spec):
    """Fields of nearmem.Unit: how deep the array is, and one column of it."""

    columns: Columns
    column: WholeBytes
    column_time: Interval
    tile_tokens: Count
    peak: FlopPerS


class CoreSpec(Spec):
    """Fields of nearmem.Core: side x side units."""

    side: Side
    link: BytesPerS
    multicast: BytesPerS


class DieSpec(Spec):
    """Fields of nearmem.Die: rows x cols units."""

    rows: UnitsAlong
    cols: UnitsAlong
    link: BytesPerS
    hop_latency: Seconds


class PackageSpec(Spec):
    """Fields of nearmem.Package."""

    dies: Count
    die_link: BytesPerS


class NodeSpec(Spec):
    """Fields of nearmem.Node."""

    packages: Count
    die_link: BytesPerS


class PoolSpec(Spec):
    """How many dies there are for experts, and how many GPUs for attention; left out: as many as needed."""

    dies: Count | None = None
    gpus: Annotated[float, within(1e-3, 1_000_000)] | None = None


class NearMemorySpec(Spec):
    """Section nearmem: near-memory dies, level by level."""

    unit: UnitSpec
    core: CoreSpec
    die: DieSpec
    package: PackageSpec
    node: NodeSpec
    pool: PoolSpec = PoolSpec()

    def build(self) -> Pool:
        """Return the hierarchy. Raises UsageError where values contradict each other."""
        unit = Unit(
            columns=self.unit.columns,
            column_bytes=self.unit.column,
            column_s=self.unit.column_time,
            tile_tokens=self.unit.tile_tokens,
            flop_per_s=self.unit.peak,
        )
        core = Core(
            unit=unit,
            side=self.core.side,
            link_bytes_per_s=self.core.link,
            multicast_bytes_per_s=self.core.multicast,
        )
        if core.units.count > self.die.rows * self.die.cols:
            raise UsageError(
                f"a core of side {core.side} is larger than a die of {self.die.rows} x {self.die.cols} units"
            )
        die = Die(
            core=core,
            rows=self.die.rows,
            cols=self.die.cols,
            link_bytes_per_s=self.die.link,
            hop_latency_s=self.die.hop_latency,
        )
        package = Package(die=die, dies=self.package.dies, die_link_bytes_per_s=self.package.die_link)
        node = Node(package=package, packages=self.node.packages, die_link_bytes_per_s=self.node.die_link)
        return Pool(node, self.pool.dies or 0, self.pool.gpus or 0.0)


class PlatformSpec(Spec):
    """A whole file, after sources and base have been taken out. The kind decides the topology's keys."""

    topology: dict[str, Any] | None = None
    site: SiteSpec | None = None
    pim: PimSpec | None = None
    sram_pim: SramPimSpec | None = None
    gpu: GpuSpec | None = None
    nearmem: NearMemorySpec | None = None
