"""How a layer's experts lie on near-memory dies: shards, cores, and how many experts a core takes.

Every expert is cut along its inner width into `shards` parts; die j stores part j of every expert of a
layer, in the same core (ReXpert section V), so that one placement serves all dies of a layer and the
busiest core of one die is that of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ...common.errors import BadInput, ProvenInfeasible, UsageError

if TYPE_CHECKING:
    from ...hardware.nearmem import Die, Unit
    from ...hardware.platform import Platform
    from ...workload.model import MoEModel

Mode = Literal["direct", "broadcast"]
GIB = 2.0**30
#: Core sides that ReXpert compares (Table X).
SIDES = (2, 4, 6, 8)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The die of one layer, as far as a placement must know it."""

    cores: int
    """Cores N of the die."""
    groups: int
    """Units of a core, which are its groups G of processing elements."""
    mode: Mode
    """`broadcast`: a core's groups share its jobs; `direct`: every unit works off its own queue."""
    width: int
    """Tokens w of a job."""
    core_experts: int
    """Experts of the layer that a core takes."""
    unit_experts: int
    """Experts of the layer that a unit takes."""
    round_s: float
    """Seconds of a round: one pass over a shard."""
    shards: int
    """Dies that share every expert."""
    dies: int
    """Dies that the whole model takes, or those that the machine has."""
    cap: float
    """Share of the peak that jobs of this width can reach."""

    @property
    def places(self) -> int:
        """What experts are placed on: cores where they pool, else units."""
        return self.cores if self.mode == "broadcast" else self.units

    @property
    def servers(self) -> int:
        """Groups that work off the jobs of a place."""
        return self.groups if self.mode == "broadcast" else 1

    @property
    def room(self) -> int:
        """Experts that a place takes."""
        return self.core_experts if self.mode == "broadcast" else self.unit_experts

    @property
    def units(self) -> int:
        """Groups of the die, N * G."""
        return self.cores * self.groups


def pooling_cores(die: Die) -> int:
    """Return the cores of a die: those that tile it, else the grid whose units come nearest to the die's.

    ReXpert compares sides that do not tile 16 x 20 units without saying how many cores they make. With
    the nearest grid (of two equally near the one that fits) these are 3 x 3 of side 6, 324 units, and 2 x 2
    of side 8, 256 units; both give its occupancies (Table X), 5 cores of side 8 would not.
    """
    if die.is_tiled:
        rows, cols = die.grid
        return rows * cols
    side = die.core.side
    grids = [
        (r, c)
        for r in (die.rows // side, die.rows // side + 1)
        for c in (die.cols // side, die.cols // side + 1)
        if r * c > 0
    ]
    rows, cols = min(grids, key=lambda grid: (abs(grid[0] * grid[1] * side**2 - die.units.count), grid))
    return rows * cols


def die_layout(
    model: MoEModel,
    die: Die,
    *,
    mode: Mode = "broadcast",
    width: int | None = None,
    cores: int | None = None,
    dies: int = 0,
) -> Layout:
    """Lay one layer of a model on dies of one kind, each with `cores` cores (default: what `die` has).

    Experts are cut into the fewest shards of which a die's units hold one for every expert. `dies` is how
    many the machine has; 0 leaves it open. Layers that have less than a die each take an equal share of
    the bytes of every core, and of every unit. A share in whole experts is never less than the layer needs on
    average, rounded up: where it rounds up, layers must do so on different cores or units, and where a unit's
    share is less than one expert, the dies hold all layers by bytes only, not in whole experts a unit.

    Raises UsageError for an impossible width, ProvenInfeasible for more experts than units hold or too few
    dies.
    """
    from .rounds import check_width

    unit = die.core.unit
    width = unit.tile_tokens if width is None else width
    check_width(width)
    cores = die.cores if cores is None else cores
    groups = die.core.units.count
    shards, stack, round_s = _shards(model, unit, cores * groups)
    needed = shards * len(model.moe_layers)
    if dies:
        _check_dies(model, die, dies)

    def room(units: int) -> int:
        """Experts of the layer that a place of so many units takes."""
        if not dies or dies >= needed:
            return units * stack
        # In bytes, as ReXpert counts dies.
        share = dies / needed * units * unit.memory_bytes / (expert_bytes(model) / shards)
        return min(units * stack, max(math.ceil(model.experts * units / (cores * groups)), int(share)))

    return Layout(
        cores=cores,
        groups=groups,
        mode=mode,
        width=width,
        core_experts=room(groups),
        unit_experts=room(1),
        round_s=round_s * math.ceil(width / unit.tile_tokens),
        shards=shards,
        dies=dies or needed,
        cap=unit.roofline_cap(width),
    )


def with_side(platform: Platform, side: int | None) -> Platform:
    """Return the platform with cores of `side` x `side` units (None: those it has).

    Raises BadInput where it has no near-memory dies, UsageError where such cores do not tile them.
    """
    pool = platform.nearmem
    if pool is None:
        raise BadInput(
            f"platform {platform.name!r} has no near-memory dies to place experts on",
            fix="take one that has, for example rexpert-die",
        )
    die = pool.die
    wanted = die.core.side if side is None else side
    sides = [s for s in range(1, min(die.rows, die.cols) + 1) if die.rows % s == 0 == die.cols % s]
    if wanted not in sides:
        raise UsageError(
            f"cores of side {wanted} do not tile the {die.rows} x {die.cols} units of a die",
            where="side",
            allowed=f"sides that divide both: {', '.join(map(str, sides))}",
        )
    if wanted == die.core.side:
        return platform
    die = replace(die, core=replace(die.core, side=wanted))
    node = replace(pool.node, package=replace(pool.node.package, die=die))
    return replace(platform, topology=die.network(), nearmem=replace(pool, node=node))


def platform_layout(model: MoEModel, platform: Platform, mode: Mode, width: int | None) -> Layout:
    """Lay one layer of a model on the dies of a platform that `with_side` has returned."""
    pool = platform.nearmem
    assert pool is not None
    return die_layout(model, pool.die, mode=mode, width=width, dies=pool.dies)


def published_die(side: int) -> Die:
    """Return ReXpert's die with cores of one of the sides that it compares.

    Raises UsageError for another side.
    """
    from ...hardware.nearmem import rexpert

    if side not in SIDES:
        die = rexpert().package.die
        raise UsageError(
            f"cores of side {side} do not tile the {die.rows} x {die.cols} units of a die",
            where="side",
            allowed=", ".join(map(str, SIDES)) + " (6 and 8 as ReXpert compares them, on the nearest grid)",
        )
    return rexpert(side=side).package.die


def expert_bytes(model: MoEModel) -> float:
    """Bytes of an expert in a unit, whatever the model's own weights: FP8, one byte each (section IV-B)."""
    return float(model.expert_params)


def _shards(model: MoEModel, unit: Unit, units: int) -> tuple[int, int, float]:
    """Return shards, how many of them share a unit, and the seconds of a pass over one.

    The fewest shards of which `units` units hold one for every expert.
    """
    folding = unit.fold(model.hidden_size, model.expert_intermediate_size, matrices=model.expert_matrices)
    slices = math.ceil(model.expert_intermediate_size / unit.column_bytes)
    slice_columns = model.expert_matrices * model.hidden_size
    for shards in range(folding.shards, slices + 1):
        columns = math.ceil(slices / shards) * slice_columns
        stack = unit.columns // columns
        if stack * units >= model.experts:
            return shards, stack, columns * unit.column_s
    raise ProvenInfeasible(
        f"a layer of {model.name} has {model.experts} experts, more than the {units} units of a die hold",
        where=f"the smallest shard of an expert takes {slice_columns} of a unit's {unit.columns} columns",
        fix="take deeper arrays, or a model with fewer experts a layer",
    )


def _check_dies(model: MoEModel, die: Die, dies: int) -> None:
    """Compare bytes, as ReXpert counts dies: routed and shared experts over the memory of a die."""
    needed_bytes = len(model.moe_layers) * model.experts * expert_bytes(model) + model.shared_params
    least = die.dies_for(needed_bytes)
    if dies < least:
        raise ProvenInfeasible(
            f"{model.name} takes {least} dies, the pool has {dies}",
            where=f"{needed_bytes / GIB:.1f} GiB of experts, {die.units.memory_bytes / GIB:.2f} GiB a die",
            fix=f"take a pool of at least {least} dies",
        )
