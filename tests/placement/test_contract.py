"""Every registered solver keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moeplan.placement import register, solvers_of
from moeplan.placement.registry import unregister
from moeplan.placement.testing import check_solver

from .channels.instances import grid, problem, random_tokens


@pytest.mark.parametrize("risk", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(solvers_of("channels")))
def test_channels_solver(name, risk):
    tokens = random_tokens(11, 4, 8, 8, 2)
    held_out = problem(random_tokens(12, 4, 8, 8, 2), grid(2, 2), 8, risk=risk)
    posed = problem(tokens, grid(2, 2), 8, risk=risk, room=4.0, held_out=held_out)
    check_solver("channels", name, posed, problem(tokens, grid(2, 2), 8, room=1.5, risk=risk))


def test_the_solver_of_the_contributing_guide():
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    solver, call = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    room: dict[str, object] = {}
    exec(solver, room)
    assert "check_solver(" in call
    try:
        exec(call, room)  # registers it
        check_solver("channels", "shuffle", problem(random_tokens(11, 4, 8, 8, 2), grid(2, 2), 8))
    finally:
        unregister("channels", "shuffle")


def test_a_solver_that_does_not_count_its_iterations_is_named(monkeypatch):
    from moeplan.placement import testing
    from moeplan.placement.control import Claim
    from moeplan.placement.registry import SolverInfo

    def endless(control):
        while control.should_stop() is None:
            pass
        return Claim(control.should_stop())

    monkeypatch.setattr(testing, "_PATIENCE_S", 0.2)
    register(SolverInfo("channels", "endless", lambda: endless, "never counts"))
    try:
        with pytest.raises(AssertionError, match="endless: did not end by itself"):
            check_solver("channels", "endless", problem(random_tokens(11, 4, 8, 8, 2), grid(2, 2), 8))
    finally:
        unregister("channels", "endless")
