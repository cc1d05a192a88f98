"""Programs of many tasks that can be moved between hosts while they run.

A program that calls :func:`init` is a *task* of a machine that may have many hosts::

    import vmachine

    vm = vmachine.init()
    if vm.parent is None:
        workers = vm.spawn_self(count=4)
        for n, worker in enumerate(workers):
            vm.send(n, worker)
        print(sum(vm.recv().obj() for _ in workers))
    else:
        vm.send(vm.recv(vm.parent).obj() ** 2, vm.parent)

Start it with ``vm run python3 squares.py``. The page ``docs/guide/python.md`` leads from nothing to a
program that is moved while it runs.
"""

from . import errors
from .errors import (
    ArgumentError,
    BrokenPoolError,
    BufferTooShortError,
    CallbackError,
    EndedError,
    Error,
    ExitError,
    GroupError,
    GroupRefusedError,
    GroupValueError,
    HandleError,
    InboxFullError,
    InitError,
    LeftError,
    LinkError,
    MemberFailedError,
    MemberLeftError,
    MessageError,
    NoInstanceError,
    NoTaskError,
    NotMemberError,
    OutOfStepError,
    PartlySpawnedError,
    PickleError,
    PoolError,
    PortableError,
    RecvError,
    RefusedError,
    SendError,
    ShapeError,
    SpawnError,
    TaskError,
    Timeout,
    TooManyRequestsError,
    VersionError,
    WorkerLostError,
)
from .events import (
    CheckpointReport,
    DrainReport,
    Envelope,
    Event,
    Host,
    HostAdded,
    HostDeleted,
    MoveReport,
    RestartReport,
    TaskEnded,
)
from .groups import Group, Members
from .ids import ANY, ExitStatus, Tid
from .messages import Message
from .pool import Pool
from .requests import Request
from .task import Task, init

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "CheckpointReport",
    "DrainReport",
    "Envelope",
    "Event",
    "ExitStatus",
    "Group",
    "Host",
    "HostAdded",
    "HostDeleted",
    "Members",
    "Message",
    "MoveReport",
    "Pool",
    "Request",
    "RestartReport",
    "Task",
    "TaskEnded",
    "Tid",
    "init",
    *errors.__all__,
]
