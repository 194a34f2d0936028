"""Small replica problems, and their answers by brute force and in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from moeplan.placement.replicas.problem import Decision, ReplicaProblem, Settings, replica_problem
from moeplan.placement.replicas.ranks import Ranks
from moeplan.placement.replicas.rates import Rates

TIMED = Rates(
    kernel_s=3e-6, expert_s=1e-5, token_memory_s=1e-7, token_compute_s=2e-7, tile=1,
    inside_s=1e-7, across_s=1e-6, inside_latency_s=1e-6, across_latency_s=1e-5,
)  # fmt: skip


def zipf(layers: int, experts: int, skew: float, seed: int, tokens: int = 1_000_000) -> np.ndarray:
    """Tokens `[L, E]`: Zipf(skew) in random order, top-8."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, experts + 1) ** skew
    share /= share.sum()
    return np.array([rng.multinomial(tokens * 8, rng.permutation(share)) for _ in range(layers)], float)


def problem(
    counts: object,
    nodes: int,
    room: tuple[int, ...],
    *,
    speed: tuple[float, ...] = (),
    rates: Rates | None = None,
    held_out: object = None,
    current: object = None,
    **settings: object,
) -> ReplicaProblem:
    """Pose a question, on the recorded steps as they are where nothing else is said."""
    asked = Settings(**{"drift": 0.0, **settings})
    return replica_problem(
        counts, Ranks(nodes, room, speed), rates=rates, settings=asked, held_out=held_out,
        current=current,
    )  # fmt: skip


def placements(posed: ReplicaProblem) -> Iterator[Decision]:
    """Every feasible placement, slots of a rank in ascending order."""
    choices = [
        list(itertools.combinations_with_replacement(range(posed.experts), room)) for room in posed.ranks.room
    ]
    for held in itertools.product(*choices):
        decision = Decision(np.array([e for rank in held for e in rank], dtype=np.int32))
        if posed.check(decision) is None:
            yield decision


def optimum(posed: ReplicaProblem) -> float:
    """Least objective of all placements."""
    return min(posed.evaluate(decision).objective_s for decision in placements(posed))


def twin_parts(posed: ReplicaProblem, decision: Decision) -> np.ndarray:
    """Compute, dispatch (equals combine) and mean cross-node tokens `[S, 3]`, replica by replica."""
    r, ranks, split = posed.rates, posed.ranks, posed.settings.split
    slots, rank_of = decision.expert_of.tolist(), ranks.rank_of.tolist()
    parts = []
    for step in posed.tokens:
        got = np.zeros((ranks.ranks, posed.experts))
        flow = np.zeros((ranks.ranks, ranks.ranks))
        for e in range(posed.experts):
            homes = [rank_of[s] for s in range(len(slots)) if slots[s] == e]
            for i in range(ranks.ranks):
                n = step[i, e] if len(step) > 1 else step[0, e] / ranks.ranks
                for home, share in targets(i, homes, ranks, split):
                    got[home, e] += n * share
                    flow[i, home] += n * share
        longest = 0.0
        for g in range(ranks.ranks):
            tokens = active = padded = 0.0
            for e in range(posed.experts):
                here = sum(slots[s] == e and rank_of[s] == g for s in range(len(slots)))
                if here and got[g, e] > 0.0:
                    total = slots.count(e)
                    each = got[g, e] / here
                    tokens += got[g, e]
                    whole = got[g, e] / here * total
                    active += here * (1 - (1 - 1 / total) ** whole if split == "hash" else min(1.0, each))
                    padded += here * np.ceil(each / r.tile - 1e-9) * r.tile if r.tile > 1 else here * each
            if tokens > 0.0:
                work = max(active * r.expert_s + tokens * r.token_memory_s, padded * r.token_compute_s)
                longest = max(longest, r.kernel_s + work / ranks.speed[g])
        parts.append((longest, *flow_parts(posed, flow)))
    return np.array(parts)


def targets(i: int, homes: list[int], ranks: Ranks, split: str) -> list[tuple[int, float]]:
    """Where the tokens of source rank i go, with their shares."""
    if split == "fixed":
        return [(homes[i % len(homes)], 1.0)]
    if split == "nearest":
        own = [h for h in homes if h == i]
        near = [h for h in homes if h // ranks.per_node == i // ranks.per_node]
        homes = own or near or homes
    return [(h, 1.0 / len(homes)) for h in homes]


def flow_parts(posed: ReplicaProblem, flow: np.ndarray) -> tuple[float, float]:
    """Time of one exchange of `flow` tokens, and mean tokens that a rank gets from other nodes."""
    r, ranks = posed.rates, posed.ranks
    node = np.arange(ranks.ranks) // ranks.per_node
    off = ~np.eye(ranks.ranks, dtype=bool)
    near = np.where((node[:, None] == node) & off, flow, 0.0)
    far = np.where(node[:, None] != node, flow, 0.0)
    latency_s = max(r.inside_latency_s * bool(near.sum()), r.across_latency_s * bool(far.sum()))
    busiest_s = max(
        *(near.sum(axis=k).max() * r.inside_s for k in (0, 1)),
        *(far.sum(axis=k).max() * r.across_s for k in (0, 1)),
    )
    timed = r.inside_s > 0.0 or r.across_s > 0.0
    return (busiest_s + latency_s if timed else 0.0), far.sum() / ranks.ranks
