"""The published policies, step by step on small layers."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.placement.partition import PartitionProblem
from moeplan.placement.solve import solve

from .instances import decided


def problem(tokens, *, home=None, memory=0.0, expert=2.0, attention_s=0.0, comm_s=0.0) -> PartitionProblem:
    """PIM takes a second per token, the GPU `expert` seconds per expert and `memory` for its other work."""
    home = np.zeros(len(tokens), dtype=np.int64) if home is None else np.array(home)
    coefficients = np.array([0.0, 0.0, memory, 0.0, expert, 0.0, 0.0])
    table = np.arange(11, dtype=np.float64)
    homes = int(home.max()) + 1
    return PartitionProblem(np.array(tokens), table, coefficients, attention_s, comm_s, home, homes)


def chosen(posed: PartitionProblem, policy: str) -> tuple[list[int], float]:
    result = solve(posed, policy)
    assert result.decision is not None
    return np.flatnonzero(result.decision.on_gpu).tolist(), result.cost.total_s


def test_sieve_stops_at_the_first_rise():
    # All on PIM: 10. Move 5: max(2, 5) = 5. Move 3: max(4, 2) = 4. Move 1: max(6, 1) = 6, a rise.
    assert chosen(problem([1, 5, 1, 3]), "sieve") == ([1, 3], 4.0)


def test_sieve_goes_on_where_nothing_changes():
    # Communication takes 10 all the time; the GPU has all four experts in 8.
    assert chosen(problem([1, 5, 1, 3], comm_s=10.0), "sieve") == ([0, 1, 2, 3], 10.0)


def test_sieve_counts_the_other_work_and_pimoe_does_not():
    # Sieve: 3 + 2 = 5 against 5; the next expert would make it 7. PIMoE: 0 <= 10, 2 <= 5, then 4 > 2.
    posed = problem([1, 5, 1, 3], memory=3.0)
    assert chosen(posed, "sieve") == ([1], 5.0)
    assert chosen(posed, "pimoe") == ([1, 3], 7.0)


def test_pimoe_does_not_see_attention():
    # PIMoE stops at [1, 3] as without attention, where PIM has 2 + 5; Sieve moves on while the total falls:
    # 15, 10, 7, then max(6, 6) = 6, then 8.
    posed = problem([1, 5, 1, 3], attention_s=5.0)
    assert chosen(posed, "pimoe") == ([1, 3], 7.0)
    assert chosen(posed, "sieve") == ([0, 1, 3], 6.0)


def test_pimoe_takes_the_busiest_channel():
    # Busy 7, 6 and GPU 0: move 4. Busy 3, 6 and GPU 1: move 5. Busy 3, 1 and GPU 2: move 3. GPU 3 > 1.
    posed = problem([4, 3, 5, 1], home=[0, 0, 1, 1], expert=1.0)
    assert chosen(posed, "pimoe") == ([0, 1, 2], 3.0)
    # The best is to move 4 and 5: GPU 2, busy 3.
    assert chosen(posed, "exact")[1] == 3.0


def test_all_and_none():
    posed = problem([1, 5, 0, 3])
    assert chosen(posed, "all_exp") == ([], 9.0)
    assert chosen(posed, "no_exp")[1] == 6.0  # three experts have tokens


def test_times_and_cost_parts():
    coefficients = np.array([0.5, 0.25, 1.0, 2.0, 3.0, 0.5, 1.5])
    posed = PartitionProblem(
        np.array([2, 0, 1, 4]), np.array([0.0, 1.0, 5.0]), coefficients, 0.75, 9.0, np.array([0, 0, 1, 1]), 2
    )
    times = posed.times(decided(posed, 1, 2, 3))
    # Experts 2 and 3 have 5 tokens: memory 1 + 2 * 3 + 5 * 0.5 = 9.5, computation 2 + 5 * 1.5 = 9.5.
    assert (times.gpu_memory_s, times.gpu_compute_s, times.gpu_s) == (9.5, 9.5, 0.5 + 0.25 + 9.5)
    assert (times.pim_s, times.pim_experts_s, times.gpu_experts) == (5.75, 5.0, 2)
    # Nothing on the GPU: four tokens take twice the table's last entry, on the channel that also has one.
    times = posed.times(decided(posed))
    assert (times.gpu_s, times.pim_s) == (2.5, 0.75 + 11.0)
    cost = posed.evaluate(decided(posed))
    assert cost.parts == {"three_busy_s": 2.5, "two_busy_s": 6.5, "one_busy_s": 2.75}


def test_wrong_shape_is_not_feasible():
    posed = problem([1, 2])
    assert "3 experts" in (posed.check(decided(problem([1, 2, 3]))) or "")


@pytest.mark.parametrize("policy", ["pimoe", "sieve", "no_exp", "all_exp"])
def test_no_tokens(policy):
    assert chosen(problem([0, 0], memory=1.5, attention_s=2.0), policy)[1] == 2.0
