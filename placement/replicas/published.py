"""Published and plain placements: linear, round robin, EPLB, snake, replicate everywhere, tiers by risk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import UsageError
from ..control import Claim, Control
from ..result import Stop
from .layout import slots_of
from .pools import Part, greedy_nodes, parts_of, plain_nodes
from .problem import Decision, ReplicaProblem, problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .pool_kernel import Pool, Question

#: FlashLB's weight on the standard deviation (the 75th percentile), tiers, and replicas tried around greedy.
_QUANTILE, _TIERS, _WIDTH = 0.674, 4, 8
_NOTHING = np.zeros((0, 0), dtype=np.int16)

_Filler = Callable[["Question", "Pool"], None]


def linear(control: Control[Decision]) -> Claim:
    """Slot s holds expert s modulo E, rank by rank: what engines load without a plan.

    With groups, every node lays out its own experts so.
    """
    return _fill(control, _by_id, lambda q, order: _laid(q, np.repeat(np.arange(len(q.room)), q.room)))


def current(control: Control[Decision]) -> Claim:
    """The placement that is there; the linear one where none was given."""
    problem = problem_of(control)
    if problem.current is None:
        return linear(control)
    control.iterations += 1
    _offer_repaired(control, problem.current, greedy_of=problem)
    return Claim(Stop.CONVERGED)


def round_robin(control: Control[Decision]) -> Claim:
    """Expert e on rank e modulo G; each further round of all experts begins one rank later."""
    return _fill(control, _by_id, lambda q, order: _laid(q, _in_turn(q)))


def snake(control: Control[Decision]) -> Claim:
    """Greedy counts; replicas by falling load dealt to ranks 0..G-1, then G-1..0 (SGLang's deepseek_vec)."""
    return _fill(control, greedy_nodes, _dealt)


def replicate_everywhere(control: Control[Decision]) -> Claim:
    """As many of the hottest experts as the spare slots allow on every rank; the rest by LPT."""
    return _fill(control, greedy_nodes, _everywhere)


def eplb(control: Control[Decision]) -> Claim:
    """DeepSeek's EPLB; where two replicas must not share a rank, its duplicates are exchanged afterwards.

    Hierarchical where groups divide over the nodes, else global. Raises UsageError where ranks have unequal
    slots, which the published algorithm does not know.
    """
    problem = problem_of(control)
    ranks = problem.ranks
    if len(set(ranks.room)) > 1:
        raise UsageError("EPLB needs as many slots on every rank", fix="take another solver")
    control.iterations += 1
    slots = eplb_slots(problem)
    _offer_repaired(control, slots, greedy_of=problem)
    return Claim(Stop.CONVERGED)


def eplb_slots(problem: ReplicaProblem) -> NDArray[np.int32]:
    """Return the published answer for the recorded load summed over steps, duplicates included."""
    from .eplb import eplb as rebalance

    return rebalance(
        problem.tokens.sum(axis=(0, 1)),
        slots=problem.ranks.slots,
        groups=problem.settings.groups,
        nodes=problem.ranks.nodes,
        ranks=problem.ranks.ranks,
    )


def flash_like(control: Control[Decision]) -> Claim:
    """Tiers of experts by risk share out the spare slots; every try is packed by LPT (FlashLB's idea).

    Risk is the mean over steps plus 0.674 standard deviations. From the riskiest tier on, up to 8 replicas
    more and fewer than greedy are tried for the tier, the rest going to lower tiers; the best mean over steps
    of max / mean stays.
    """
    problem = problem_of(control)
    steps = problem.tokens.sum(axis=1)
    risk = steps.mean(axis=0) + _QUANTILE * steps.std(axis=0)
    slots = np.empty(problem.ranks.slots, dtype=np.int32)
    for part in parts_of(problem, greedy_nodes(problem, risk)):
        pool = _tiers(problem, part, risk, steps[:, part.experts], control)
        if pool is None:
            return Claim(control.should_stop() or Stop.CONVERGED)
        part.write(problem, pool, slots)
    _offer(control, slots)
    return Claim(Stop.INTERRUPTED if control.interrupt.is_set() else Stop.CONVERGED)


def _tiers(
    problem: ReplicaProblem, part: Part, risk: NDArray[np.float64], steps: NDArray[np.float64],
    control: Control[Decision],
) -> Pool | None:  # fmt: skip
    from .pool_kernel import copy_pool, empty_pool, pack_counts

    q = part.question(problem, risk)
    cap = q.most * len(q.room)
    order = np.argsort(-q.weight, kind="stable")
    tiers = np.array_split(order, _TIERS)
    best, trial = empty_pool(q), empty_pool(q)
    best_score = np.inf
    fixed = np.ones(len(order), dtype=np.int64)
    for index, tier in enumerate(tiers):
        lower = np.concatenate(tiers[index:])
        left = int(q.room.sum() - fixed.sum())
        usual = int((_spread(q.weight, fixed, lower, left, cap) - fixed)[tier].sum())
        chosen = fixed
        for spare in range(max(0, usual - _WIDTH), min(left, usual + _WIDTH) + 1):
            control.iterations += 1
            count = _spread(q.weight, fixed, tier, spare, cap)
            rest = lower[len(tier) :]
            full = _spread(q.weight, count, rest, int(q.room.sum() - count.sum()), cap)
            if full.sum() < q.room.sum():
                continue
            trial.copies[:] = full
            if not pack_counts(q, trial, _NOTHING):
                continue
            share = (steps / full) @ trial.has / q.speed
            score = float((share.max(axis=1) / np.maximum(share.mean(axis=1), 1e-300)).mean())
            if score < best_score:
                best_score, chosen = score, count
                copy_pool(trial, best)
        fixed = chosen
    return best if np.isfinite(best_score) else None


def _spread(
    weight: NDArray[np.float64], count: NDArray[np.int64], among: NDArray[np.int64], spare: int, cap: int
) -> NDArray[np.int64]:
    """Add `spare` replicas to the largest load per replica among some experts, as far as the cap allows."""
    new = count.copy()
    for _ in range(spare if len(among) else 0):
        each = np.where(new[among] < cap, weight[among] / new[among], -1.0)
        hot = int(each.argmax())
        if each[hot] < 0.0:
            break
        new[among[hot]] += 1
    return new


def _by_id(problem: ReplicaProblem, weight: NDArray[np.float64]) -> NDArray[np.int64] | None:
    return plain_nodes(problem)


def _fill(
    control: Control[Decision],
    nodes: Callable[[ReplicaProblem, NDArray[np.float64]], NDArray[np.int64] | None],
    fill: Callable[[Question, NDArray[np.int64]], list[list[int]]],
) -> Claim:
    """Fill every part's ranks by a rule on the recorded mean load, and offer that."""
    problem = problem_of(control)
    control.iterations += 1
    weight = problem.tokens.sum(axis=1).mean(axis=0)
    slots = np.empty(problem.ranks.slots, dtype=np.int32)
    for part in parts_of(problem, nodes(problem, weight)):
        q = part.question(problem, weight)
        held = fill(q, np.argsort(-q.weight, kind="stable"))
        for rank, own in zip(part.ranks, held, strict=True):
            first = int(problem.ranks.start[rank])
            slots[first : first + len(own)] = part.experts[own]
    _offer_repaired(control, slots, greedy_of=problem)
    return Claim(Stop.CONVERGED)


def _laid(q: Question, rank_of: NDArray[np.int64]) -> list[list[int]]:
    held: list[list[int]] = [[] for _ in q.room]
    for k, rank in enumerate(rank_of):
        held[int(rank)].append(k % len(q.weight))
    return held


def _in_turn(q: Question) -> NDArray[np.int64]:
    """Rank of every placed replica: in turn over ranks with room, one further in every round of experts."""
    left, rank_of = q.room.copy(), np.empty(int(q.room.sum()), dtype=np.int64)
    for k in range(len(rank_of)):
        rank = (k + k // len(q.weight)) % len(left)
        while left[rank] == 0:
            rank = (rank + 1) % len(left)
        left[rank] -= 1
        rank_of[k] = rank
    return rank_of


def _dealt(q: Question, order: NDArray[np.int64]) -> list[list[int]]:
    from .pool_kernel import greedy_counts

    count = np.empty(len(q.weight), dtype=np.int64)
    greedy_counts(q, count)
    each = q.weight / count
    replicas = np.repeat(np.arange(len(count)), count)
    replicas = replicas[np.argsort(-each[replicas], kind="stable")]
    held: list[list[int]] = [[] for _ in q.room]
    ranks = list(range(len(q.room)))
    k = 0
    while k < len(replicas):
        for rank in ranks:
            if len(held[rank]) < q.room[rank] and k < len(replicas):
                held[rank].append(int(replicas[k]))
                k += 1
        ranks.reverse()
    return held


def _everywhere(q: Question, order: NDArray[np.int64]) -> list[list[int]]:
    from .pool_kernel import empty_pool, greedy_counts, pack_counts

    pool, ranks = empty_pool(q), len(q.room)
    spare = int(q.room.sum()) - len(q.weight)
    hottest = order[: spare // (ranks - 1)] if ranks > 1 else order[:0]
    fixed = np.ones(len(q.weight), dtype=np.int64)
    fixed[hottest] = ranks
    rest = np.setdiff1d(order, hottest)
    pool.copies[:] = _spread(q.weight, fixed, rest, int(q.room.sum() - fixed.sum()), ranks * q.most)
    if pool.copies.sum() < q.room.sum() or not pack_counts(q, pool, _NOTHING):
        greedy_counts(q, pool.copies)
        pack_counts(q, pool, _NOTHING)
    return [pool.slot[g, : q.room[g]].tolist() for g in range(ranks)]


def _offer(control: Control[Decision], slots: NDArray[np.int32]) -> None:
    """Offer what the problem's rules allow; a heuristic that breaks one has no answer."""
    problem = problem_of(control)
    decision = Decision(slots)
    if problem.check(decision) is None:
        control.offer(decision)


def _offer_repaired(
    control: Control[Decision], slots: NDArray[np.int32], *, greedy_of: ReplicaProblem
) -> None:
    """Offer slots with their duplicates exchanged where those are forbidden."""
    has = greedy_of.has(Decision(slots))
    if not greedy_of.settings.duplicates and has.max() > 1:
        if not without_duplicates(greedy_of, has):
            return
        slots = slots_of(has, greedy_of.ranks)
    _offer(control, slots)


def without_duplicates(problem: ReplicaProblem, has: NDArray[np.int16]) -> bool:
    """Exchange every second replica on a rank with the nearest load of another rank of its pool, in place.

    False where no exchange is possible.
    """
    weight = problem.tokens.sum(axis=(0, 1))
    each = weight / np.maximum(has.sum(axis=1), 1)
    per = problem.ranks.per_node if problem.nodes > 1 else problem.ranks.ranks
    for rank in range(problem.ranks.ranks):
        peers = range(rank // per * per, rank // per * per + per)
        for expert in np.flatnonzero(has[:, rank] > 1):
            while has[expert, rank] > 1:
                found = [
                    (abs(each[other] - each[expert]), peer, other)
                    for peer in peers
                    if has[expert, peer] == 0
                    for other in np.flatnonzero(has[:, peer])
                    if has[other, rank] == 0
                ]
                if not found:
                    return False
                _, peer, other = min(found)
                has[expert, rank] -= 1
                has[expert, peer] += 1
                has[other, peer] -= 1
                has[other, rank] += 1
    return True
