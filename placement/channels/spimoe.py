"""SPIMOE's static mapping as published (3.4.1): three candidates, the lowest J, annealing from the winner."""

from __future__ import annotations

from ..control import Claim, Control
from ..result import Stop
from .annealing import Walk
from .cliques import clique_placement
from .greedy import mixed_tp_placement, recorded_s, uniform_lpt
from .problem import Decision, problem_of

#: Proposed moves where the budget does not end them before (the text gives no number): as many as routed
#: tokens allow, since a move costs time in proportion, between these.
_WORK, _FEWEST, _MOST = 2**28, 10_000, 30_000


def spimoe(control: Control[Decision]) -> Claim:
    """Run the published procedure on the recorded steps and offer what it ends with.

    (1) Co-activation cliques, mixed-TP greedy and uniform-TP LPT; (2) the one of the lowest J; (3)
    annealing with the moves migrate, change TP and swap. Cooling is geometric from temperatures of the
    instance (the text gives none). J is the mean over recorded steps, without risk and drawn steps.
    """
    problem = problem_of(control)
    Walk.compile(problem)
    control.restart_clock()
    candidates = []
    for construct in (clique_placement, mixed_tp_placement, uniform_lpt):
        group_of = construct(problem)
        if group_of is not None and problem.check(Decision(group_of)) is None:
            candidates.append(group_of)
    if not candidates:
        return Claim(control.should_stop() or Stop.CONVERGED)
    winner = min(candidates, key=lambda group_of: recorded_s(problem, group_of))
    walk = Walk.begin(problem.tables, winner, 0.0, control.seed)
    moves = min(_MOST, max(_FEWEST, _WORK // problem.tokens.size))
    stop = walk.cool(control, moves)
    control.offer(Decision(walk.best))
    return Claim(stop or control.should_stop() or Stop.CONVERGED)
