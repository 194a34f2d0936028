"""Load-aware fetch against a twin that moves one token at a time, and its promises as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moeplan.common.errors import UsageError
from moeplan.schedule.fetch import Fetched, fetch, latency_curve


def run(counts, core_of, **how) -> Fetched:
    """One layer: counts [S, E]."""
    return fetch(np.asarray(counts)[:, None], np.asarray(core_of), **how)


def twin(counts, core_of, cores, groups, width, depth, narrow):
    """The same rules, token by token and round by round: who runs in which turn."""
    queue = [(batch, e) for batch, row in enumerate(counts) for e, n in enumerate(row) for _ in range(n)]
    ran, all_rounds, all_jobs = [], [], []
    for turn in range(len(counts)):
        window = [token for token in queue if turn <= token[0] <= turn + depth]
        jobs: list[list[list[tuple[int, int]]]] = [[] for _ in range(cores)]
        for expert, core in enumerate(core_of):
            due = [token for token in window if token == (turn, expert)]
            for first in range(0, len(due), width):
                jobs[core].append(due[first : first + width])
        for core in range(cores):
            for job in jobs[core]:
                window = [token for token in window if token not in job]
        rounds = max(-(-len(issued) // groups) for issued in jobs)
        for core in range(cores):
            for job in jobs[core]:
                while len(job) < width:
                    same = [token for token in window if token[1] == job[0][1]]
                    if not same:
                        break
                    window.remove(min(same))
                    job.append(min(same))
            while len(jobs[core]) < rounds * groups:
                queued = {
                    e: [t for t in window if t[1] == e] for e in range(len(core_of)) if core_of[e] == core
                }
                longest = max(queued, key=lambda e: (len(queued[e]), -e), default=None)
                if longest is None or len(queued[longest]) < (1 if narrow else width):
                    break
                job = sorted(queued[longest])[:width]
                jobs[core].append(job)
                for token in job:
                    window.remove(token)
        for issued in jobs:
            for job in issued:
                for token in job:
                    queue.remove(token)
                    ran.append((token, turn))
        all_rounds.append(rounds)
        all_jobs.append([len(issued) for issued in jobs])
    assert not queue
    return all_rounds, all_jobs, ran


cases = st.integers(1, 4).flatmap(
    lambda experts: st.tuples(
        st.lists(
            st.lists(st.integers(0, 6), min_size=experts, max_size=experts), min_size=1, max_size=5
        ).filter(lambda rows: any(map(any, rows))),
        st.lists(st.integers(0, 1), min_size=experts, max_size=experts),
    )
)
knobs = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 4), st.booleans())


@settings(deadline=None, derandomize=True, max_examples=60)
@given(cases, knobs)
def test_equals_the_twin(case, how) -> None:
    (counts, core_of), (groups, width, depth, narrow) = case, how
    ours = run(counts, core_of, cores=2, groups=groups, width=width, depth=depth, narrow=narrow)
    rounds, jobs, ran = twin(counts, core_of, 2, groups, width, depth, narrow)
    assert ours.rounds[:, 0].tolist() == rounds
    assert ours.jobs[:, 0].tolist() == jobs
    lags = np.zeros_like(ours.lags[:, 0])
    for (batch, expert), turn in ran:
        lags[batch, batch - turn, expert] += 1
    assert ours.lags[:, 0].tolist() == lags.tolist()


@settings(deadline=None, derandomize=True, max_examples=60)
@given(cases, knobs)
def test_promises(case, how) -> None:
    (counts, core_of), (groups, width, depth, narrow) = case, how
    kept = {"cores": 2, "groups": groups, "width": width, "depth": depth}
    aware = run(counts, core_of, narrow=narrow, **kept)
    fifo = run(counts, core_of, policy="fifo", **kept)
    # Routing does not change: every token of every batch runs, on the expert that it chose.
    assert aware.lags.sum(axis=2)[:, 0].tolist() == counts
    assert fifo.lags[:, 0, 0].tolist() == counts
    # Nothing starves: `lags` has no room for tokens later than their own turn, and every one of them is
    # there; none waits for more turns than the queue is deep, nor for more rounds than in fifo order.
    assert (aware.rounds <= fifo.rounds).all()
    mean, longest = aware.waits()
    fifo_mean, fifo_longest = fifo.waits()
    assert mean <= fifo_mean + 1e-9
    assert longest <= fifo_longest
    window = [int(aware.rounds[max(0, turn - depth) : turn + 1].sum()) for turn in range(len(counts))]
    assert longest <= max(window)
    # No turn issues more jobs than its groups can run.
    assert (aware.jobs <= aware.rounds[:, :, None] * groups).all()


def test_by_hand() -> None:
    # Two cores of one group, tiles of two. Batch 0: four tokens on core 0 (two rounds), none on core 1,
    # which fetches its three of batch 1: a full tile, then a narrow one. Batch 1 has one left for core 0.
    counts, core_of = [[4, 0], [1, 3]], [0, 1]
    how = {"cores": 2, "groups": 1, "width": 2, "depth": 1}
    fifo = run(counts, core_of, policy="fifo", **how)
    assert fifo.rounds[:, 0].tolist() == [2, 2]
    assert fifo.jobs[:, 0].tolist() == [[2, 0], [1, 2]]
    assert fifo.occupancy == pytest.approx(5 / 8)
    assert fifo.ideal_mfu == pytest.approx(8 / 10)
    # In fifo order batch 1 waits for two rounds, then its own two: 4 x 2 rounds and 4 x 4.
    assert fifo.waits() == (pytest.approx((4 * 2 + 4 * 4) / 8), 4)
    aware = run(counts, core_of, **how)
    assert aware.rounds[:, 0].tolist() == [2, 1]
    assert aware.jobs[:, 0].tolist() == [[2, 2], [1, 0]]
    assert aware.lags[1, 0].tolist() == [[1, 0], [0, 3]]
    assert aware.occupancy == pytest.approx(5 / 6)
    assert aware.actual_mfu == pytest.approx(8 / (3 * 2 * 2))
    # Seven tokens are done after two rounds, one after three.
    assert aware.waits() == (pytest.approx((7 * 2 + 3) / 8), 3)
    # Full tiles only: two of the three go early.
    full = run(counts, core_of, narrow=False, **how)
    assert full.lags[1, 0].tolist() == [[1, 1], [0, 2]]
    assert full.jobs[:, 0].tolist() == [[2, 1], [1, 1]]


def test_a_tile_is_filled_up_with_the_oldest_tokens() -> None:
    # One token of batch 0 leaves room for three: two of batch 1 and one of batch 2.
    ours = run([[1], [2], [4]], [0], cores=1, groups=1, width=4, depth=2)
    assert ours.lags[:, 0, :, 0].tolist() == [[1, 0, 0], [0, 2, 0], [3, 0, 1]]
    assert ours.rounds[:, 0].tolist() == [1, 0, 1]


def test_curve() -> None:
    rng = np.random.default_rng(5)
    counts = rng.poisson(rng.lognormal(0.0, 1.0, 16) * 2.0, size=(12, 2, 16))
    points = latency_curve(counts, np.arange(16) // 4, cores=4, groups=2, width=4, depths=(0, 2, 4))
    fifo = [point for point in points if point.policy == "fifo"]
    aware = [point for point in points if point.policy == "load-aware"]
    # A deeper queue changes nothing in fifo order but the wait.
    assert len({(p.ideal_mfu, p.occupancy, p.rounds) for p in fifo}) == 1
    assert fifo[0].mean_wait < fifo[1].mean_wait < fifo[2].mean_wait
    assert (aware[0].occupancy, aware[0].rounds) == (fifo[0].occupancy, fifo[0].rounds)
    assert aware[2].actual_mfu > fifo[0].actual_mfu


def test_layers_have_cores_of_their_own() -> None:
    counts = np.array([[[4, 4], [4, 4]]])
    ours = fetch(counts, np.array([[0, 0], [0, 1]]), cores=2, groups=1, width=4, depth=0)
    assert ours.rounds.tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"groups": 0}, "groups must be at least 1"),
        ({"depth": -1}, "depth must be at least 0"),
        ({"policy": "lifo"}, "unknown policy 'lifo'"),
        ({"cores": 1}, "lies on no core"),
        ({"core_of": [0]}, "do not fit"),
        ({"counts": [[[0, 0]]]}, "needs token counts"),
        ({"counts": [[0, 1]]}, "needs token counts"),
    ],
)
def test_what_cannot_be_is_refused(change, words) -> None:
    how = {"counts": [[[1, 2]]], "core_of": [0, 1], "cores": 2, "groups": 1, "width": 4, "depth": 1} | change
    with pytest.raises(UsageError, match=words):
        fetch(np.asarray(how.pop("counts")), np.asarray(how.pop("core_of")), **how)
