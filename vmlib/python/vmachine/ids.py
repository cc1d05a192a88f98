"""The id of a task, the wildcard of receives, the way in which a task ended."""

from __future__ import annotations

import enum
from typing import NamedTuple, Optional, Union


class Tid(int):
    """The id of a task. It never changes when the task moves, and is never given to another task.

    An integer that is shown as ``t3.17``: the 17th task that was started on host 3.
    """

    __slots__ = ()

    @property
    def origin(self) -> int:
        """Number of the host on which the task was started, not of its present host."""
        return (self >> 24) & 0xFFFF

    @property
    def sequence(self) -> int:
        """Number of the task among those that were started on that host."""
        return self & 0xFFFFFF

    def __repr__(self) -> str:
        return f"t{self.origin}.{self.sequence}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class _Any(enum.Enum):
    ANY = "ANY"

    def __repr__(self) -> str:
        return "ANY"


#: Selects every sender, or every tag: ``vm.recv(ANY, 7)``.
ANY = _Any.ANY

#: Whose messages a receive selects.
Source = Union[int, _Any]
#: Which tags a receive selects.
Tag = Union[int, _Any]


class ExitStatus(NamedTuple):
    """How a task has ended."""

    #: ``"left"`` (in order, with a status), ``"code"`` (an exit code, not in order), ``"signal"``,
    #: ``"not-started"``, ``"host-lost"``, ``"suspended"``, ``"rolled-back"`` or ``"unknown"``.
    kind: str
    #: The status, exit code or signal.
    number: Optional[int]
    #: For people.
    text: str

    @property
    def in_order(self) -> bool:
        """Whether the task left in order, with status 0."""
        return self.kind == "left" and self.number == 0

    def __str__(self) -> str:
        return self.text


def source_of(source: Source) -> Optional[int]:
    """The source as the extension module takes it."""
    if source is ANY:
        return None
    if isinstance(source, int) and not isinstance(source, bool):
        return source
    raise TypeError(f"a source is a tid or ANY, not {source!r}")


def tag_of(tag: Tag) -> Optional[int]:
    """The tag as the extension module takes it."""
    if tag is ANY:
        return None
    if isinstance(tag, int) and not isinstance(tag, bool):
        return tag
    raise TypeError(f"a tag is a number or ANY, not {tag!r}")
