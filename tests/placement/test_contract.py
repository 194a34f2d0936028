"""Every registered solver keeps the contract."""

from __future__ import annotations

import pytest

from moeplan.placement import solvers_of
from moeplan.placement.testing import check_solver

from .channels.instances import grid, problem, random_tokens


@pytest.mark.parametrize("risk", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(solvers_of("channels")))
def test_channels_solver(name, risk):
    tokens = random_tokens(11, 4, 8, 8, 2)
    held_out = problem(random_tokens(12, 4, 8, 8, 2), grid(2, 2), 8, risk=risk)
    posed = problem(tokens, grid(2, 2), 8, risk=risk, room=4.0, held_out=held_out)
    check_solver("channels", name, posed, problem(tokens, grid(2, 2), 8, room=1.5, risk=risk))
