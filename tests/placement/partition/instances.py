"""Random instances of the partition family, and their optimum by trying everything."""

from __future__ import annotations

import itertools

import numpy as np

from moeplan.placement.partition import Decision, PartitionProblem


def instance(rng: np.random.Generator, most_experts: int = 14, homes: int | None = None) -> PartitionProblem:
    """A layer with an irregular cost table: noise, plateaus, steps down, or in proportion to the tokens."""
    experts = int(rng.integers(1, most_experts + 1))
    most = int(rng.choice([1, 2, 5, 40]))
    tokens = rng.integers(0, most + 1, experts)
    table = irregular_table(rng, most)
    coefficients = np.array(
        [
            rng.choice([0.0, 1.0]),  # constant of the GPU's other work
            rng.choice([0.0, 0.7]),  # constant of the first expert
            rng.random() * 2,  # other memory traffic
            rng.random() * 2,  # other computation
            rng.random() * 2,  # weights of an expert
            rng.random() * 0.2,  # activations of a token
            rng.random() * rng.choice([0.1, 1.0, 3.0]),  # computation of a token
        ]
    )
    attention_s, comm_s = rng.choice([0.0, 3 * rng.random()]), rng.choice([0.0, 3 * rng.random()])
    homes = int(rng.integers(1, 6)) if homes is None else homes
    home = rng.integers(0, homes, experts)
    return PartitionProblem(tokens, table, coefficients, float(attention_s), float(comm_s), home, homes)


def irregular_table(rng: np.random.Generator, most: int) -> np.ndarray:
    """PIM seconds of 0 to `most` tokens."""
    kind = rng.integers(4)
    if kind == 0:
        return np.arange(most + 1) * rng.random()
    values = rng.random(most) * rng.choice([1.0, 5.0])
    if kind == 1:
        values = np.round(values, 1)  # plateaus, zeros among them
    if kind == 2:
        values = np.sort(values)
    return np.concatenate([[0.0], values])


def brute_force_s(problem: PartitionProblem) -> float:
    """The least T_total over all subsets, from the definition (Sieve eq. 1), independent of `evaluate`."""
    subsets = np.array(list(itertools.product([0, 1], repeat=problem.experts)), dtype=np.float64)
    fixed, first, memory, compute, expert, token, flop = problem.coefficients
    active = (problem.tokens > 0).astype(np.float64)
    count, routed = subsets @ active, subsets @ problem.tokens
    gpu_s = fixed + first * (count > 0)
    gpu_s += np.maximum(memory + expert * count + token * routed, compute + flop * routed)
    seconds = problem.table[problem.tokens]
    busy_s = [((1 - subsets) @ (seconds * (problem.home == h))) for h in range(problem.homes)]
    pim_s = problem.attention_s + np.max(busy_s, axis=0)
    return float(np.maximum(np.maximum(gpu_s, pim_s), problem.comm_s).min())


def decided(problem: PartitionProblem, *on_gpu: int) -> Decision:
    """The decision that puts these experts on the GPU."""
    mask = np.zeros(problem.experts, dtype=bool)
    mask[list(on_gpu)] = True
    return Decision(mask)
