"""Published partitions: NoExp, AllExp, PIMoE and Sieve's greedy, as they are described."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from ..control import Claim, Control
from ..result import Stop
from .kernels import COMPUTE, FIRST, FIXED, MEMORY, gpu_s, table_s
from .problem import Decision, problem_of


def no_exp(control: Control[Decision]) -> Claim:
    """All experts on the GPU (NeuPIMs, HBM-PIM; the baseline NoExp of Sieve)."""
    return _one(control, np.ones(problem_of(control).experts, dtype=np.bool_))


def all_exp(control: Control[Decision]) -> Claim:
    """All experts on PIM (Stratum, PAPI; the baseline AllExp of Sieve)."""
    return _one(control, np.zeros(problem_of(control).experts, dtype=np.bool_))


def pimoe(control: Control[Decision]) -> Claim:
    """Move the most popular expert of the busiest channel to the GPU until the GPU is slower (PIMoE)."""
    p = problem_of(control)
    mask = np.zeros(p.experts, dtype=np.bool_)
    balance_experts(p.tokens, p.table, p.coefficients, p.home, np.zeros(p.homes), mask)
    return _one(control, mask)


def sieve(control: Control[Decision]) -> Claim:
    """Move the most popular expert to the GPU until T_total would rise (Sieve 5)."""
    p = problem_of(control)
    mask = np.zeros(p.experts, dtype=np.bool_)
    sieve_experts(
        p.tokens, p.table, p.coefficients, p.attention_s, p.comm_s, p.home, np.zeros(p.homes),
        np.empty(p.experts, dtype=np.int64), np.zeros(4096, dtype=np.int64), mask,
    )  # fmt: skip
    return _one(control, mask)


def _one(control: Control[Decision], mask: NDArray[np.bool_]) -> Claim:
    control.iterations += 1
    control.offer(Decision(mask))
    return Claim(Stop.CONVERGED)


@kernel
def sort_experts(tokens: NDArray[np.int64], histogram: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """Order experts by falling tokens, ties by id; by counting where `histogram` (zero) is long enough."""
    most = 0
    for n in tokens:
        most = max(most, n)
    if most >= len(histogram):
        order[:] = np.argsort(-tokens, kind="mergesort")
        return
    for n in tokens:
        histogram[n] += 1
    place = 0
    for n in range(most, -1, -1):
        place, histogram[n] = place + histogram[n], place
    for e in range(len(tokens)):
        order[histogram[tokens[e]]] = e
        histogram[tokens[e]] += 1
    histogram[: most + 1] = 0


@kernel
def sieve_experts(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    home: NDArray[np.int64],
    busy_s: NDArray[np.float64],
    order: NDArray[np.int64],
    histogram: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> float:
    """Sieve's greedy; a move that leaves T_total as it is does not end it. Return T_total.

    `busy_s` [homes] is zero at first, `order` [E] any.
    """
    for e in range(len(tokens)):
        mask[e] = False
        if tokens[e] > 0:
            busy_s[home[e]] += table_s(table, tokens[e])
    sort_experts(tokens, histogram, order)
    routed = 0
    total_s = float(max(comm_s, gpu_s(c, 0, 0), attention_s + busy_s.max()))
    for experts, e in enumerate(order):
        if tokens[e] == 0:
            break
        busy_s[home[e]] -= table_s(table, tokens[e])
        busiest_s = busy_s[0] if len(busy_s) == 1 else busy_s.max()
        moved_s = float(max(comm_s, gpu_s(c, experts + 1, routed + tokens[e]), attention_s + busiest_s))
        if moved_s > total_s:
            break
        total_s = moved_s
        routed += tokens[e]
        mask[e] = True
    return total_s


@kernel
def balance_experts(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    c: NDArray[np.float64],
    home: NDArray[np.int64],
    busy_s: NDArray[np.float64],
    mask: NDArray[np.bool_],
) -> None:
    """PIMoE's balance of the experts alone: neither attention, nor other GPU work, nor communication counts.

    `busy_s` [homes] is zero at first.
    """
    for e in range(len(tokens)):
        mask[e] = False
        if tokens[e] > 0:
            busy_s[home[e]] += table_s(table, tokens[e])
    alone = c.copy()
    alone[FIXED], alone[FIRST] = 0.0, c[FIXED] + c[FIRST]
    alone[MEMORY] = alone[COMPUTE] = 0.0
    experts, routed = 0, 0
    while gpu_s(alone, experts, routed) <= busy_s.max():
        busiest, chosen = busy_s.argmax(), -1
        for e in range(len(tokens)):
            waits = not mask[e] and tokens[e] > 0 and home[e] == busiest
            if waits and (chosen < 0 or tokens[e] > tokens[chosen]):
                chosen = e
        if chosen < 0:
            break
        mask[chosen] = True
        busy_s[busiest] -= table_s(table, tokens[chosen])
        experts += 1
        routed += tokens[chosen]
