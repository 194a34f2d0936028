from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.hardware.nearmem import REXPERT_DIE_BUDGET, Folding, Mfu, Unit, Units, mfu, rexpert, tiles

MIB, GIB = 2.0**20, 2.0**30

# Round numbers: 100 columns of 10 bytes, one per second; 4 FLOP per byte at the bend.
TOY = Unit(columns=100, column_bytes=10, column_s=1.0, tile_tokens=2, flop_per_s=40.0)


# --------------------------------------------------------------------------------------- hierarchy


def test_levels_by_hand() -> None:
    # Table III: 32768 x 128 B = 4 MiB; 128 B / 2.5 ns = 51.2 GB/s; x 16, x 320, x 1280, x 10240.
    node = rexpert()
    levels = [
        Units(node.package.die.core.unit, 1),
        node.package.die.core.units,
        node.package.die.units,
        node.package.units,
        node.units,
    ]
    assert [level.count for level in levels] == [1, 16, 320, 1280, 10240]
    assert [level.memory_bytes for level in levels] == [4 * MIB, 64 * MIB, 1.25 * GIB, 5 * GIB, 40 * GIB]
    bandwidth = [51.2e9, 819.2e9, 16.384e12, 65.536e12, 524.288e12]
    assert [level.read_bytes_per_s for level in levels] == pytest.approx(bandwidth)
    assert [level.flop_per_s for level in levels] == [400e9, 6.4e12, 128e12, 512e12, 4.096e15]
    assert [level.bytes_per_flop for level in levels] == pytest.approx([0.128] * 5)


@pytest.mark.parametrize(("side", "cores", "groups"), [(2, 80, 4), (4, 20, 16), (6, 9, 36), (8, 5, 64)])
def test_cores_and_groups_of_a_die(side: int, cores: int, groups: int) -> None:
    # 320 / side^2, rounded up: 8.9 cores of side 6.
    die = rexpert(side=side).package.die
    assert (die.cores, die.core.units.count) == (cores, groups)


def test_cores_tile_the_die_as_a_grid() -> None:
    assert rexpert().package.die.grid == (4, 5)
    with pytest.raises(UsageError, match="side 6 do not tile 16 x 20"):
        _ = rexpert(side=6).package.die.grid


def test_network_is_the_mesh_of_cores() -> None:
    network = rexpert(side=2).package.die.network()
    assert (network.rows, network.cols, network.links) == (8, 10, 2 * (8 * 9 + 7 * 10))
    assert set(network.link_latency_s.tolist()) == {3 / 1e9}
    assert not rexpert(side=6).package.die.is_tiled
    with pytest.raises(UsageError, match="side 6"):
        rexpert(side=6).package.die.network()


def test_resizing_changes_cores_and_depth_only() -> None:
    assert rexpert().resized(side=2, columns=16384) == rexpert(side=2, columns=16384)
    assert rexpert().resized() == rexpert()


def test_dies_and_pools() -> None:
    die = rexpert().package.die
    # 30.1 GiB / 1.25 GiB = 24.1; exactly two dies' worth needs two.
    assert die.dies_for(30.1 * GIB) == 25
    assert die.dies_for(2.5 * GIB) == 2
    assert die.pool(25).memory_bytes == 31.25 * GIB
    assert die.pool(25).read_bytes_per_s == pytest.approx(409.6e12)
    # 4096 B at 4.096 PB/s against 1 GFLOP at 3.2 PFLOPS: 0.3125 us computing; 1 GB: 2.44 us reading.
    assert die.pool(25).roofline_s(4096.0, 1e9) == pytest.approx(0.3125e-6)
    assert die.pool(25).roofline_s(1e9, 1e9) == pytest.approx(2.4414e-6, rel=1e-4)


def test_budget_of_the_die() -> None:
    # 268 + 82 + 35.6 + 2.2 + 12 and 3.3 + 19.5 + 19 + 1.8 + 3.
    assert sum(part.area_mm2 for part in REXPERT_DIE_BUDGET) == pytest.approx(399.8)
    assert sum(part.power_w for part in REXPERT_DIE_BUDGET) == pytest.approx(46.6)
    assert all("Table XII" in part.source for part in REXPERT_DIE_BUDGET)


@pytest.mark.parametrize("side", [0, 17])
def test_impossible_sides_are_refused(side: int) -> None:
    with pytest.raises(UsageError, match="side"):
        rexpert(side=side)


def test_a_unit_without_columns_is_refused() -> None:
    with pytest.raises(UsageError, match="columns"):
        rexpert(columns=0)


# ------------------------------------------------------------------------------ tiles and folding


def test_roofline_cap() -> None:
    # Section IV-D: balance 400 / 51.2 = 7.8125, so 2/7.8125, 4/7.8125, and 8/7.8125 capped at one.
    unit = rexpert().package.die.core.unit
    assert unit.balance_flop_per_byte == pytest.approx(7.8125)
    assert [unit.roofline_cap(w) for w in (1, 2, 4)] == pytest.approx([0.256, 0.512, 1.0])
    assert unit.roofline_cap(unit.tile_tokens) == 1.0


def test_folding_by_hand() -> None:
    # 3 x 8 = 24 columns per slice of 10; 100 columns hold four. 35 inner elements are four slices: one
    # unit, 96 columns. 95 are ten slices: three units, the fullest with four.
    assert TOY.fold(8, 35) == Folding(1, 4, 96, 0.96, 96.0)
    assert TOY.fold(8, 95) == Folding(3, 4, 96, 0.96, 96.0)
    # Without a gate 16 columns per slice; six fit; ten slices: two units of five.
    assert TOY.fold(8, 95, matrices=2) == Folding(2, 5, 80, 0.8, 80.0)
    with pytest.raises(UsageError, match="does not fit into 100 columns"):
        TOY.fold(34, 10)


def test_array_depth() -> None:
    # Section V-D: a slice of 128 costs 3d columns. Width 512 in 2048: 4 x 6144 = 24576 columns, 61.44 us;
    # at 16K columns two slices fit, 30.72 us. 1024 in 4096: 2 of 8 slices per unit, four shards; at 16K
    # eight, at 48K two and twice the time. 2048 in 6144: 18432 columns a slice, one per unit, 16 shards.
    def fold(hidden: int, intermediate: int, kilo: int) -> tuple[int, float]:
        folding = rexpert(columns=kilo * 1024).package.die.core.unit.fold(hidden, intermediate)
        return folding.shards, folding.seconds * 1e6

    assert fold(2048, 512, 32) == (1, pytest.approx(61.44))
    assert fold(2048, 512, 16) == (2, pytest.approx(30.72))
    assert fold(4096, 1024, 32) == (4, pytest.approx(61.44))
    assert fold(4096, 1024, 16) == (8, pytest.approx(30.72))
    assert fold(4096, 1024, 48) == (2, pytest.approx(122.88))
    assert fold(6144, 2048, 32) == (16, pytest.approx(46.08))
    assert fold(6144, 2048, 48) == (8, pytest.approx(92.16))
    with pytest.raises(UsageError, match="deeper"):
        fold(6144, 2048, 16)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 33), st.integers(1, 500), st.integers(1, 200), st.integers(2, 3))
def test_folding_holds_everything(hidden: int, intermediate: int, more: int, matrices: int) -> None:
    folding = TOY.fold(hidden, intermediate, matrices=matrices)
    # Every byte has a place, no unit overflows, and one unit fewer would.
    assert folding.shards * folding.columns * TOY.column_bytes >= matrices * hidden * intermediate
    assert folding.columns <= TOY.columns
    assert (
        folding.shards == 1 or (folding.shards - 1) * (TOY.columns // (matrices * hidden)) * 10 < intermediate
    )
    # A wider block never takes fewer units, and a deeper array never more.
    assert TOY.fold(hidden, intermediate + more, matrices=matrices).shards >= folding.shards
    deeper = replace(TOY, columns=TOY.columns + more)
    assert deeper.fold(hidden, intermediate, matrices=matrices).shards <= folding.shards


# --------------------------------------------------------------------------------------------- MFU


def test_mfu_of_a_hot_queue() -> None:
    # Section IV-C: 40 tokens beside three queues of one, w = 4: jobs 10, 1, 1, 1. Direct ten rounds,
    # 13 / 40 = 32.5 % occupied; broadcast ceil(13 / 4) = 4 rounds, 13 / 16; tiles 43 / 52 full.
    jobs = tiles([[40, 1, 1, 1]], 4)
    assert jobs.tolist() == [[10, 1, 1, 1]]
    direct, shared = mfu(43, jobs, 4, broadcast=False), mfu(43, jobs, 4, broadcast=True)
    assert direct == Mfu(10, pytest.approx(43 / 52), pytest.approx(0.325))
    assert shared == Mfu(4, pytest.approx(43 / 52), pytest.approx(0.8125))
    assert shared.actual == pytest.approx(43 / 64)


def test_broadcast_stays_inside_a_core() -> None:
    # Two cores of two groups: 5 + 1 jobs take three rounds, 1 + 1 one; 8 of 3 x 4 places are used.
    assert mfu(8, [[5, 1], [1, 1]], 1, broadcast=True) == Mfu(3, 1.0, pytest.approx(8 / 12))


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_mfu_factors_into_fill_and_occupancy(tokens: list[list[int]], width: int) -> None:
    total = sum(map(sum, tokens))
    jobs = tiles(tokens, width)
    if total == 0:
        with pytest.raises(UsageError, match="do not fit"):
            mfu(total, jobs, width, broadcast=True)
        return
    direct, shared = (mfu(total, jobs, width, broadcast=b) for b in (False, True))
    for one in (direct, shared):
        # Equation 2: T / (rho N G w).
        assert one.actual == pytest.approx(total / (one.rounds * jobs.size * width))
        assert 0 < one.ideal <= 1
        assert 0 < one.occupancy <= 1
    assert direct.ideal == shared.ideal
    assert shared.rounds <= direct.rounds


@pytest.mark.parametrize("jobs", [[1, 2], [[0, 0]], [[1, 1]]])
def test_jobs_that_cannot_be_are_refused(jobs: object) -> None:
    with pytest.raises(UsageError, match="do not fit"):
        mfu(9, np.asarray(jobs), 4, broadcast=False)
