"""Clusters on which tasks run: joined where an address is given, else local ones that end with the work."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .errors import MissingLibrary, UsageError

if TYPE_CHECKING:
    from .execution import Execution

#: What joblib is told of a backend.
Engine = dict[str, Any]
ResultT = TypeVar("ResultT")
#: How long an address may take to take a call, and its cluster to answer one.
_CALL_S: Final = 5.0
_ANSWER_S: Final = 30.0
#: joblib would run a single job in the process that asks.
LEAST_JOBS: Final = 2


@contextmanager
def open_cluster(where: Execution) -> Iterator[Engine]:
    """Yield joblib's name of the backend and what it needs; take a local cluster down again at the end."""
    if where.backend == "dask":
        with _dask(where) as client:
            yield {"backend": "dask", "client": client}
    elif where.backend == "ray":
        with _ray(where):
            yield {"backend": "ray"}
    else:
        yield {"backend": "threading" if where.in_process else "loky"}


@contextmanager
def deaf() -> Iterator[None]:
    """Start processes that do not hear Ctrl-C: a terminal sends it to all, and this one stops the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited, unlike a mask, which spawning lifts
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _dask(where: Execution) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise _missing("dask") from error
    if where.address:
        try:
            client = _within(_ANSWER_S, lambda: Client(where.address, timeout="10s"))
        except (OSError, ValueError, MemoryError) as error:  # another service's answer may read as a huge one
            raise _no_answer(where) from error
        with client:
            yield client
        return
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    with (
        LocalCluster(
            n_workers=where.jobs,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # any port, of which nobody else knows
            preload=[ignore],  # see deaf(); their nanny starts them again where they are lost
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _ray(where: Execution) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise _missing("ray") from error
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if where.address:
            _call(where.address)
            _within(_ANSWER_S, lambda: ray.init(address=where.address, **quiet))
        else:  # "local": Ray would take the cluster of the environment variable RAY_ADDRESS
            ray.init(address="local", num_cpus=max(where.jobs, LEAST_JOBS), include_dashboard=False, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_answer(where) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in its place
    try:
        if ray.cluster_resources().get("CPU", 0) < LEAST_JOBS:
            raise UsageError(
                f"the ray cluster has fewer than {LEAST_JOBS} CPUs", where=f"--address {where.address}"
            )
        register_ray()
        yield
    finally:
        ray.shutdown()


def _call(address: str) -> None:
    """Raise OSError where nobody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CALL_S).close()


def _within(seconds: float, connect: Callable[[], ResultT]) -> ResultT:
    """Return what `connect` returns or raise what it raises; TimeoutError where it takes too long."""
    done: list[ResultT] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(connect())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    return done[0]


def _missing(backend: str) -> MissingLibrary:
    return MissingLibrary(
        f"the backend {backend} needs a library that is not installed",
        where="--backend",
        fix=f"pip install 'moeplan[{backend}]'",
    )


def _no_answer(where: Execution) -> UsageError:
    return UsageError(
        f"no {where.backend} cluster answers",
        where=f"--address {where.address}" if where.address else "a local cluster",
        fix="start its scheduler, or leave out --address for a local one",
    )
