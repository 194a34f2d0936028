"""Partition over one pool of PIM channels (layout tp): relaxation, rounding, a search that ends in a proof.

With the multipliers of the relaxation every class has a reduced cost: what each of its experts costs on the
wrong side. A partition better than the best known has less of it in total than the gap between best and
relaxation. The search therefore goes through the few ways to spend that gap, least first, and best
completes each by the class that the relaxation splits. When all are tried, the best known is optimal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .kernels import COMPUTE, EXPERT, FIRST, FIXED, FLOP, MEMORY, TOKEN, count_classes, write_mask
from .relaxation import relax, sort_by_gain, step_s

#: Relative difference under which a bound meets a cost.
EXACT = 1e-12
#: The gap is searched in widening shares, because a first find narrows it for all that follow.
_ROUNDS, _WIDEN = 4, 4.0
#: Rows of the two workspaces, whose columns are classes, or depths of the search.
_COST, _USED, _EXPERTS, _TOKENS, _PIM, _PIM_FALL, _GPU_FALL, _SECONDS, FLOAT_ROWS = range(9)
_ORDER, _ACTIVE, _START, _MOVED, _NUMBER, _COPIES, _CHOSEN, INT_ROWS = range(8)


@kernel
def complete(
    c: NDArray[np.float64],
    comm_s: float,
    experts: float,
    tokens: float,
    pim_s: float,
    n: int,
    copies: int,
    saved: float,
) -> tuple[float, int]:
    """Return the least T_total, and by how many experts of the split class on the GPU.

    `experts` and `tokens` are on the GPU without that class, `pim_s` with all of it on PIM.
    """
    base = c[FIXED] + c[FIRST]
    memory = base + c[MEMORY] + c[EXPERT] * experts + c[TOKEN] * tokens
    compute = base + c[COMPUTE] + c[FLOP] * tokens
    memory_step, compute_step = c[EXPERT] + c[TOKEN] * n, c[FLOP] * n
    cross = float(copies)
    if memory_step + saved > 0.0:
        cross = min(cross, (pim_s - memory) / (memory_step + saved))
    if compute_step + saved > 0.0:
        cross = min(cross, (pim_s - compute) / (compute_step + saved))
    k = int(max(cross, 0.0))
    best, chosen = np.inf, 0
    for candidate in (k, min(k + 1, copies)):
        gpu = max(memory + candidate * memory_step, compute + candidate * compute_step)
        total = max(comm_s, gpu, pim_s - candidate * saved)
        if total < best:
            best, chosen = total, candidate
    return best, chosen


@kernel
def activate(
    c: NDArray[np.float64],
    limit: float,
    split: int,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
) -> int:
    """List the classes that may deviate within `limit`, dearest first; return how many.

    Also writes, for every depth, by how much the rest can still lower PIM time and memory time.
    """
    order, active, start, cost = ints[_ORDER], ints[_ACTIVE], ints[_START], floats[_COST]
    fall, gpu_fall = floats[_PIM_FALL], floats[_GPU_FALL]
    count = 0
    for i in range(len(number) - 1, -1, -1):
        d = order[i]
        if d != split and cost[d] <= limit:
            j = count
            while j > 0 and cost[active[j - 1]] < cost[d]:
                active[j] = active[j - 1]
                j -= 1
            active[j] = d
            count += 1
    fall[count], gpu_fall[count] = copies[split] * seconds[split], 0.0
    for j in range(count - 1, -1, -1):
        d = active[j]
        room = float(copies[d])
        if cost[d] > 0.0:
            room = min(room, np.floor(limit / cost[d]))
        fall[j], gpu_fall[j] = fall[j + 1], gpu_fall[j + 1]
        if start[d] == 0:
            fall[j] += room * seconds[d]
        else:
            gpu_fall[j] += room * (c[EXPERT] + c[TOKEN] * number[d])
    return count


@kernel
def search(
    c: NDArray[np.float64],
    comm_s: float,
    value: float,
    limit: float,
    split: int,
    count: int,
    nodes: int,
    bound_s: float,
    best_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    chosen: NDArray[np.int64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
) -> tuple[float, int]:
    """Spend up to `limit` of reduced cost in every way, or until the best meets `bound_s`.

    Returns (best T_total, nodes left; -1: not done).
    """
    active, start, moved, cost = ints[_ACTIVE], ints[_START], ints[_MOVED], floats[_COST]
    used, experts, tokens, pim = floats[_USED], floats[_EXPERTS], floats[_TOKENS], floats[_PIM]
    fall, gpu_fall = floats[_PIM_FALL], floats[_GPU_FALL]
    fixed = c[FIXED] + c[FIRST] + c[MEMORY]
    j = 0
    moved[0] = -1
    while j >= 0 and best_s > bound_s * (1.0 + EXACT):
        if j < count:
            d = active[j]
            moved[j] += 1
            spent = used[j] + moved[j] * cost[d]
            if moved[j] > copies[d] or spent > limit or spent >= best_s - value:
                j -= 1
                continue
            step = moved[j] if start[d] == 0 else -moved[j]
            used[j + 1] = spent
            experts[j + 1] = experts[j] + step
            tokens[j + 1] = tokens[j] + step * number[d]
            pim[j + 1] = pim[j] - step * seconds[d]
            j += 1
            moved[j] = -1
        nodes -= 1
        if nodes < 0:
            break
        memory = fixed + c[EXPERT] * experts[j] + c[TOKEN] * tokens[j]
        if pim[j] - fall[j] >= best_s or memory - gpu_fall[j] >= best_s:
            j -= 1
        elif j == count:
            total, k = complete(
                c, comm_s, experts[j], tokens[j], pim[j], number[split], copies[split], seconds[split]
            )
            if total < best_s:
                best_s = total
                for d in range(len(number)):
                    chosen[d] = start[d]
                chosen[split] = k
                for i in range(count):
                    d = active[i]
                    chosen[d] = moved[i] if start[d] == 0 else copies[d] - moved[i]
            j -= 1
    return best_s, nodes


@kernel
def whole_tokens_s(
    c: NDArray[np.float64],
    pim_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    order: NDArray[np.int64],
) -> float:
    """Bound T_total where computation binds: the GPU has a whole number of tokens, PIM the rest at best.

    Reduced costs say little there, because a token costs nearly the same in every expert. `order` is scratch.
    """
    if c[FLOP] <= 0.0:
        return 0.0
    sort_by_gain(c, 0.0, number, seconds, len(number), order)
    gpu = c[FIXED] + c[FIRST] + c[COMPUTE]
    if gpu >= pim_s:
        return float(gpu)
    for i in range(len(number)):
        d = order[i]
        flops = c[FLOP] * number[d] * copies[d]
        if gpu + flops < pim_s - copies[d] * seconds[d]:
            gpu += flops
            pim_s -= copies[d] * seconds[d]
            continue
        rate = seconds[d] / number[d]
        whole = np.floor((pim_s - gpu) / (c[FLOP] + rate))
        return float(min(pim_s - rate * whole, gpu + c[FLOP] * (whole + 1.0))) * (1.0 - 1e-13)
    return float(pim_s)


@kernel
def begin(
    c: NDArray[np.float64],
    pim_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
) -> tuple[float, int]:
    """Solve the relaxation; write reduced costs and its sides. Return (its value, the split class)."""
    order, start, cost = ints[_ORDER], ints[_START], floats[_COST]
    classes = len(number)
    value, theta, weight, at = relax(c, pim_s, number, copies, seconds, classes, order)
    for d in range(classes):
        cost[d] = abs(weight * step_s(c, theta, number[d]) - (1.0 - weight) * seconds[d])
        start[d] = 0
    split = order[min(at, classes - 1)]
    experts, tokens = 0, 0
    for i in range(at if weight < 1.0 else 0):
        d = order[i]
        if d != split:
            start[d] = copies[d]
            experts += copies[d]
            tokens += copies[d] * number[d]
            pim_s -= copies[d] * seconds[d]
    floats[_USED, 0], floats[_EXPERTS, 0], floats[_TOKENS, 0], floats[_PIM, 0] = 0.0, experts, tokens, pim_s
    return value, split


@kernel
def partition_pool(
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    number: NDArray[np.int64],
    copies: NDArray[np.int64],
    seconds: NDArray[np.float64],
    nodes: int,
    chosen: NDArray[np.int64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
) -> tuple[float, float, int]:
    """Write how many experts of each class go to the GPU; return (T_total, bound, nodes used).

    The bound equals T_total where the search came to its end within `nodes`. Workspaces: `floats`
    [FLOAT_ROWS, classes + 1], `ints` [INT_ROWS, classes + 1].
    """
    pim_s, idle_gpu_s = attention_s, c[FIXED] + max(c[MEMORY], c[COMPUTE])
    for d in range(len(number)):
        pim_s += copies[d] * seconds[d]
        chosen[d] = 0
    best_s = float(max(comm_s, idle_gpu_s, pim_s))
    bound_s = max(comm_s, idle_gpu_s, attention_s)
    if len(number) == 0 or best_s <= bound_s * (1.0 + EXACT):
        return best_s, best_s, 0
    value, split = begin(c, pim_s, number, copies, seconds, floats, ints)
    whole_s = whole_tokens_s(c, pim_s, number, copies, seconds, ints[_ACTIVE])
    # The relaxation holds where the GPU has an expert; where it has none, T_total is best_s itself.
    bound_s = max(bound_s, min(best_s, max(value, whole_s)))
    if best_s <= bound_s * (1.0 + EXACT):
        return best_s, best_s, 0
    left, share = nodes, _WIDEN ** (_ROUNDS - 1)
    args = (number, copies, seconds, chosen, floats, ints)
    floats[_PIM_FALL, 0], floats[_GPU_FALL, 0] = np.inf, 0.0
    best_s, left = search(c, comm_s, value, 0.0, split, 0, left, bound_s, best_s, *args)
    for _ in range(_ROUNDS):
        if best_s <= bound_s * (1.0 + EXACT):
            return best_s, best_s, nodes - left
        limit = (best_s - value) / share
        share /= _WIDEN
        count = activate(c, limit, split, number, copies, seconds, floats, ints)
        best_s, left = search(c, comm_s, value, limit, split, count, left, bound_s, best_s, *args)
        if left < 0:
            break
        bound_s = max(bound_s, min(best_s, value + limit))
    return best_s, best_s if best_s <= bound_s * (1.0 + EXACT) else bound_s, nodes - max(left, 0)


@kernel
def split_pool(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    nodes: int,
    histogram: NDArray[np.int64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> tuple[float, float, int]:
    """Write which experts go to the GPU; return (T_total, bound, nodes used; -1: a count is negative).

    The bound equals T_total where the search came to its end within `nodes`. Workspaces: `histogram` all
    zero, `floats` [FLOAT_ROWS, experts + 1], `ints` [INT_ROWS, experts + 1].
    """
    number, copies, chosen, seconds = ints[_NUMBER], ints[_COPIES], ints[_CHOSEN], floats[_SECONDS]
    k = count_classes(tokens, table, histogram, number, copies, seconds)
    if k < 0:
        return 0.0, 0.0, -1
    total_s, bound_s, used = partition_pool(
        c, attention_s, comm_s, number[:k], copies[:k], seconds[:k], nodes, chosen[:k], floats, ints
    )
    write_mask(tokens, histogram, number, chosen, k, mask)
    return total_s, bound_s, used


@kernel
def relaxation_s(
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    homes: int,
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    histogram: NDArray[np.int64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
) -> float:
    """Bound T_total by the linear relaxation, with the average of all homes in place of the busiest."""
    number, copies, seconds = ints[_NUMBER], ints[_COPIES], floats[_SECONDS]
    k = count_classes(tokens, table, histogram, number, copies, seconds)
    all_on_pim_s = attention_s
    for d in range(k):
        seconds[d] /= homes
        all_on_pim_s += copies[d] * seconds[d]
    bound_s = float(max(comm_s, attention_s, c[FIXED] + max(c[MEMORY], c[COMPUTE])))
    if k == 0:
        return bound_s
    value, _ = begin(c, all_on_pim_s, number[:k], copies[:k], seconds[:k], floats, ints)
    return float(max(bound_s, min(all_on_pim_s, value)))
