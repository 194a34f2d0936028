"""Means over instances, and what the tables say on a small sweep."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.benchmarks.partition_table import findings, policy_table, sweep, sweep_table
from moeplan.hardware.platform import load_platform
from moeplan.placement.partition.compare import COMPARED, compare, load_problems
from moeplan.placement.solve import solve
from moeplan.workload.load import Load
from moeplan.workload.model import load_model

from .instances import instance


def test_means_and_the_bound_of_all():
    rng = np.random.default_rng(9)
    problems = [instance(rng, 8) for _ in range(20)]
    means = {row.policy: row for row in compare(problems)}
    assert tuple(means) == COMPARED
    optimum_s = np.mean([solve(problem, "exact").cost.total_s for problem in problems])
    for row in means.values():
        assert row.bound_s == pytest.approx(optimum_s, rel=1e-8)
        assert row.gap == pytest.approx(1 - optimum_s / row.total_s, abs=1e-8)
    totals = [solve(problem, "sieve").cost.total_s for problem in problems]
    assert means["sieve"].total_s == pytest.approx(np.mean(totals), rel=1e-12)


def small_load() -> Load:
    experts = np.random.default_rng(1).integers(0, 8, (2, 4, 2, 1)).repeat(2, axis=3)
    return Load(experts, (0, 5), 8, "mixtral-8x7b", 4, False, "drawn at random")


def test_problems_of_a_load():
    load, model, platform = small_load(), load_model("mixtral-8x7b"), load_platform("b200-hbmpim")
    problems = list(load_problems(model, platform, load, comm_s=1e-6))
    assert [p.tokens.tolist() for p in problems] == load.counts().transpose(1, 0, 2).reshape(4, 8).tolist()
    assert all(p.attention_s > 0 and p.comm_s == 1e-6 for p in problems)
    assert [p.attention_s for p in load_problems(model, platform, load, layers=[5], context=0)] == [0.0, 0.0]


def test_tables():
    rows = list(sweep((1, 512)))
    assert len(rows) == 4 * 2 * 2
    assert all(row.ratio(policy) >= 1 - 1e-9 for row in rows for policy in row.means)
    assert len(sweep_table(rows).splitlines()) == 2 + len(rows)
    # Sieve: all of Mixtral on the GPU at large batches.
    assert "NoExp at batch 512" in next(text for text in findings(rows) if text.startswith("mixtral"))
    table = policy_table([("mine", "mixtral-8x7b", small_load())])
    assert [line.split(" | ")[2] for line in table.splitlines()[2:]] == list(COMPARED)
