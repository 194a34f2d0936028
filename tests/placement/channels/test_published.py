"""SPIMOE's static mapping (3.4.1), step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.placement import Budget, solve
from moeplan.placement.channels.cliques import coactivation_ratio, greedy_cliques, place_cliques
from moeplan.placement.channels.greedy import mixed_tp_placement, recorded_s, uniform_lpt
from moeplan.placement.channels.problem import Decision, draw_steps

from .instances import grid, hub, problem, random_tokens


def test_coactivation_ratio_by_hand():
    """Tokens {0, 1}, {0, 1}, {0, 2} and {2} (its second choice was dropped); expert 3 is never chosen.

    Counts 3, 2, 2, 0. Pairs (0, 1) 2 of min(3, 2) = 1.0; (0, 2) 1 of min(3, 2) = 0.5; (1, 2) none.
    """
    tokens = np.array([[[0, 1], [0, 1]], [[0, 2], [2, -1]]], dtype=np.int16)
    expected = [[0, 1, 0.5, 0], [1, 0, 0, 0], [0.5, 0, 0, 0], [0, 0, 0, 0]]
    assert coactivation_ratio(tokens, 4).tolist() == expected


def ratios(edges: dict[tuple[int, int], float], experts: int) -> np.ndarray:
    ratio = np.zeros((experts, experts))
    for (i, j), value in edges.items():
        ratio[i, j] = ratio[j, i] = value
    return ratio


def test_greedy_cliques_by_hand():
    """The strongest edge is (1, 2). Experts 0 and 3 are adjacent to both, not to each other; 3 is the
    stronger (0.6 + 0.5 against 0.5 + 0.5). Of what is left, (0, 4) is an edge; the edge of 5 is too weak.
    """
    edges = {
        (1, 2): 0.9,
        (0, 1): 0.5,
        (0, 2): 0.5,
        (1, 3): 0.6,
        (2, 3): 0.5,
        (0, 4): 0.5,
        (4, 5): 0.2,
    }
    assert greedy_cliques(ratios(edges, 6), 0.5, 8) == [[1, 2, 3], [0, 4], [5]]
    assert greedy_cliques(ratios(edges, 6), 0.5, 2) == [[1, 2], [0, 4], [3], [5]]
    assert greedy_cliques(ratios(edges, 6), 0.5, 1) == [[0], [1], [2], [3], [4], [5]]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(seed=st.integers(0, 10_000), threshold=st.floats(0.05, 0.9))
def test_cliques_partition_the_experts_and_are_maximal_when_they_are_taken(seed, threshold):
    ratio = np.random.default_rng(seed).random((9, 9))
    ratio = np.triu(ratio, 1) + np.triu(ratio, 1).T
    cliques = greedy_cliques(ratio, threshold, 9)
    assert sorted(expert for clique in cliques for expert in clique) == list(range(9))
    left = set(range(9))
    for clique in cliques:
        left -= set(clique)
        assert all(ratio[i, j] >= threshold for i in clique for j in clique if i != j)
        assert not any(all(ratio[e, i] >= threshold for i in clique) for e in left)


def test_clique_size_sets_the_factor_and_members_do_not_overlap():
    """Eight sites: three members get two sites each (3 * 2 <= 8 < 3 * 4), two get four, one gets all."""
    posed = problem(random_tokens(0, 4, 6, 6, 2), grid(2, 4), 6)
    group_of = place_cliques(posed, [[1, 2, 3], [0, 4], [5]])
    sites = [posed.groups.sites_of(int(g)).tolist() for g in group_of]
    assert [len(held) for held in sites] == [4, 2, 2, 2, 4, 8]
    assert len({*sites[1], *sites[2], *sites[3]}) == 6
    assert sorted(sites[0] + sites[4]) == list(range(8))


def test_the_next_member_of_a_clique_goes_to_the_nearest_of_equally_loaded_groups():
    """1 x 8 mesh, three members on pairs of sites; the first takes (0, 1), the others line up beside it."""
    tokens = np.array([[[0, 1, 2]] * 4 + [[0, 1, -1]] * 2 + [[0, -1, -1]]], dtype=np.int16)
    posed = problem(tokens, grid(1, 8), 3)
    group_of = place_cliques(posed, [[0, 1, 2]])
    assert [posed.groups.sites_of(int(g)).tolist() for g in group_of] == [[0, 1], [2, 3], [4, 5]]


def test_cliques_take_other_factors_where_memory_is_short():
    """Four sites with room for one expert of 1000 bytes each hold four experts split in any way."""
    posed = problem(random_tokens(0, 4, 6, 4, 2), hub(4), 4, room=1.0)
    group_of = place_cliques(posed, [[0, 1], [2], [3]])
    assert posed.check(Decision(group_of)) is None


def test_mixed_tp_by_hand():
    """Two host-attached sites; a token costs 1.2 us unsplit and 0.7 us on each of both.

    Expert 0 with 6 tokens a step: 7.2 us unsplit, 4.2 us on both: both. Expert 1 with 2 tokens, after 4.2
    us everywhere: 4.2 + 2.4 on one, 4.2 + 1.4 on both: both.
    """
    tokens = np.array([[[0]] * 6 + [[1]] * 2], dtype=np.int16)
    posed = problem(tokens, hub(2), 2)
    both = posed.groups.find((0, 1))
    assert mixed_tp_placement(posed).tolist() == [both, both]


def test_mixed_tp_weighs_communication():
    """1 x 2 mesh in row mode, one expert with 10 tokens a step whose home is site 0: 12 us unsplit; on both 7
    us, 10 * 128 ns of all-reduce (two rounds of half a message) and 2 * 4 ns, and a send of 128 bytes per
    token over one of two links, 640 ns: 8.9 us. With messages sixteen times as large those are 20.5 us and
    10.2 us: unsplit on the home site is better.
    """
    tokens = np.zeros((1, 10, 1), dtype=np.int16)
    posed = problem(tokens, grid(1, 2), 1)
    posed.tables.home[:] = 0
    assert mixed_tp_placement(posed).tolist() == [posed.groups.find((0, 1))]
    t = posed.tables
    large = t._replace(token_bytes=16 * t.token_bytes, ring_bytes=16 * t.ring_bytes)
    posed = type(posed)(**{**vars(posed), "tables": large})
    assert mixed_tp_placement(posed).tolist() == [0]


def test_mixed_tp_says_where_memory_is_too_small():
    tokens = np.array([[[0]] * 4 + [[1]] * 4], dtype=np.int16)
    assert mixed_tp_placement(problem(tokens, hub(2), 2, room=0.4)) is None


def test_the_published_procedure_sees_the_recorded_steps_alone():
    """Steps that the objective also counts change nothing; the winner is at most the best candidate's J."""
    tokens = random_tokens(11, 6, 8, 12, 2)
    posed = problem(tokens, grid(2, 4), 12)
    objective = draw_steps(posed.tables, random_tokens(12, 6, 8, 12, 2), 3, 0)
    other = type(posed)(**{**vars(posed), "drawn": objective, "fingerprint": "other"})
    one, two = (
        solve(p, "spimoe", budget=Budget(time_s=None, iterations=500), seed=3) for p in (posed, other)
    )
    assert one.decision == two.decision
    assert one.iterations == 500
    candidates = [
        mixed_tp_placement(posed),
        uniform_lpt(posed),
        solve(posed, "spimoe_cliques").decision.group_of,
    ]
    assert one.cost.total_s <= min(recorded_s(posed, group_of) for group_of in candidates) * (1 + 1e-12)


def test_spimoe_repeats_itself_within_a_budget_of_time():
    posed = problem(random_tokens(1, 4, 8, 8, 2), grid(2, 2), 8)
    one, two = (solve(posed, "spimoe", budget=Budget(time_s=60.0), seed=3) for _ in range(2))
    assert one.decision == two.decision
    assert one.iterations == two.iterations == 30_000


@pytest.mark.parametrize("name", ["ep", "lpt", "mixed_tp", "spimoe_cliques", "spimoe", "auto"])
def test_dropped_experts_are_planned_around(name):
    """A third of the choices dropped, one step empty: every solver answers, and scores what it offers."""
    tokens = random_tokens(2, 5, 9, 12, 3)
    tokens[np.random.default_rng(0).random(tokens.shape) < 0.34] = -1
    tokens[3] = -1
    posed = problem(tokens, grid(2, 4), 12)
    result = solve(posed, name, budget=Budget(time_s=None, iterations=500))
    assert posed.check(result.decision) is None
    assert result.bound.value_s <= result.cost.objective_s
