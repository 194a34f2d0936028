"""Answers on disk: found again, never trusted blindly, safe under many writers."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moeplan.common.errors import BadInput, UsageError
from moeplan.hardware.topology import without
from moeplan.placement import Budget, Stop
from moeplan.placement.ring import order as order_module
from moeplan.placement.ring.cache import Request, RingCache, user_cache_folder
from moeplan.placement.ring.order import best_ring, ring_order
from moeplan.placement.ring.problem import RingOrder, RingProblem

from .instances import grid

CORES = (0, 1, 3, 4, 6, 9, 10, 11, 17, 19, 21, 22)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOEPLAN_CACHE", str(tmp_path / "user"))


@pytest.fixture
def cache(tmp_path):
    return RingCache(tmp_path / "rings")


@pytest.fixture
def no_solving(monkeypatch):
    """Make every solve after this fail the test."""

    def refuse(*_, **__):
        raise AssertionError("the answer is known")

    return lambda: monkeypatch.setattr(order_module, "solve", refuse)


def only_file(cache: RingCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_an_answer_is_found_again(cache, no_solving):
    problem = RingProblem(grid(4, 8), CORES)
    first = best_ring(problem, cache=cache)
    no_solving()
    again = best_ring(RingProblem(grid(4, 8), CORES[::-1]), cache=cache)
    assert again.decision == first.decision
    assert (again.cost, again.bound, again.stop) == (first.cost, first.bound, Stop.OPTIMAL)
    # Another message has the same best ring; what it costs is counted afresh.
    longer = best_ring(RingProblem(grid(4, 8), CORES, message_bytes=1e6), cache=cache)
    assert longer.decision == first.decision
    assert longer.cost.total_s > first.cost.total_s


def test_other_questions_are_other_files(cache):
    for problem in (
        RingProblem(grid(4, 8), CORES),
        RingProblem(grid(4, 8), CORES, objective="hops"),
        RingProblem(grid(4, 8, "half"), CORES),
        RingProblem(grid(4, 8), CORES[1:]),
        RingProblem(without(grid(4, 8), links=[(0, 1)]), CORES),
    ):
        best_ring(problem, cache=cache)
    best_ring(RingProblem(grid(4, 8), CORES), seed=1, cache=cache)
    assert len(list(cache.folder.iterdir())) == 6


def spoil_order(entry):
    entry["order"][:2] = entry["order"][1::-1]


def spoil_bound(entry):
    entry["bound"] += 1.0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b"null", b"\xff\xfe", b'{"order": "0,1"}', spoil_order, spoil_bound],
)
def test_a_corrupt_entry_is_ignored_and_written_again(cache, content):
    problem = RingProblem(grid(4, 8), CORES)
    first = best_ring(problem, cache=cache)
    path = only_file(cache)
    sound = path.read_bytes()
    if callable(content):
        entry = json.loads(sound)
        content(entry)
        content = json.dumps(entry).encode()
    path.write_bytes(content)
    assert best_ring(problem, cache=cache).decision == first.decision
    assert path.read_bytes() == sound


def test_an_entry_for_other_cores_is_not_taken(cache):
    mine, other = RingProblem(grid(4, 8), CORES), RingProblem(grid(4, 8), tuple(core + 1 for core in CORES))
    result = best_ring(other, cache=cache)
    name = Request(mine, "auto", Budget(), 0).name
    only_file(cache).rename(cache.folder / name)
    assert best_ring(mine, cache=cache).decision != result.decision


def test_unproven_answers_are_kept_only_if_they_repeat(cache):
    problem = RingProblem(grid(4, 8), tuple(range(31)))
    for budget, kept in ((Budget(time_s=1e-6), 0), (Budget(time_s=None, iterations=1), 1)):
        result = best_ring(problem, budget=budget, cache=cache)
        assert result.stop in (Stop.TIME_LIMIT, Stop.ITERATION_LIMIT)
        assert len(list(cache.folder.iterdir())) == kept
    again = best_ring(problem, budget=Budget(time_s=None, iterations=1), cache=cache)
    assert again.stop is Stop.ITERATION_LIMIT
    assert best_ring(problem, cache=cache).stop is Stop.OPTIMAL


WRITER = """
import sys
from moeplan.hardware.topology import mesh
from moeplan.placement.ring.cache import Request, RingCache
from moeplan.placement.ring.problem import RingOrder, RingProblem
from moeplan.placement import Bound, Budget, Result, Stop
from pathlib import Path
topology = mesh(4, 8, link_bandwidth_bytes_per_s=1e9, hop_latency_s=4e-9)
problem, cache = RingProblem(topology, tuple(range(32))), RingCache(Path(sys.argv[1]))
ring = RingOrder(tuple(range(32)))
cost, bound = problem.evaluate(ring), Bound(1.0, "test")
result = Result(ring, cost, None, bound, Stop.ITERATION_LIMIT, "auto", 0, 1, 0.0, (), "")
request = Request(problem, "auto", Budget(time_s=None, iterations=7), 0)
missing = 0
for _ in range(150):
    cache.write(request, result)
    missing += cache.read(request) is None
print(missing)
"""


def test_many_writers(cache):
    def write(_):
        command = [sys.executable, "-c", WRITER, str(cache.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == ["0"] * 4
    assert only_file(cache).suffix == ".json"  # and no temporary file is left


def test_folders(tmp_path, monkeypatch):
    assert user_cache_folder() == tmp_path / "user"
    monkeypatch.delenv("MOEPLAN_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_cache_folder() == Path("/elsewhere/moeplan")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert user_cache_folder() == Path.home() / "Library" / "Caches" / "moeplan"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert user_cache_folder() == Path("/local/moeplan/cache")


def test_a_folder_that_cannot_be(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot make the cache folder"):
        RingCache(tmp_path / "file" / "rings")
    # The user's own cache is a help, not a condition.
    monkeypatch.setenv("MOEPLAN_CACHE", str(tmp_path / "file"))
    result = best_ring(RingProblem(grid(4, 8), CORES), cache=RingCache())
    assert result.stop is Stop.OPTIMAL


def test_orders_for_collectives(tmp_path, no_solving):
    topology = grid(4, 8)
    general = ring_order(topology, CORES)
    problem = RingProblem(topology, CORES)
    assert problem.measure(RingOrder(general)) == problem.measure(best_ring(problem).decision)
    assert len(list((tmp_path / "user" / "rings").iterdir())) == 1
    no_solving()
    assert ring_order(topology, CORES[::-1]) == general
    # Rectangles need no search: 8 x 2 is even, 3 x 3 is not.
    assert RingProblem(topology, tuple(range(16))).measure(RingOrder(ring_order(topology, range(16))))[
        :2
    ] == (1, 1)
    block = [r * 8 + c for r in range(3) for c in range(3)]
    assert RingProblem(topology, tuple(block)).measure(RingOrder(ring_order(topology, block)))[:2] == (1, 2)
    assert ring_order(topology, [9]) == (9,)


def test_a_broken_rectangle_is_searched():
    topology = without(grid(2, 4), links=[(0, 1)])
    ring = ring_order(topology, range(8))
    # 0 has one link left, to 4: its other neighbour in the ring is two hops away.
    assert RingProblem(topology, tuple(range(8))).measure(RingOrder(ring)).bottleneck_hops == 2


@pytest.mark.parametrize("cores", [[32], [0, 40], [1, 1], []])
def test_orders_of_no_cores(cores):
    with pytest.raises(UsageError):
        ring_order(grid(4, 8), cores)
