"""Events, and the reports of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from .ids import ExitStatus, Tid


class Envelope(NamedTuple):
    """All of a message but its bytes."""

    #: The task that sent it.
    source: Tid
    #: The tag that the sender gave it.
    tag: int
    #: Its length in bytes.
    len: int


@dataclass(frozen=True)
class TaskEnded:
    """A task that was watched has ended. All that it sent before is in the inbox."""

    tid: Tid
    status: ExitStatus


@dataclass(frozen=True)
class HostAdded:
    """A host has joined the machine."""

    host: int
    name: str


@dataclass(frozen=True)
class HostDeleted:
    """A host has left the machine, or was lost."""

    host: int
    name: str


#: What ``recv_event`` and ``next`` return.
Event = Union[TaskEnded, HostAdded, HostDeleted]


def event_of(raw: tuple[Any, ...]) -> Event:
    """The event that the extension module describes."""
    kind, first, second = raw
    if kind == "task-ended":
        return TaskEnded(Tid(first), ExitStatus(*second))
    if kind == "host-added":
        return HostAdded(first, second)
    return HostDeleted(first, second)


@dataclass(frozen=True)
class Host:
    """A living host of the machine."""

    #: Number of the host; ``f"h{id}"`` names it in calls, as its name does.
    id: int
    name: str
    #: ``address:port`` of its daemon.
    addr: str
    #: Number of processors.
    cpus: int
    #: Bound on its tasks.
    tasks_max: int
    #: ``x86_64`` or ``aarch64``.
    arch: str
    #: Number of its tasks.
    tasks: int


@dataclass(frozen=True)
class MoveReport:
    """How a task was moved. Times in seconds."""

    #: Number of the host that the task was on.
    source: int
    #: Number of the host that it is on now.
    target: int
    #: Bytes of the image.
    bytes: int
    #: Bytes of these that were sent while the task ran.
    copied: int
    #: Number of pre-copy rounds.
    rounds: int
    #: How long the task stood.
    freeze: float
    #: How long all took.
    total: float


@dataclass(frozen=True)
class DrainReport:
    """How a host was drained. Times in seconds."""

    host: int
    total: float
    moved_count: int
    refused_count: int
    saved_count: int
    #: The tasks that left, and how.
    moved: list[tuple[Tid, MoveReport]]
    #: The tasks that stayed, and why.
    refused: list[tuple[Tid, str]]
    #: The applications that were suspended, because one of their tasks could not leave.
    suspended: list[Tid]


def drain_report(raw: dict[str, Any]) -> DrainReport:
    """The report that the extension module describes."""
    raw["moved"] = [(Tid(tid), MoveReport(**report)) for tid, report in raw["moved"]]
    raw["refused"] = [(Tid(tid), why) for tid, why in raw["refused"]]
    raw["suspended"] = [Tid(tid) for tid in raw["suspended"]]
    return DrainReport(**raw)


@dataclass(frozen=True)
class CheckpointReport:
    """A checkpoint that is in the store. Times in seconds."""

    generation: int
    epoch: int
    #: Number of tasks in it.
    tasks: int
    #: Bytes of all images.
    bytes: int
    #: Bytes of their files.
    stored: int
    #: Longest time that a task stood.
    freeze: float
    total: float
    #: Messages on their way.
    in_transit: int


@dataclass(frozen=True)
class RestartReport:
    """How a suspended application was resumed. Times in seconds."""

    app: Tid
    #: Name of the checkpoint: ``g1-e4``.
    checkpoint: str
    generation: int
    #: Hosts, and the number of tasks on each.
    hosts: list[tuple[int, int]]
    total: float
    #: Newer checkpoints that were not whole, and why.
    passed_over: list[str]


def restart_report(raw: dict[str, Any]) -> RestartReport:
    """The report that the extension module describes."""
    raw["app"] = Tid(raw["app"])
    return RestartReport(**raw)
