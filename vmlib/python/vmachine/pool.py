"""A pool of workers on the hosts of the machine, in the manner of ``concurrent.futures``.

A thread of the pool receives the results. For each worker it has one receive that was started, which
comes before every other receive of the program and fails when the worker ends: so neither results nor
ends of workers mix with the messages and events of the program.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import pickle
import sys
import threading
from collections import deque
from concurrent.futures import Executor, Future
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, TypeVar, Union

from . import worker as _worker
from .errors import (
    ArgumentError,
    BrokenPoolError,
    EndedError,
    Error,
    PartlySpawnedError,
    WorkerLostError,
)
from .ids import ExitStatus, Tid
from .messages import dumps
from .requests import Request
from .task import Task, init, python_environment

T = TypeVar("T")


class _Job:
    """A call that was submitted."""

    __slots__ = ("number", "work", "future", "attempts")

    def __init__(self, number: int, work: bytes, future: Future[Any]) -> None:
        self.number = number
        self.work = work
        self.future = future
        #: How many workers have begun with it.
        self.attempts = 0


class _Worker:
    """A task that does jobs."""

    __slots__ = ("tid", "job", "is_ready", "request")

    def __init__(self, tid: Tid, request: Request) -> None:
        self.tid = tid
        self.job: Optional[_Job] = None
        #: It has imported the program.
        self.is_ready = False
        self.request = request


class Pool(Executor):
    """Calls functions in worker tasks on the hosts of the machine.

    ::

        with vmachine.Pool() as pool:
            results = list(pool.map(simulate, range(1000)))

    Functions are pickled by their names, as in ``multiprocessing``: define them at the top of a module, and
    start the work of a script below ``if __name__ == "__main__":``. With cloudpickle installed, lambdas
    and nested functions can be passed, too.

    When a worker ends, or its host is lost, its job is given to another worker, and a new worker is
    started in its place. A job whose workers were lost ``attempts`` times fails with
    :class:`WorkerLostError`. So a job may be begun more than once.

    :param workers: how many; without it one for each processor of the machine.
    :param on: hosts for the workers, by name, as in :meth:`Task.spawn`.
    :param attempts: how many workers may be lost with one job.
    :param initializer: called in each worker, with ``initargs``, before its first job.
    """

    def __init__(
        self,
        workers: Optional[int] = None,
        *,
        on: Union[str, Sequence[str], None] = None,
        attempts: int = 3,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: tuple[Any, ...] = (),
        task: Optional[Task] = None,
    ) -> None:
        self._vm = init() if task is None else task
        if workers is None:
            workers = sum(host.cpus for host in self._vm.hosts())
        if workers < 1 or attempts < 1:
            raise ArgumentError("a pool has at least one worker, and a job at least one attempt")
        self._size = workers
        self._on = on
        self._attempts = attempts
        self._setup = dumps(_worker.Setup(initializer, initargs))
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._queue: deque[_Job] = deque()
        self._workers: dict[Tid, _Worker] = {}
        self._is_shut = False
        #: The workers were told to end.
        self._is_dismissed = False
        self._broken: Optional[BrokenPoolError] = None
        #: Workers that ended in a row before they were ready.
        self._stillborn = 0
        self._start(workers)
        self._thread = threading.Thread(target=self._serve, name="vmachine.Pool", daemon=True)
        self._thread.start()
        # Before the interpreter ends, while threads can still run.
        atexit.register(self.shutdown)

    @property
    def workers(self) -> list[Tid]:
        """The tasks that do the jobs. They can be moved as every task can."""
        with self._lock:
            return list(self._workers)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Has ``fn(*args, **kwargs)`` called in a worker; returns a future of its result."""
        work = dumps((fn, args, kwargs))
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if self._is_shut:
                raise RuntimeError("the pool was shut down: make a new one")
            future: Future[T] = Future()
            self._queue.append(_Job(next(self._numbers), work, future))
            sends = self._assign()
        self._send(sends)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """As ``map(fn, *iterables)``, with the calls in the workers; results come in order.

        Many short calls are best sent ``chunksize`` at a time.
        """
        if chunksize < 1:
            raise ArgumentError("a chunk has at least one call")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        chunks = super().map(
            functools.partial(_call_chunk, fn), _chunks(chunksize, *iterables), timeout=timeout
        )
        return itertools.chain.from_iterable(chunks)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. The workers end when the jobs are done; ``wait`` waits for that."""
        cancelled: list[_Job] = []
        with self._lock:
            self._is_shut = True
            if cancel_futures:
                cancelled = [job for job in self._queue if job.attempts == 0]
                self._queue = deque(job for job in self._queue if job.attempts > 0)
            sends = self._dismiss()
        for job in cancelled:
            job.future.cancel()
        self._send(sends)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()
            atexit.unregister(self.shutdown)

    def __repr__(self) -> str:
        return f"<Pool of {len(self._workers)} workers>"

    # What follows is called with the lock, unless it says otherwise. Messages to workers are sent
    # without it, because a send may wait.

    def _start(self, count: int) -> None:
        """Starts workers. Without the lock."""
        words = [sys.executable, "-m", "vmachine._run_worker"]
        env = python_environment()
        try:
            tids = self._vm.spawn(words[0], words[1:], count=count, on=self._on, env=env)
        except PartlySpawnedError as error:
            tids = error.started
        started = [_Worker(tid, self._vm.start_recv(tid, _worker.RESULT)) for tid in tids]
        for each in started:
            self._vm._raw.send([each.tid], _worker.SETUP, self._setup)
        with self._lock:
            self._workers.update((each.tid, each) for each in started)

    def _assign(self) -> list[tuple[Tid, Any]]:
        """Gives jobs to workers that have none. Returns the messages to send."""
        sends: list[tuple[Tid, Any]] = []
        for each in self._workers.values():
            if not each.is_ready or each.job is not None:
                continue
            job = self._next_job()
            if job is None:
                break
            job.attempts += 1
            each.job = job
            sends.append((each.tid, (job.number, job.work)))
        return sends

    def _next_job(self) -> Optional[_Job]:
        while self._queue:
            job = self._queue.popleft()
            # A job that is done again runs already, as far as its future knows.
            if job.attempts > 0 or job.future.set_running_or_notify_cancel():
                return job
        return None

    def _dismiss(self) -> list[tuple[Tid, Any]]:
        """The messages that end the workers, if the pool is shut down and all is done."""
        busy = any(each.job is not None for each in self._workers.values())
        if not self._is_shut or self._queue or busy or self._is_dismissed:
            return []
        self._is_dismissed = True
        return [(tid, None) for tid in self._workers]

    def _send(self, sends: list[tuple[Tid, Any]]) -> None:
        """Sends messages to workers. Without the lock."""
        for tid, message in sends:
            self._vm.send(message, tid, _worker.JOB)

    # The thread of the pool.

    def _serve(self) -> None:
        try:
            while self._workers:
                self._step()
        except BaseException as error:
            text = f"the pool has failed: {type(error).__name__}: {error}"
            self._break(BrokenPoolError(text), error)
            if not isinstance(error, Error):
                raise

    def _step(self) -> None:
        """Waits for one result or the end of one worker."""
        with self._lock:
            each = list(self._workers.values())
        try:
            completed = self._vm.wait_any([one.request for one in each])
        except EndedError as error:
            self._on_end(error.tid, error.status)
            return
        place, message = completed if completed is not None else (0, None)
        if message is None:
            raise BrokenPoolError("no receive of the pool is open")
        self._on_result(each[place], message.obj())

    def _on_result(self, one: _Worker, result: tuple[Optional[int], bool, bytes]) -> None:
        number, done, value = result
        # Before the next job is sent: no receive of the program may take its result.
        one.request = self._vm.start_recv(one.tid, _worker.RESULT)
        if number is None and not done:
            failure = pickle.loads(value).exception()
            self._break(BrokenPoolError("a worker cannot begin; its error is the cause"), failure)
            return
        with self._lock:
            job, one.job, one.is_ready = one.job, None, True
            self._stillborn = 0
            sends = self._assign() or self._dismiss()
        self._send(sends)
        if job is not None and number == job.number:
            _resolve(job.future, done, value)

    def _on_end(self, tid: Tid, status: ExitStatus) -> None:
        with self._lock:
            one = self._workers.pop(tid)
            job = one.job
            is_wanted = not self._is_shut or job is not None or bool(self._queue)
            given_up = job is not None and job.attempts >= self._attempts
            if job is not None and not given_up:
                self._queue.appendleft(job)
            if not one.is_ready:
                self._stillborn += 1
            is_broken = self._stillborn > 2 * self._size + 2
        if job is not None and given_up:
            text = (
                f"the job was given up: {job.attempts} workers were lost with it, the last one "
                f"{status}: see the output of the workers"
            )
            lost = WorkerLostError(text)
            lost.attempts, lost.status = job.attempts, status
            job.future.set_exception(lost)
        if is_broken:
            text = f"workers end before they can begin ({status}): see their output"
            self._break(BrokenPoolError(text), None)
        elif is_wanted:
            self._replace()
        with self._lock:
            sends = self._assign() or self._dismiss()
        self._send(sends)

    def _replace(self) -> None:
        """Starts a worker in place of one that has ended. Without the lock."""
        try:
            self._start(1)
        except Error as error:
            with self._lock:
                others = bool(self._workers)
            if not others:
                self._break(BrokenPoolError("no worker can be started"), error)

    def _break(self, why: BrokenPoolError, cause: Optional[BaseException]) -> None:
        """The pool cannot go on: all that is open fails. Without the lock."""
        why.__cause__ = cause
        with self._lock:
            self._broken = why
            self._is_shut = True
            jobs = [each.job for each in self._workers.values() if each.job is not None]
            jobs += self._queue
            self._queue.clear()
            workers = list(self._workers)
            self._workers.clear()
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(why)
        for tid in workers:
            try:
                self._vm.kill(tid)
            except Error:
                # It has ended, or the machine is gone.
                pass


def _resolve(future: Future[Any], done: bool, value: bytes) -> None:
    try:
        result = pickle.loads(value)
    except Exception as error:
        future.set_exception(error)
        return
    if done:
        future.set_result(result)
    else:
        future.set_exception(result.exception())


def _chunks(size: int, *iterables: Iterable[Any]) -> Iterator[list[tuple[Any, ...]]]:
    calls = zip(*iterables)
    while chunk := list(itertools.islice(calls, size)):
        yield chunk


def _call_chunk(fn: Callable[..., T], calls: list[tuple[Any, ...]]) -> list[T]:
    return [fn(*args) for args in calls]
