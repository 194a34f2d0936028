"""Independent tasks side by side: in threads or processes (joblib), or on a Dask or Ray cluster.

The order of results, and the results themselves, do not depend on where tasks run. A task that raises becomes
a `Failure` with its key and does not stop the others; tasks whose worker was lost run again, and one that
loses its worker again and again is reported as the cause.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from .cluster import LEAST_JOBS, Engine, deaf, open_cluster
from .errors import MoeplanError, UsageError, did_you_mean

Backend = Literal["threads", "loky", "dask", "ray"]
BACKENDS: Final = get_args(Backend)
#: How often a task may lose its worker.
ATTEMPTS: Final = 3
#: How often a worker looks after the process that started it.
_WATCH_S: Final = 1.0
#: How often who waits for a result listens whether it is still wanted.
_LISTEN_S: Final = 0.1

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
    """Why a task has no result: `error` where it was one of ours (bad input, say), `bug` where it was not.

    Neither is set where its worker was lost or memory ran out. A bug of a task in this process comes with the
    exception itself, for its traceback.
    """

    reason: str
    error: MoeplanError | None = None
    bug: bool = False
    exception: Exception | None = field(default=None, compare=False)


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
            yield Done(key, _guarded(task, key, here=True))
        return
    with open_cluster(where) as engine:
        yield from _retrying(task, list(keys), where, engine, stop)


def _guarded(
    task: Callable[[KeyT], ResultT], key: KeyT, *, here: bool = False, parent: int = 0
) -> ResultT | Failure:
    if parent:
        end_with_parent(parent)
    try:
        return task(key)
    except MoeplanError as error:
        return Failure(str(error), error)
    except MemoryError:
        return Failure("it does not fit into memory")
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", bug=True, exception=error if here else None)


def end_with_parent(parent: int) -> None:
    """End this process when `parent`, which started it, is gone: it was killed, and could not stop us."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    name = f"end with {parent}"
    if all(thread.name != name for thread in threading.enumerate()):
        threading.Thread(target=watch, name=name, daemon=True).start()


def _retrying(
    task: Callable[[KeyT], ResultT],
    left: list[KeyT],
    where: Execution,
    engine: Engine,
    stop: threading.Event,
) -> Iterator[Done[KeyT, ResultT]]:
    """Run rounds until nothing is left; a round ends early when a worker is lost.

    The first loss may be anyone's bad luck. After a second one without a result between, the tasks that were
    under way run alone, so that a task which kills its workers is found, and only it fails.
    """
    losses = 0
    while left and not stop.is_set():
        try:
            for key, result in zip(
                list(left), _round(task, left, where, engine, where.jobs, stop), strict=False
            ):
                left.remove(key)
                losses = 0
                yield Done(key, result)
        except _lost_worker(where):
            losses += 1
        if losses > 1:
            for key in left[: where.jobs]:
                left.remove(key)
                yield Done(key, _alone(task, key, where, engine, stop))
            losses = 0


def _alone(
    task: Callable[[KeyT], ResultT], key: KeyT, where: Execution, engine: Engine, stop: threading.Event
) -> ResultT | Failure:
    for _ in range(ATTEMPTS):
        try:
            return next(iter(_round(task, [key], where, engine, 1, stop)))
        except _lost_worker(where) as error:
            # Dask itself tries a task on several workers before it gives it up by this name.
            if type(error).__name__ == "KilledWorker":
                break
    return Failure("its worker was lost every time, also when it ran alone: it may need more memory")


def _round(
    task: Callable[[KeyT], ResultT],
    keys: list[KeyT],
    where: Execution,
    engine: Engine,
    jobs: int,
    stop: threading.Event,
) -> Iterator[ResultT | Failure]:
    """Run tasks until the first loss."""
    from joblib import Parallel, delayed, parallel_config

    if where.backend == "dask":
        yield from _on_dask(task, keys, engine["client"], stop)
        return
    parent = os.getpid() if where.backend == "loky" else 0
    calls = [delayed(_guarded)(task, key, here=where.in_process, parent=parent) for key in keys]
    together = jobs
    if not where.in_process:
        jobs = max(jobs, LEAST_JOBS)
    if where.backend == "ray":
        jobs = min(jobs, _ray_cpus())  # it refuses more
    with parallel_config(**engine, n_jobs=jobs):
        if where.backend == "ray":  # gives a list only when all of it is there: a few tasks at a time
            for first in range(0, len(calls), together):
                yield from Parallel()(calls[first : first + together])
                if stop.is_set():
                    return
            return
        # Arrays above max_nbytes are mapped into loky's workers from one file.
        with deaf() if not where.in_process else nullcontext():
            outcomes = Parallel(return_as="generator", pre_dispatch="all", max_nbytes="1M")(calls)
    with _quiet(), _given_up(stop) if where.backend == "loky" else nullcontext():
        try:
            for outcome in outcomes:
                yield outcome
                if stop.is_set() and not where.in_process:
                    return
        finally:
            outcomes.close()


def _ray_cpus() -> int:
    import ray

    return int(ray.cluster_resources()["CPU"])


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
def _given_up(stop: threading.Event) -> Iterator[None]:
    """Take loky's workers away when `stop` is set: joblib waits for the next result whatever happens."""
    from joblib.externals.loky import reusable_executor

    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LISTEN_S):
            if stop.is_set() and reusable_executor._executor is not None:
                for worker in list(reusable_executor._executor._processes):  # by process id
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                return

    threading.Thread(target=watch, name="give up", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep off the terminal what joblib says of tasks that are given up, and what its thread then meets."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else ""
        if not (name == "ExecutorManagerThread" and issubclass(arguments.exc_type, KeyError)):
            before(arguments)

    threading.excepthook = hook
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*tasks which were still being processed")
            yield
    finally:
        threading.excepthook = before


def _on_dask(
    task: Callable[[KeyT], ResultT], keys: list[KeyT], client: Any, stop: threading.Event
) -> Iterator[ResultT | Failure]:
    """Run tasks as Dask's own futures; the task's arguments are sent to every worker once.

    Not through joblib's backend: that never returns when Dask gives up a task whose workers died.
    """
    (shared,) = client.scatter([task], broadcast=True)
    futures = [client.submit(_guarded, shared, key, pure=False) for key in keys]
    try:
        for future in futures:
            while not future.done():
                if stop.is_set():
                    return
                time.sleep(_LISTEN_S / 10)
            yield future.result()
            if stop.is_set():
                return
    finally:
        client.cancel(futures)
