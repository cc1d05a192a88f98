"""This process as a task of the machine."""

from __future__ import annotations

import os
import pickle
import signal as _signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Optional, TypeVar, Union

from . import _vmachine
from . import groups as groups_
from . import requests as requests_
from .arrays import view
from .errors import ArgumentError, PortableError, Timeout
from .events import (
    CheckpointReport,
    DrainReport,
    Envelope,
    Event,
    Host,
    MoveReport,
    RestartReport,
    drain_report,
    event_of,
    restart_report,
)
from .groups import Group, Members
from .ids import ANY, Source, Tag, Tid, source_of, tag_of
from .messages import Message, dumps
from .requests import Request

T = TypeVar("T")

#: One task, or several.
To = Union[int, Iterable[int]]

# A forked child has the sockets of its parent, and must not use them.
os.register_at_fork(after_in_child=_vmachine.forked)

_lock = threading.Lock()
_task: Optional[Task] = None


def init() -> Task:
    """Makes this process a task of the machine, and returns its handle.

    Call it first, before other threads are started and before numpy is imported: the library then forks
    the process that coordinates the application, which it cannot when there are other threads. Called
    again, it returns the same handle, which all threads may use.

    :raises InitError: if there is no daemon on this host, or it refuses the program.
    """
    global _task
    with _lock:
        if _task is None:
            _task = Task(_vmachine.init())
        return _task


class Task:
    """The handle of this process in the machine; from :func:`init`.

    All calls release the interpreter while they wait, so other threads run on. A handler of signals runs
    while a call waits: after Ctrl-C the call raises ``KeyboardInterrupt``, and a receive has then taken no
    message. Times are in seconds.
    """

    def __init__(self, raw: _vmachine.Task) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return f"<Task {self.tid} on h{self.host}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Task is the handle of one process: send `vm.tid` instead")

    # The identity of this task, and its host.

    @property
    def tid(self) -> Tid:
        """The id of this task."""
        return Tid(self._raw.tid)

    @property
    def parent(self) -> Optional[Tid]:
        """The task that started this one; ``None`` for a master."""
        parent = self._raw.parent
        return None if parent is None else Tid(parent)

    @property
    def app(self) -> Tid:
        """The application: the tid of its master, which may be this task."""
        return Tid(self._raw.app)

    @property
    def index(self) -> int:
        """Which of the tasks that were started together this one is, from 0."""
        return self._raw.index

    @property
    def host(self) -> int:
        """Number of the host where this task runs. Another one after the task was moved."""
        return self._raw.host

    def siblings(self) -> list[Tid]:
        """The tasks that were started together with this one, itself among them, by index."""
        return [Tid(tid) for tid in self._raw.siblings()]

    def hosts(self) -> list[Host]:
        """The living hosts of the machine."""
        return [Host(**host) for host in self._raw.hosts()]

    # Starting and ending tasks.

    def spawn(
        self,
        program: str,
        args: Iterable[str] = (),
        *,
        count: int = 1,
        on: Union[str, Sequence[str], None] = None,
        env: Optional[Mapping[str, str]] = None,
        dir: Optional[str] = None,
    ) -> list[Tid]:
        """Starts ``count`` tasks of a program; returns their tids, by index.

        ``on`` is the name or number (``"h3"``) of a host, or several that are used in turn; without it
        the machine chooses. ``env`` is added to the environment, which is otherwise that of the host's
        daemon. A name of a program without ``/`` is looked up in the daemon's path.

        :raises SpawnError: if no task was started; :exc:`PartlySpawnedError` if some hosts did not start
            theirs.
        """
        if isinstance(args, str):
            raise TypeError("args is a list of arguments, not one string")
        hosts = [on] if isinstance(on, str) else None if on is None else list(on)
        if hosts == []:
            raise ArgumentError("`on` names no host: leave it out, and the machine chooses")
        variables = [] if env is None else [(str(k), str(v)) for k, v in env.items()]
        arguments = [os.fspath(arg) if isinstance(arg, os.PathLike) else str(arg) for arg in args]
        if not 0 <= count <= 0xFFFFFFFF:
            raise ArgumentError(f"a count of {count}: pass the number of tasks to start")
        tids = self._raw.spawn(os.fspath(program), arguments, variables, dir, count, hosts)
        return [Tid(tid) for tid in tids]

    def spawn_self(
        self,
        args: Optional[Iterable[str]] = None,
        *,
        count: int = 1,
        on: Union[str, Sequence[str], None] = None,
        env: Optional[Mapping[str, str]] = None,
        dir: Optional[str] = None,
    ) -> list[Tid]:
        """Starts ``count`` more tasks of this script, with the same interpreter, arguments (unless ``args``
        are given), working directory, and path of modules. In them ``vm.parent`` is this task.
        """
        words = self_command()
        words += sys.argv[1:] if args is None else [str(arg) for arg in args]
        variables = {**python_environment(), **(env or {})}
        return self.spawn(
            words[0], words[1:], count=count, on=on, env=variables, dir=dir or os.getcwd()
        )

    def kill(self, tid: int) -> None:
        """Ends a task at once."""
        self._raw.signal(tid, _signal.SIGKILL)

    def signal(self, tid: int, signal: int) -> None:
        """Sends a signal to a task's process."""
        self._raw.signal(tid, int(signal))

    def exit(self, status: int = 0) -> None:
        """Leaves the machine; the process goes on as one that is no task.

        Without this call the task leaves when its process ends.
        """
        self._raw.exit(status)

    # Sending.

    def send(self, obj: Any, to: To, tag: int = 0) -> None:
        """Pickles an object and sends it to a task, or to each of several. Returns when it is on its way.

        :raises PickleError: if the object cannot be pickled.
        """
        self._raw.send(_receivers(to), tag, dumps(obj))

    def send_bytes(self, data: Any, to: To, tag: int = 0) -> None:
        """Sends bytes; ``bytes`` are not copied, other buffers once."""
        self._raw.send(_receivers(to), tag, data if type(data) is bytes else view(data))

    def send_array(self, array: Any, to: To, tag: int = 0) -> None:
        """Sends the numbers of an array, one after the other, with one copy and without pickling.

        Only the numbers travel; the receiver says their dtype and shape (:meth:`Message.array`,
        :meth:`recv_into`). Rust and C tasks read them as a slice.

        :raises ArgumentError: if the array is not contiguous, or holds objects.
        """
        self._raw.send(_receivers(to), tag, view(array))

    # Receiving.

    def recv(
        self, source: Source = ANY, tag: Tag = ANY, timeout: Optional[float] = None
    ) -> Message:
        """Receives the first message from ``source`` with ``tag``, and waits for it.

        :raises Timeout: if it does not come in time.
        :raises EndedError: if ``source`` is a task that has ended.
        """
        raw = self._raw.recv(source_of(source), tag_of(tag), timeout)
        if raw is None:
            raise _late("message", timeout)
        return Message(Tid(raw[0]), raw[1], raw[2])

    def try_recv(self, source: Source = ANY, tag: Tag = ANY) -> Optional[Message]:
        """Receives a message if one is there."""
        raw = self._raw.recv(source_of(source), tag_of(tag), 0.0)
        return None if raw is None else Message(Tid(raw[0]), raw[1], raw[2])

    def recv_into(
        self,
        buffer: Any,
        source: Source = ANY,
        tag: Tag = ANY,
        timeout: Optional[float] = None,
    ) -> Envelope:
        """Receives into the first bytes of an array or buffer: the way with the fewest copies.

        The array must be contiguous, and no other thread may use it meanwhile. After an error, any part
        of it may have other values.

        :raises BufferTooShortError: if the message is longer; it stays in the inbox.
        """
        raw = self._raw.recv_into(
            view(buffer, to_write=True), source_of(source), tag_of(tag), timeout
        )
        if raw is None:
            raise _late("message", timeout)
        return Envelope(Tid(raw[0]), raw[1], raw[2])

    def probe(self, source: Source = ANY, tag: Tag = ANY) -> Optional[Envelope]:
        """Looks whether a message is there, and leaves it there."""
        raw = self._raw.probe(source_of(source), tag_of(tag))
        return None if raw is None else Envelope(Tid(raw[0]), raw[1], raw[2])

    # Events.

    def watch_task(self, tid: int) -> None:
        """Asks for a :class:`TaskEnded` when that task ends; at once, if it has ended."""
        self._raw.watch_task(tid, True)

    def unwatch_task(self, tid: int) -> None:
        """Asks no more for the end of that task."""
        self._raw.watch_task(tid, False)

    def watch_hosts(self) -> None:
        """Asks for a :class:`HostAdded` or :class:`HostDeleted` when hosts come and go."""
        self._raw.watch_hosts(True)

    def unwatch_hosts(self) -> None:
        """Asks no more for hosts that come and go."""
        self._raw.watch_hosts(False)

    def recv_event(self, timeout: Optional[float] = None) -> Event:
        """The next event that this task watches, and waits for it.

        :raises Timeout: if none comes in time.
        """
        raw = self._raw.recv_event(timeout)
        if raw is None:
            raise _late("event", timeout)
        return event_of(raw)

    def next(
        self, source: Source = ANY, tag: Tag = ANY, timeout: Optional[float] = None
    ) -> Union[Message, Event]:
        """A message that ``source`` and ``tag`` select, or an event, whichever is there first.

        Messages go before events: what a task sent before its end comes before its end.

        :raises Timeout: if neither comes in time.
        """
        return _found(self._raw.next(source_of(source), tag_of(tag), timeout), timeout)

    # Messages while the program computes.

    def start_send(self, obj: Any, to: int, tag: int = 0) -> Request:
        """Starts to send an object, and returns at once."""
        return Request(_vmachine.start_send(self._raw, to, tag, dumps(obj)))

    def start_send_bytes(self, data: Any, to: int, tag: int = 0) -> Request:
        """Starts to send bytes; see :meth:`send_bytes`."""
        body = data if type(data) is bytes else view(data)
        return Request(_vmachine.start_send(self._raw, to, tag, body))

    def start_send_array(self, array: Any, to: int, tag: int = 0) -> Request:
        """Starts to send the numbers of an array, which may be changed afterwards."""
        return Request(_vmachine.start_send(self._raw, to, tag, view(array)))

    def start_recv(self, source: Source = ANY, tag: Tag = ANY) -> Request:
        """Starts to receive. The message goes to no later receive, started or not."""
        return Request(_vmachine.start_recv(self._raw, source_of(source), tag_of(tag)))

    def wait_any(
        self, requests: Iterable[Request]
    ) -> Optional[tuple[int, Optional[Message]]]:
        """Waits for one of several requests. Returns its place and the message of a receive; ``None`` if
        none is open."""
        return requests_.wait_any(self, requests)

    def wait_all(self, requests: Iterable[Request]) -> list[Optional[Message]]:
        """Waits for all requests that are open. Returns their messages, each in the place of its request;
        ``None`` for sends, and for requests that were complete before."""
        return requests_.wait_all(self, requests)

    # Groups.

    def join(self, name: str, count: Optional[int] = None) -> Group:
        """Joins a group, which its first member makes. With ``count``, waits until it has so many members.
        """
        return groups_.join(self, name, count)

    def group(self, name: str) -> Members:
        """The members of a group that this task need not be in."""
        return groups_.members(self, name)

    # Moves and checkpoints.

    def move_task(self, tid: Optional[int] = None, host: Optional[str] = None) -> MoveReport:
        """Moves a task, without a tid this one, to a host; without a host the machine chooses.

        All other tasks go on meanwhile. A task that moves itself returns from this call on the new host.

        :raises RefusedError: if the task runs on where it was, with the reason.
        """
        return MoveReport(**self._raw.move_task(self.tid if tid is None else tid, host))

    def can_move(self, tid: Optional[int] = None) -> list[str]:
        """The reasons against moving a task, without a tid this one; none if it can be moved."""
        return self._raw.can_move(self.tid if tid is None else tid)

    def drain(self, host: str) -> DrainReport:
        """Moves all tasks of a host to others, this one too."""
        return drain_report(self._raw.drain(host))

    def checkpoint(self) -> Optional[CheckpointReport]:
        """Saves all tasks of this application. Returns when the checkpoint is in the store.

        Like ``os.fork``, it may return more than once: with ``None`` in the process that is restored
        from the checkpoint.

        :raises RefusedError: if there is no checkpoint, with the reason.
        """
        report = self._raw.checkpoint()
        return None if report is None else CheckpointReport(**report)

    def around_saves(
        self,
        before: Optional[Callable[[], Any]] = None,
        after: Optional[Callable[[], Any]] = None,
        resumed: Optional[Callable[[], Any]] = None,
    ) -> None:
        """Has functions called around each save of this task: for a checkpoint, a move, a suspension.

        ``before`` lets go of what cannot be saved, such as a socket; it makes no call of this package. If it
        raises an exception, there is no save, and the requester is told its text. ``after`` is called when
        the task goes on in the same process, ``resumed`` when it goes on in another one.

        From then on the task is saved only within its calls of this package: one that computes for long
        calls :meth:`probe` every second or more often.
        """
        for function in (before, after, resumed):
            if function is not None and not callable(function):
                raise TypeError(f"{function!r} cannot be called")
        _vmachine.around_saves(self._raw, before, after, resumed)

    def suspend(
        self, app: Optional[int] = None, duration: Optional[float] = None
    ) -> Optional[CheckpointReport]:
        """Suspends an application, without ``app`` this one, until it is resumed; with ``duration``, for
        at most so long.

        For this task's own application the call returns ``None``, when the application was resumed.
        """
        report = self._raw.suspend(self.app if app is None else app, duration)
        return None if report is None else CheckpointReport(**report)

    def resume(self, app: int) -> RestartReport:
        """Resumes an application that is suspended. Returns when all its tasks run."""
        return restart_report(self._raw.resume(app))


    # Tasks that give their state as a value.

    def portable(self, fresh: Callable[[], T]) -> T:
        """Makes this task portable: it is saved as an object that the program gives, not as an image of its
        process, and goes on from it on a host of any architecture.

        Call it once, right after :func:`init`. Returns the saved object in a restored process, otherwise the
        result of ``fresh``. Files, threads and modules are not carried: the program starts anew there.
        """
        saved = _vmachine.portable(self._raw)
        if saved is None:
            return fresh()
        try:
            state: T = pickle.loads(saved)
        except Exception as error:
            raise PortableError(
                f"the saved state cannot be read ({error}): start the release of the program that has "
                "saved it"
            ) from error
        return state

    def safe_point(self, state: Any) -> None:
        """A point at which ``state`` is all that the program needs to go on. Returns at once unless the task
        is to be saved; it has 20 seconds to come to a safe point then."""
        _vmachine.safe_point(self._raw, state, dumps)

    def recv_at(self, state: Any, source: Source = ANY, tag: Tag = ANY) -> Message:
        """Receives at a safe point: a task that is saved meanwhile makes this call again."""
        raw = _vmachine.recv_at(self._raw, state, dumps, source_of(source), tag_of(tag))
        return Message(Tid(raw[0]), raw[1], raw[2])

    def next_at(
        self,
        state: Any,
        source: Source = ANY,
        tag: Tag = ANY,
        timeout: Optional[float] = None,
    ) -> Union[Message, Event]:
        """Waits for a message or an event at a safe point; see :meth:`next`."""
        raw = _vmachine.next_at(
            self._raw, state, dumps, source_of(source), tag_of(tag), timeout
        )
        return _found(raw, timeout)

    def checkpoint_at(self, state: Any) -> CheckpointReport:
        """Saves all tasks of this application at a safe point of this one.

        In the restored process :meth:`portable` returns ``state``.
        """
        report = _vmachine.checkpoint_at(self._raw, state, dumps)
        assert report is not None, "only images return twice"
        return CheckpointReport(**report)


#: Variables that a started Python needs, to find the modules that this one has found.
_PYTHON_ENV = ("PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")


def python_environment() -> dict[str, str]:
    """Those variables that this interpreter has."""
    return {name: os.environ[name] for name in _PYTHON_ENV if name in os.environ}


def self_command() -> list[str]:
    """The command that starts this script again, without its arguments."""
    module = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module is not None and module.name:
        name = module.name.removesuffix(".__main__")
        return [sys.executable, "-m", name]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not script or not sys.executable:
        raise ArgumentError(
            "this program is no script that could be started again: use `spawn` with a program"
        )
    return [sys.executable, os.path.abspath(script)]


def _receivers(to: To) -> list[int]:
    if isinstance(to, int) and not isinstance(to, bool):
        return [to]
    if to is None or isinstance(to, (bool, str, bytes)):
        raise TypeError(f"a message is sent to a tid or several, not to {to!r}")
    return list(to)


def _found(raw: Optional[tuple[Any, ...]], timeout: Optional[float]) -> Union[Message, Event]:
    if raw is None:
        raise _late("message and no event", timeout)
    if isinstance(raw[0], str):
        return event_of(raw)
    return Message(Tid(raw[0]), raw[1], raw[2])


def _late(what: str, timeout: Optional[float]) -> Timeout:
    return Timeout(f"no {what} came within {timeout} s: call again, or wait longer")
