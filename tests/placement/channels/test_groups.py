"""The catalogue of channel groups."""

from __future__ import annotations

import pytest

from moeplan.placement.channels.groups import tiles

from .instances import grid, hub


def test_tiles_of_the_4x8_mesh():
    """Squarest shapes whose sides divide the mesh: 1x1, 1x2, 2x2, 2x4, 4x4, 4x8; 32 + 16 + 8 + 4 + 2 + 1.

    Each in the order of a ring of single hops: 2 x 4 goes along the upper row and back along the lower;
    4 x 4 is a comb whose first column is the way home.
    """
    groups = tiles(grid(4, 8), 32)
    assert groups.factors == (1, 2, 4, 8, 16, 32)
    assert len(groups) == 63
    assert groups.sites_of(groups.of_factor(4)[0]).tolist() == [0, 1, 9, 8]
    assert groups.sites_of(groups.of_factor(8)[1]).tolist() == [4, 5, 6, 7, 15, 14, 13, 12]
    assert groups.sites_of(groups.of_factor(16)[1])[:5].tolist() == [4, 5, 6, 7, 15]


def test_tiles_of_an_odd_mesh():
    assert tiles(grid(3, 5), 15).factors == (1, 3, 5, 15)


def test_runs_where_there_is_no_grid():
    groups = tiles(hub(6), 6)
    assert groups.factors == (1, 2, 3, 6)
    assert groups.sites_of(groups.of_factor(2)[2]).tolist() == [4, 5]


def test_factors_stop_at_the_largest():
    assert tiles(grid(4, 8), 7).factors == (1, 2, 4)


@pytest.mark.parametrize("topology", [grid(4, 8), grid(3, 5), grid(1, 7), hub(12)], ids=str)
def test_groups_of_a_factor_partition_the_sites(topology):
    groups = tiles(topology, topology.sites)
    for factor in groups.factors:
        held = [int(site) for group in groups.of_factor(factor) for site in groups.sites_of(group)]
        assert sorted(held) == list(range(topology.sites))


def test_find_is_the_inverse_of_sites_of():
    groups = tiles(grid(2, 4), 8)
    for group in range(len(groups)):
        assert groups.find(tuple(int(site) for site in groups.sites_of(group))) == group
    assert groups.find((0, 3)) is None
    assert groups.find((1, 0)) is None
    assert groups.find((0, 1, 2)) is None
