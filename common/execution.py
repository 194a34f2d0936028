"""Independent tasks side by side: in threads, in processes, or on a Dask or Ray cluster, through joblib.

The order of results, and the results themselves, do not depend on where tasks run. A task that raises becomes
a `Failure` with its key and does not stop the others; tasks whose worker was lost run again, and one that
loses its worker again and again is reported as the cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from .errors import MissingLibrary, MoeplanError, UsageError, did_you_mean

Backend = Literal["threads", "loky", "dask", "ray"]
BACKENDS: Final = get_args(Backend)
#: How often a task may lose its worker.
ATTEMPTS: Final = 3

KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Execution:
    """Where tasks run: `jobs` at a time; `address` of a Dask scheduler or Ray head, "" for a local cluster.

    Raises UsageError where these do not go together.
    """

    backend: Backend = "threads"
    jobs: int = 1
    address: str = ""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UsageError(
                f"unknown backend {self.backend!r}",
                allowed=", ".join(BACKENDS),
                fix=did_you_mean(str(self.backend), BACKENDS),
            )
        if self.jobs < 1:
            raise UsageError(f"at least one task must run at a time, not {self.jobs}")
        if self.address and self.backend not in ("dask", "ray"):
            raise UsageError(
                f"the backend {self.backend} has no address", where="--address", fix="take dask or ray"
            )

    @property
    def in_process(self) -> bool:
        """Tell whether tasks share this process's memory."""
        return self.backend == "threads"


@dataclass(frozen=True)
class Failure:
    """Why a task has no result. `error` is our own error where it was one: bad input, say."""

    reason: str
    error: MoeplanError | None = None


@dataclass(frozen=True)
class Done(Generic[KeyT, ResultT]):
    """A task's key with its result, or with its failure."""

    key: KeyT
    result: ResultT | Failure


def run_tasks(
    task: Callable[[KeyT], ResultT],
    keys: Sequence[KeyT],
    where: Execution,
    interrupt: threading.Event | None = None,
) -> Iterator[Done[KeyT, ResultT]]:
    """Yield the outcome of `task(key)` for every key, in the order of `keys`, as early as that order allows.

    Off this process, `task` and its results are pickled: give it as a `functools.partial` of a module's
    function, with big arrays among its arguments (they are sent to each worker once). When `interrupt` is
    set, tasks off this process are given up and the iterator ends; threads run on, since a task here can hear
    the event itself. Raises MissingLibrary where the backend's library is not installed, UsageError where a
    cluster does not answer.
    """
    stop = interrupt or threading.Event()
    if where.in_process and where.jobs == 1:
        for key in keys:
            yield Done(key, _guarded(task, key))
        return
    with _cluster(where):
        yield from _retrying(task, list(keys), where, stop)


def _guarded(task: Callable[[KeyT], ResultT], key: KeyT) -> ResultT | Failure:
    try:
        return task(key)
    except MoeplanError as error:
        return Failure(str(error), error)
    except MemoryError:
        return Failure("it does not fit into memory")
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def _retrying(
    task: Callable[[KeyT], ResultT], left: list[KeyT], where: Execution, stop: threading.Event
) -> Iterator[Done[KeyT, ResultT]]:
    """Run rounds until nothing is left; a round ends early when a worker is lost.

    The first loss may be anyone's bad luck. After a second one without a result between, the tasks that were
    under way run alone, so that a task which kills its workers is found, and only it fails.
    """
    losses = 0
    while left and not stop.is_set():
        try:
            for key, result in zip(list(left), _round(task, left, where, where.jobs, stop), strict=False):
                left.remove(key)
                losses = 0
                yield Done(key, result)
        except _lost_worker(where):
            losses += 1
        if losses > 1:
            for key in left[: where.jobs]:
                left.remove(key)
                yield Done(key, _alone(task, key, where, stop))
            losses = 0


def _alone(
    task: Callable[[KeyT], ResultT], key: KeyT, where: Execution, stop: threading.Event
) -> ResultT | Failure:
    for _ in range(ATTEMPTS):
        try:
            return next(iter(_round(task, [key], where, 1, stop)))
        except _lost_worker(where):
            continue
    return Failure(f"its worker was lost {ATTEMPTS} times, running alone: it may need more memory")


def _round(
    task: Callable[[KeyT], ResultT], keys: list[KeyT], where: Execution, jobs: int, stop: threading.Event
) -> Iterator[ResultT | Failure]:
    from joblib import Parallel, delayed

    named = {"threads": "threading", "loky": "loky"}.get(where.backend)
    # Arrays above max_nbytes are mapped into loky's workers from one file.
    parallel = Parallel(
        n_jobs=max(jobs, 2) if where.backend == "loky" else jobs,  # with one job joblib would stay in here
        backend=named,
        return_as="generator",
        pre_dispatch=jobs if jobs == 1 else "all",
        max_nbytes="1M",
    )
    outcomes = parallel(delayed(_guarded)(task, key) for key in list(keys))
    try:
        for outcome in outcomes:
            yield outcome
            if stop.is_set() and not where.in_process:
                return
    finally:
        outcomes.close()


def _lost_worker(where: Execution) -> tuple[type[BaseException], ...]:
    """Return what tells that a worker died."""
    if where.backend == "loky":
        from joblib.externals.loky.process_executor import BrokenProcessPool

        return (BrokenProcessPool,)
    if where.backend == "dask":
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        return (KilledWorker, CommClosedError, FutureCancelledError)
    if where.backend == "ray":
        from ray.exceptions import RayActorError, WorkerCrashedError

        return (RayActorError, WorkerCrashedError)
    return ()


@contextmanager
def _cluster(where: Execution) -> Iterator[None]:
    """Make the backend joblib's, and take a local cluster down again; one at an address stays."""
    if where.backend == "dask":
        with _dask(where):
            yield
    elif where.backend == "ray":
        with _ray(where):
            yield
    else:
        yield


@contextmanager
def _dask(where: Execution) -> Iterator[None]:
    from joblib import parallel_config

    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise _missing("dask") from error
    if where.address:
        try:
            client = Client(where.address, timeout="10s")
        except (OSError, ValueError) as error:
            raise _no_answer(where) from error
        with client, parallel_config(backend="dask", client=client, n_jobs=where.jobs):
            yield
        return
    with (
        LocalCluster(n_workers=where.jobs, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        parallel_config(backend="dask", client=client, n_jobs=where.jobs),
    ):
        yield


@contextmanager
def _ray(where: Execution) -> Iterator[None]:
    from joblib import parallel_config

    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise _missing("ray") from error
    try:
        if where.address:
            ray.init(address=where.address, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(num_cpus=where.jobs, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_answer(where) from error
    try:
        register_ray()
        with parallel_config(backend="ray", n_jobs=where.jobs):
            yield
    finally:
        ray.shutdown()


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
