"""The same results wherever tasks run; failures are named, lost workers are survived."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from moeplan.common.errors import BadInput, MissingLibrary, UsageError
from moeplan.common.execution import BACKENDS, Done, Execution, Failure, run_tasks

NEEDS = {"dask": "distributed", "ray": "ray"}


def backends():
    for name in BACKENDS:
        module = NEEDS.get(name)
        missing = module is not None and importlib.util.find_spec(module) is None
        skip = pytest.mark.skipif(missing, reason=f"the extra {name} is not installed")
        yield pytest.param(name, marks=[skip, pytest.mark.xdist_group("clusters")])


# Tasks are made inside functions so that they travel by value: workers cannot import this module.


def product():
    def times(array, key):
        return float(array.sum()) * key

    return times


def faulty():
    def task(key):
        if key == 2:
            raise BadInput("no such layer", fix="name another")
        if key == 3:
            raise ZeroDivisionError("a bug")
        return key

    return task


def killing_once(folder):
    """Kill the worker of task 1 on its first try, as an administrator or the kernel might."""

    def task(key):
        flag = Path(folder) / "killed"
        if key == 1 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return key

    return task


def killing_always():
    def task(key):
        if key == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return key

    return task


@pytest.mark.parametrize("backend", list(backends()))
def test_same_results_in_the_same_order(backend):
    array = np.arange(400_000, dtype=np.float64)
    found = list(run_tasks(partial(product(), array), [5, 3, 4], Execution(backend, jobs=2)))
    total = 400_000 * 399_999 / 2
    assert found == [Done(5, 5 * total), Done(3, 3 * total), Done(4, 4 * total)]


@pytest.mark.parametrize("backend", list(backends()))
def test_failures_carry_their_key_and_do_not_sink_the_rest(backend):
    found = {done.key: done.result for done in run_tasks(faulty(), [1, 2, 3, 4], Execution(backend, jobs=2))}
    assert (found[1], found[4]) == (1, 4)
    assert isinstance(found[2], Failure)
    assert isinstance(found[2].error, BadInput)
    assert found[2].error.fix == "name another"
    assert found[3] == Failure("ZeroDivisionError: a bug", bug=True)


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] != "threads"])
def test_a_lost_worker_is_survived(backend, tmp_path):
    keys = list(range(4))
    found = list(run_tasks(killing_once(str(tmp_path)), keys, Execution(backend, jobs=2)))
    assert found == [Done(key, key) for key in keys]
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] != "threads"])
def test_what_kills_its_workers_is_named(backend):
    found = {
        done.key: done.result for done in run_tasks(killing_always(), range(4), Execution(backend, jobs=2))
    }
    assert isinstance(found.pop(2), Failure)
    assert found == {0: 0, 1: 1, 3: 3}


def test_an_interrupt_ends_tasks_elsewhere():
    stop = threading.Event()
    stop.set()
    assert list(run_tasks(faulty(), [1, 4], Execution("loky", jobs=2), stop)) == []


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] in ("loky", "dask")])
def test_an_interrupt_does_not_wait_for_the_tasks_under_way(backend):
    """Tasks 2 and 3 would take minutes; nothing of them arrives."""

    def task(key):
        import time

        time.sleep(0.1 if key < 2 else 300.0)
        return key

    stop, found = threading.Event(), []
    for done in run_tasks(task, range(4), Execution(backend, jobs=2), stop):
        found.append(done.key)
        if done.key == 1:
            threading.Timer(0.5, stop.set).start()
    assert found == [0, 1]


def test_one_job_in_threads_stays_in_this_thread():
    found = list(run_tasks(lambda key: threading.get_ident(), [1], Execution()))
    assert found[0].result == threading.get_ident()


def test_what_cannot_be_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="dask"):
        Execution("dusk")
    with pytest.raises(UsageError, match="no address"):
        Execution("loky", address="tcp://localhost:1")
    with pytest.raises(UsageError, match="at least one"):
        Execution(jobs=0)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_missing_library_is_named(backend, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, NEEDS[backend], None)
    with pytest.raises(MissingLibrary, match=f"moeplan\\[{backend}\\]"):
        list(run_tasks(faulty(), [1], Execution(backend, jobs=1)))


ORPHANED = """\
import os, sys, time
from moeplan.common.execution import Execution, run_tasks

def make(folder):
    def task(key):
        open(f"{folder}/{os.getpid()}", "w").close()
        time.sleep(60)
    return task

list(run_tasks(make(sys.argv[1]), [1, 2], Execution("loky", jobs=2)))
"""


def test_workers_end_with_the_process_that_is_killed(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", ORPHANED, str(tmp_path)])
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    parent.kill()
    parent.wait()
    while any(map(_runs, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(workers) == 2
    assert not any(map(_runs, workers))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def closed_port():
    """A port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] == "ray"])
def test_where_nobody_listens_no_cluster_answers(backend, closed_port):
    where = Execution(backend, address=f"127.0.0.1:{closed_port}")
    with pytest.raises(UsageError, match="no ray cluster answers"):
        list(run_tasks(faulty(), [1], where))


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] in NEEDS])
def test_who_listens_but_is_no_cluster_is_not_waited_for(backend, monkeypatch):
    from moeplan.common import cluster

    monkeypatch.setattr(cluster, "_ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = Execution(backend, address=f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UsageError, match="cluster answers"):
            list(run_tasks(faulty(), [1], where))


@pytest.mark.parametrize("backend", [b for b in backends() if b.values[0] == "ray"])
def test_a_cluster_leaves_the_handlers_of_signals(backend):
    """With a single job, which joblib would run here."""
    before = signal.getsignal(signal.SIGTERM)
    for _ in run_tasks(faulty(), [1], Execution(backend)):
        assert signal.getsignal(signal.SIGTERM) is before
