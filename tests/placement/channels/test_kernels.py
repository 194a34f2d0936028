"""The kernels against a transfer-by-transfer twin, and every increment against a full evaluation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.placement.channels.anneal_kernel import commit_loads, gains, shift_noc, try_loads
from moeplan.placement.channels.kernels import DRAM, evaluate_steps

from .instances import grid, hub, problem, random_groups, random_tokens, twin_parts


@pytest.mark.parametrize("row_mode", [True, False])
@pytest.mark.parametrize(
    "topology", [grid(4, 8), grid(3, 5), grid(2, 2, "half"), grid(1, 4), hub(6)], ids=str
)
def test_kernel_equals_twin(topology, row_mode):
    tokens = random_tokens(1, 5, 9, 12, 3)
    posed = problem(tokens, topology, 12, row_mode=row_mode)
    for seed in range(3):
        group_of = random_groups(posed, seed)
        expected = twin_parts(posed, tokens, topology, group_of, row_mode=row_mode)
        np.testing.assert_allclose(
            evaluate_steps(posed.tables, group_of).parts, expected, rtol=1e-9, atol=1e-18
        )


def test_one_step_by_hand():
    """Two tokens on a 1 x 2 mesh, two experts, each on its own site.

    Token 0 lives on site 0, goes to experts 0 (site 0) and 1 (site 1); token 1 lives on site 1, same
    experts. PIM: two tokens on each site, 2 * 1.2 us. Dispatch: 128 bytes each way at 1 GB/s and one hop of
    4 ns: 132 ns. Gather: first cores 0 and 1 hold 2 * 128 bytes each and send them: 256 + 4 ns. Scatter:
    both homes are first cores, nothing moves.
    """
    tokens = np.array([[[0, 1], [0, 1]]], dtype=np.int16)
    posed = problem(tokens, grid(1, 2), 2)
    parts = evaluate_steps(posed.tables, np.array([0, 1], dtype=np.int32)).parts[0]
    np.testing.assert_allclose(parts, [2.4e-6, 132e-9, 0.0, 260e-9, 0.0], rtol=1e-12)


def test_tensor_parallel_by_hand():
    """The same tokens, expert 0 split over both sites in row mode, expert 1 on site 1.

    PIM: site 1 runs 2 tokens at 0.7 us and 2 at 1.2 us: 3.8 us. Ring all-reduce of 2 tokens: 2 rounds of
    128 bytes over each of two links, 256 ns, and two hops of 4 ns. Gather as above: blocks of 256 bytes.
    """
    tokens = np.array([[[0, 1], [0, 1]]], dtype=np.int16)
    posed = problem(tokens, grid(1, 2), 2)
    pair = posed.groups.find((0, 1))
    parts = evaluate_steps(posed.tables, np.array([pair, 1], dtype=np.int32)).parts[0]
    np.testing.assert_allclose(parts, [3.8e-6, 132e-9, 264e-9, 260e-9, 0.0], rtol=1e-12)


def test_dropped_experts_cost_nothing_by_hand():
    """Three tokens on a 1 x 3 mesh, expert e on site e; -1 was dropped by the router.

    Token 0 lives on site 0 and keeps expert 0 alone; token 1 lives on site 1 and goes to expert 0 as its
    second choice; token 2 lost every expert. PIM: two tokens on site 0, 2.4 us. Dispatch: 128 bytes from
    site 1 to 0, 128 + 4 ns. One first core: no gather. Scatter: the result of token 1 goes home, 132 ns;
    token 2 has none, which would have crossed two hops.
    """
    tokens = np.array([[[0, -1], [-1, 0], [-1, -1]]], dtype=np.int16)
    posed = problem(tokens, grid(1, 3), 3)
    assert posed.tables.counts[:, 0].tolist() == [2, 0, 0]
    parts = evaluate_steps(posed.tables, np.array([0, 1, 2], dtype=np.int32)).parts[0]
    np.testing.assert_allclose(parts, [2.4e-6, 132e-9, 0.0, 0.0, 132e-9], rtol=1e-12)


@pytest.mark.parametrize("topology", [grid(2, 4), hub(6)], ids=str)
def test_kernel_equals_twin_with_dropped_experts(topology):
    """A third of the choices is dropped at random; whole tokens and a whole step too."""
    tokens = random_tokens(2, 5, 9, 12, 3)
    tokens[np.random.default_rng(0).random(tokens.shape) < 0.34] = -1
    tokens[1, 4], tokens[3] = -1, -1
    posed = problem(tokens, topology, 12)
    bound = posed.lower_bound().value_s
    for seed in range(3):
        group_of = random_groups(posed, seed)
        parts = evaluate_steps(posed.tables, group_of).parts
        expected = twin_parts(posed, tokens, topology, group_of)
        np.testing.assert_allclose(parts, expected, rtol=1e-9, atol=1e-18)
        assert parts[3].sum() == 0.0
        assert bound <= parts.sum(axis=1).mean()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    row_mode=st.booleans(),
    swap=st.booleans(),
    shape=st.sampled_from([(2, 4), (3, 3)]),
)
def test_increments_equal_full_evaluation(seed, row_mode, swap, shape):
    """A move, and the move taken back, leave exactly what a fresh evaluation gives."""
    rng = np.random.default_rng(seed)
    tokens = random_tokens(seed, 4, 6, 8, 2)
    posed = problem(tokens, grid(*shape), 8, row_mode=row_mode)
    t = posed.tables
    group_of = random_groups(posed, seed)
    state = evaluate_steps(t, group_of)
    before = [np.array(a) for a in state]
    e, other = rng.choice(8, 2, replace=False)
    move = np.array([e, rng.integers(len(posed.groups)), -1, -1])
    if swap:
        move = np.array([e, group_of[other], other, group_of[e]])
    rate, dram_s = np.zeros((2, posed.sites)), np.empty(4)
    gains(t.group_start, t.group_sites, t.token_s, state.group_of, move, rate)
    first, second = t.counts[move[0]], t.counts[max(move[2], 0)]
    try_loads(state.load_s, state.block_s, first, second, rate, dram_s)
    changed, kept, kept_s = np.zeros(4, dtype=np.uint8), np.empty((4, 5)), np.empty(4)
    shift_noc(t, state, move, False, changed, kept, kept_s)

    moved = group_of.copy()
    moved[move[0]] = move[1]
    if swap:
        moved[move[2]] = move[3]
    fresh = evaluate_steps(t, moved)
    np.testing.assert_allclose(dram_s, fresh.parts[:, DRAM], rtol=1e-12)
    np.testing.assert_allclose(state.parts[:, 1:], fresh.parts[:, 1:], rtol=1e-12, atol=1e-20)
    np.testing.assert_allclose(state.noc_s, fresh.noc_s, rtol=1e-12, atol=1e-20)

    shift_noc(t, state, move, True, changed, kept, kept_s)
    for now, then, name in zip(state, before, state._fields, strict=True):
        if name not in ("active", "worst_rank"):
            np.testing.assert_allclose(now, then, rtol=1e-12, atol=1e-12, err_msg=name)

    commit_loads(state.load_s, state.block_s, first, second, rate)
    np.testing.assert_allclose(state.load_s, fresh.load_s, rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(state.block_s, fresh.block_s, rtol=1e-9, atol=1e-18)
