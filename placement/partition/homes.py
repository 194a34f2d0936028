"""Partition with a home channel per expert (layout ep): T_pim is the busiest channel.

A channel that may be busy until T needs certain experts moved away. Which are moved at the least GPU time is
a matter of the channel alone, so for every T the cheapest partition whose channels end by T is known: at one
weight between memory and computation by taking each channel's cheapest choice, and exactly by a table over
the number of experts on the GPU. Where its GPU time is above T, no partition is done by T; where it is not,
there is one. Halving what lies between bound and best, and jumping to the next value that a channel or the
GPU can take, ends in a proof.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...common.jit import kernel
from .branch import EXACT
from .kernels import COMPUTE, EXPERT, FIRST, FIXED, FLOP, MEMORY, TOKEN, gpu_s, table_s

#: Experts that a channel may have at work, because choices are bit sets over them.
MOST_PER_HOME = 62
#: Choices of all channels together beyond which nothing is listed.
MOST_CHOICES = 1 << 22
#: Instances in ordinary numbers are proven after tens; seconds next to the smallest float leave no middle.
_HALVINGS = 200


@kernel
def gather(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    home_start: NDArray[np.int64],
    home_experts: NDArray[np.int64],
    start: NDArray[np.int64],
    member: NDArray[np.int64],
    number: NDArray[np.int64],
    seconds: NDArray[np.float64],
) -> float:
    """Write the experts with tokens of every home, most tokens first; return how many choices there are.

    `start` [homes + 1] is the CSR index into the others, [E] each. inf: a home has too many experts; -1.0: a
    count is negative.
    """
    total, found = 0.0, 0
    for h in range(len(home_start) - 1):
        start[h] = found
        for i in range(home_start[h], home_start[h + 1]):
            n = tokens[home_experts[i]]
            if n < 0:
                return -1.0
            if n == 0:
                continue
            j = found
            while j > start[h] and number[j - 1] < n:
                number[j], member[j] = number[j - 1], member[j - 1]
                j -= 1
            number[j], member[j] = n, home_experts[i]
            found += 1
        if found - start[h] > MOST_PER_HOME:
            return np.inf
        choices, run = 1.0, 0
        for j in range(start[h], found):
            seconds[j] = table_s(table, number[j])
            run = run + 1 if j > start[h] and number[j] == number[j - 1] else 1
            choices *= (run + 1.0) / run
        total += round(choices)
    start[len(home_start) - 1] = found
    return total


@kernel
def list_choices(
    start: NDArray[np.int64],
    number: NDArray[np.int64],
    seconds: NDArray[np.float64],
    attention_s: float,
    choice_start: NDArray[np.int64],
    experts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    load_s: NDArray[np.float64],
    bits: NDArray[np.int64],
) -> None:
    """Write every choice of every home: how many experts and tokens leave, how long the channel then works.

    Of equal experts the first ones leave, so that no choice comes twice.
    """
    found = 0
    for h in range(len(start) - 1):
        first = choice_start[h] = found
        experts[found] = tokens[found] = bits[found] = 0
        load_s[found] = attention_s
        for j in range(start[h], start[h + 1]):
            load_s[found] += seconds[j]
        found += 1
        j = start[h]
        while j < start[h + 1]:
            copies = 1
            while j + copies < start[h + 1] and number[j + copies] == number[j]:
                copies += 1
            known = found
            for k in range(1, copies + 1):
                leaving = ((1 << k) - 1) << (j - start[h])
                for i in range(first, known):
                    experts[found], tokens[found] = experts[i] + k, tokens[i] + k * number[j]
                    load_s[found], bits[found] = load_s[i] - k * seconds[j], bits[i] | leaving
                    found += 1
            j += copies
        load_s[found - 1] = attention_s  # all leave: free of the rounding of sums
    choice_start[len(start) - 1] = found


@kernel
def cheapest(
    c: NDArray[np.float64],
    theta: float,
    until_s: float,
    choice_start: NDArray[np.int64],
    experts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    load_s: NDArray[np.float64],
    pick: NDArray[np.int64],
) -> tuple[float, float]:
    """Pick for every home its cheapest choice that ends by `until_s`, at one weight of the two GPU forms.

    Returns (GPU form of all picks, the next time after `until_s` at which a choice ends).
    """
    per_expert, per_token = theta * c[EXPERT], theta * c[TOKEN] + (1.0 - theta) * c[FLOP]
    total = c[FIXED] + c[FIRST] + theta * c[MEMORY] + (1.0 - theta) * c[COMPUTE]
    following_s = np.inf
    for h in range(len(choice_start) - 1):
        best, chosen = np.inf, -1
        for i in range(choice_start[h], choice_start[h + 1]):
            if load_s[i] > until_s:
                following_s = min(following_s, load_s[i])
                continue
            cost = per_expert * experts[i] + per_token * tokens[i]
            if cost < best:
                best, chosen = cost, i
        total += best
        pick[h] = chosen
    return total, following_s


@kernel
def cheapest_exactly(
    c: NDArray[np.float64],
    until_s: float,
    choice_start: NDArray[np.int64],
    experts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    load_s: NDArray[np.float64],
    pick: NDArray[np.int64],
) -> tuple[float, float]:
    """Pick as `cheapest` does, at the least of the larger GPU form.

    `fewest[k]` is the least number of tokens on the GPU with k experts there, over the homes so far.
    """
    homes = len(choice_start) - 1
    most = 0
    for h in range(homes):
        most += experts[choice_start[h + 1] - 1]
    none = np.iinfo(np.int64).max // 4
    fewest = np.full(most + 1, none)
    fewest[0] = 0
    choice = np.empty((homes, most + 1), dtype=np.int64)
    following_s, reached = np.inf, 0
    for h in range(homes):
        grown = np.full(most + 1, none)
        for i in range(choice_start[h], choice_start[h + 1]):
            if load_s[i] > until_s:
                following_s = min(following_s, load_s[i])
                continue
            for k in range(reached + 1):
                if fewest[k] + tokens[i] < grown[k + experts[i]]:
                    grown[k + experts[i]] = fewest[k] + tokens[i]
                    choice[h, k + experts[i]] = i
        reached += experts[choice_start[h + 1] - 1]
        fewest = grown
    best, k = np.inf, 0
    for candidate in range(most + 1):
        if fewest[candidate] < none:
            total = gpu_s(c, max(candidate, 1), fewest[candidate])
            if total < best:
                best, k = total, candidate
    for h in range(homes - 1, -1, -1):
        pick[h] = choice[h, k]
        k -= experts[pick[h]]
    return best, following_s


@kernel
def measure(
    c: NDArray[np.float64],
    comm_s: float,
    experts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    load_s: NDArray[np.float64],
    pick: NDArray[np.int64],
) -> float:
    """T_total of picked choices."""
    moved, routed, busiest_s = 0, 0, 0.0
    for i in pick:
        moved += experts[i]
        routed += tokens[i]
        busiest_s = max(busiest_s, load_s[i])
    return max(comm_s, gpu_s(c, moved, routed), busiest_s)


@kernel
def partition_homes(
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    exactly: bool,
    choice_start: NDArray[np.int64],
    experts: NDArray[np.int64],
    tokens: NDArray[np.int64],
    load_s: NDArray[np.float64],
    chosen: NDArray[np.int64],
    pick: NDArray[np.int64],
) -> tuple[float, float, int]:
    """Write every home's choice; return (T_total, bound, partitions looked at).

    With `exactly` the bound meets T_total in the end; without, it may not where memory and computation bind
    the GPU at the same time.
    """
    for h in range(len(chosen)):
        chosen[h], pick[h] = choice_start[h], choice_start[h + 1] - 1  # nothing leaves, everything leaves
    best_s = measure(c, comm_s, experts, tokens, load_s, chosen)
    all_leave_s = measure(c, comm_s, experts, tokens, load_s, pick)
    if all_leave_s < best_s:
        best_s = all_leave_s
        chosen[:] = pick
    bound_s = max(comm_s, attention_s, c[FIXED] + max(c[MEMORY], c[COMPUTE]))
    stage, looked = 0, 0  # 0: memory binds, 1: computation binds, 2: both
    while looked < _HALVINGS and best_s > bound_s * (1.0 + EXACT):
        until_s = max(attention_s, 0.5 * (bound_s + best_s))
        if stage < 2:
            gpu, following_s = cheapest(c, 1.0 - stage, until_s, choice_start, experts, tokens, load_s, pick)
        else:
            gpu, following_s = cheapest_exactly(c, until_s, choice_start, experts, tokens, load_s, pick)
        looked += 1
        total_s = measure(c, comm_s, experts, tokens, load_s, pick)
        if total_s < best_s:
            best_s = total_s
            chosen[:] = pick
        if gpu > until_s:
            bound_s = max(bound_s, min(best_s, gpu, following_s))
        elif total_s > until_s:
            stage += 1
            if stage == 2 and not exactly:
                break
    return best_s, best_s if best_s <= bound_s * (1.0 + EXACT) else bound_s, looked


@kernel
def write_home_mask(
    start: NDArray[np.int64],
    member: NDArray[np.int64],
    bits: NDArray[np.int64],
    chosen: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> None:
    """Put the experts of the chosen sets on the GPU."""
    mask[:] = False
    for h in range(len(chosen)):
        leaving = bits[chosen[h]]
        for j in range(start[h], start[h + 1]):
            mask[member[j]] = (leaving >> (j - start[h])) & 1 == 1


@kernel
def split_homes(
    tokens: NDArray[np.int64],
    table: NDArray[np.float64],
    c: NDArray[np.float64],
    attention_s: float,
    comm_s: float,
    exactly: bool,
    home_start: NDArray[np.int64],
    home_experts: NDArray[np.int64],
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
    mask: NDArray[np.bool_],
) -> tuple[float, float, int]:
    """Write which experts go to the GPU; return (T_total, bound, partitions looked at).

    -1: a count is negative; -2: too many choices to list. `home_start` [homes + 1] and `home_experts` [E] are
    the experts of every home. Workspaces: `floats` [E], `ints` [6, max(E, homes + 1)].
    """
    homes = len(home_start) - 1
    start, member, number, first = ints[0][: homes + 1], ints[1], ints[2], ints[3][: homes + 1]
    chosen, pick = ints[4][:homes], ints[5][:homes]
    count = gather(tokens, table, home_start, home_experts, start, member, number, floats)
    if count < 0.0:
        return 0.0, 0.0, -1
    if count > MOST_CHOICES:
        return 0.0, 0.0, -2
    leaving = np.empty((3, int(count)), dtype=np.int64)
    load_s = np.empty(int(count))
    experts, routed, bits = leaving[0], leaving[1], leaving[2]
    list_choices(start, number, floats, attention_s, first, experts, routed, load_s, bits)
    total_s, bound_s, looked = partition_homes(
        c, attention_s, comm_s, exactly, first, experts, routed, load_s, chosen, pick
    )
    write_home_mask(start, member, bits, chosen, mask)
    return total_s, bound_s, looked
