"""The bound that knows of one placement for all steps."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.placement.channels.problem import Decision
from moeplan.placement.channels.relaxation import fixed_bound

from .instances import grid, hub, problem, random_groups, random_tokens
from .test_bound_and_exact import brute_force


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("topology", [grid(2, 2), hub(4)], ids=["mesh", "hub"])
@pytest.mark.parametrize("risk", [0.0, 1.0])
def test_fixed_bound_is_below_every_placement_and_above_the_bound_of_single_steps(seed, topology, risk):
    tokens = random_tokens(seed, 3, 6, 5, 2, sigma=1.5)
    tokens[0, 0] = -1
    posed = problem(tokens, topology, 5, risk=risk)
    bound = fixed_bound(posed).value_s
    assert bound <= brute_force(posed) * (1 + 1e-9)
    assert bound >= posed.lower_bound().value_s * (1 - 1e-5)


def test_fixed_bound_by_hand():
    """Two host-attached sites, two steps, one token costs 1.2 us unsplit and 0.7 us on each of both.

    Step 0 has 6 tokens of expert 0, step 1 has 6 of expert 0 and 6 of expert 1. Alone, step 0 takes 4.2 us
    (split) and step 1 7.2 us (one each). Together, expert 0 split by a share y costs step 0 at least its own
    share 7.2 - 3 y, and step 1 the average of both sites, (7.2 + 1.2 y + 7.2) / 2 = 7.2 + 0.6 y, with
    expert 1 unsplit, which alone takes 7.2. The mean 7.2 - 1.2 y is least at y = 1: 6.0 us, against 5.7 us
    of the steps on their own. The best placement takes 4.2 and 8.4 us: 6.3 us.
    """
    tokens = np.full((2, 12, 1), -1, dtype=np.int16)
    tokens[:, :6] = 0
    tokens[1, 6:] = 1
    posed = problem(tokens, hub(2), 2)
    assert posed.lower_bound().value_s == pytest.approx(5.7e-6, rel=1e-9)
    assert fixed_bound(posed).value_s == pytest.approx(6.0e-6, rel=1e-5)
    assert brute_force(posed) == pytest.approx(6.3e-6, rel=1e-9)


def test_fixed_bound_holds_for_large_layers():
    posed = problem(random_tokens(4, 6, 16, 32, 4, sigma=2.0), grid(4, 8), 32)
    bound = fixed_bound(posed).value_s
    for seed in range(5):
        assert bound <= posed.evaluate(Decision(random_groups(posed, seed))).objective_s
