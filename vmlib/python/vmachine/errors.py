"""The exceptions of ``vmachine``. Each text says what to do.

All are subclasses of :class:`Error`::

    Error
     +-- InitError              this process did not become a task
     +-- TaskError              the task can make no calls
     |    +-- LeftError             it has left the machine
     |    +-- LinkError             the connection to the daemon failed
     |    +-- CallbackError         the call is not allowed around a save
     +-- ArgumentError          an argument cannot be used (also a ValueError)
     +-- HandleError            a request or group is in use, or of no use any more
     +-- SendError              a message was not sent
     |    +-- NoTaskError           the tid is that of no task
     |    +-- PickleError           the object cannot be pickled
     +-- RecvError              no message was received
     |    +-- EndedError            the task that was to send has ended
     |    +-- BufferTooShortError   the message is longer than the buffer
     |    +-- Timeout               it did not come in time (also a TimeoutError)
     +-- InboxFullError         receive from one task before you do anything else
     +-- MessageError           a message is not what it was taken for
     +-- TooManyRequestsError   wait for requests before you start more
     +-- RefusedError           the machine said no
     |    +-- SpawnError            tasks were not started
     |    |    +-- PartlySpawnedError   some of them were
     |    +-- GroupRefusedError     no group, or too many
     +-- PortableError          the task is portable already, or its state cannot be read
     +-- ExitError              the task did not leave in order
     +-- GroupError             a call of a group failed
     |    +-- NotMemberError, NoInstanceError, VersionError, ShapeError,
     |    +-- GroupValueError, MemberLeftError, OutOfStepError, MemberFailedError
     +-- PoolError              a call of a pool failed
          +-- WorkerLostError       a job lost too many workers
          +-- BrokenPoolError       the pool cannot go on
"""

from __future__ import annotations

from typing import Any

from .ids import ExitStatus, Tid

__all__ = [
    "Error",
    "InitError",
    "TaskError",
    "LeftError",
    "LinkError",
    "CallbackError",
    "ArgumentError",
    "HandleError",
    "SendError",
    "NoTaskError",
    "PickleError",
    "RecvError",
    "EndedError",
    "BufferTooShortError",
    "Timeout",
    "InboxFullError",
    "MessageError",
    "TooManyRequestsError",
    "RefusedError",
    "SpawnError",
    "PartlySpawnedError",
    "PortableError",
    "ExitError",
    "GroupError",
    "GroupRefusedError",
    "NotMemberError",
    "NoInstanceError",
    "VersionError",
    "ShapeError",
    "GroupValueError",
    "MemberLeftError",
    "OutOfStepError",
    "MemberFailedError",
    "PoolError",
    "WorkerLostError",
    "BrokenPoolError",
]


class Error(Exception):
    """Any error of ``vmachine``."""


class InitError(Error):
    """This process did not become a task of a machine."""


class TaskError(Error):
    """The task can make no calls."""


class LeftError(TaskError):
    """The task has left the machine."""


class LinkError(TaskError):
    """The connection to the daemon failed."""


class CallbackError(TaskError):
    """A callback around a save made a call that it may not make."""


class ArgumentError(Error, ValueError):
    """An argument cannot be used."""


class HandleError(Error):
    """A request or group is in use by another thread, or is of no use any more."""


class SendError(Error):
    """A message was not sent."""


class NoTaskError(SendError):
    """No task has that tid."""

    tid: Tid


class PickleError(SendError):
    """An object cannot be pickled."""


class RecvError(Error):
    """No message was received."""


class EndedError(RecvError):
    """The task that was to send has ended; all that it sent was received."""

    #: The ended task.
    tid: Tid
    #: How it ended.
    status: ExitStatus


class BufferTooShortError(RecvError):
    """The message is longer than the buffer, and stays in the inbox."""

    #: The sender of the message.
    source: Tid


class Timeout(RecvError, TimeoutError):
    """What a call waited for did not come in time. Nothing is lost: call again."""


class InboxFullError(Error):
    """The inbox is full of messages that no call asks for: receive from ``source`` first."""

    #: The sender with most unread bytes.
    source: Tid


class MessageError(Error):
    """A message is not what the program takes it for."""


class TooManyRequestsError(Error):
    """Too many requests are open."""


class RefusedError(Error):
    """The machine refuses a request."""

    #: For programs: ``"no-such-host"``, ``"no-such-task"``, ``"no-such-group"``, ``"not-member"``,
    #: ``"no-such-program"``, ``"limit"``, ``"bad-request"``, ``"version"``, ``"refused"``, ``"busy"``,
    #: ``"host-lost"``, ``"system"`` or ``"not-executable"``.
    kind: str


class SpawnError(RefusedError):
    """Tasks were not started: none, unless it is a :class:`PartlySpawnedError`."""


class PartlySpawnedError(SpawnError):
    """Some hosts did not start their tasks. ``kind`` is that of the first failure."""

    #: The tasks that run.
    started: list[Tid]
    #: Host and reason of each failure.
    failures: list[tuple[str, str]]


class PortableError(Error):
    """The task is portable already, or its saved state cannot be read."""


class ExitError(Error):
    """The task has left, but not in order."""


class GroupError(Error):
    """A call of a group failed."""


class GroupRefusedError(RefusedError, GroupError):
    """The machine refuses a request for a group."""


class NotMemberError(GroupError):
    """This task is no member of the group."""


class NoInstanceError(GroupError):
    """The group has no member with that instance number."""


class VersionError(GroupError):
    """The group has changed: ``refresh()`` it and repeat the call."""


class ShapeError(GroupError):
    """The values do not fit the call, or those of another member."""


class _OfMember(GroupError):
    #: The member that is the reason.
    tid: Tid


class GroupValueError(_OfMember):
    """A member broadcast something else."""


class MemberLeftError(_OfMember):
    """A member has left the group without its part of the call."""


class OutOfStepError(_OfMember):
    """A member makes another collective call."""


class MemberFailedError(_OfMember):
    """The call failed at a member, whose own error says why."""


class PoolError(Error):
    """A call of a pool failed."""


class WorkerLostError(PoolError):
    """A job was given up: each worker that ran it was lost."""

    #: How many workers were lost with the job.
    attempts: int
    #: How the last one ended.
    status: ExitStatus


class BrokenPoolError(PoolError):
    """The pool has no workers, and no new ones can be started."""


def _make(name: str, text: str, values: dict[str, Any]) -> Error:
    """The exception of that name. Called by the extension module."""
    made: Error = globals()[name](text)
    for key, value in values.items():
        if key in ("tid", "source"):
            value = Tid(value)
        elif key == "started":
            value = [Tid(tid) for tid in value]
        elif key == "status":
            value = ExitStatus(*value)
        setattr(made, key, value)
    return made
