"""Sends and receives that are started, and completed later: the program computes meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Optional

from . import _vmachine
from .ids import Tid
from .messages import Message

if TYPE_CHECKING:
    from .task import Task


class Request:
    """A send or receive that was started, from ``start_send`` and ``start_recv`` of a task.

    It is open until its result was returned. It goes on in every call of the library, and only there.
    """

    __slots__ = ("_raw",)

    def __init__(self, raw: _vmachine.Request) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return f"<Request, {'open' if self.is_open else 'complete'}>"

    @property
    def is_open(self) -> bool:
        """Whether the result was not returned yet."""
        return self._raw.is_open

    def test(self) -> tuple[bool, Optional[Message]]:
        """Whether the request is complete, and the message of a receive. Does not wait."""
        done, raw = self._raw.test()
        return done, message_of(raw)

    def wait(self) -> Optional[Message]:
        """Waits until the request is complete. Returns the message of a receive, ``None`` for a send.

        After an error the request is still open, and nothing is lost.
        """
        return message_of(self._raw.wait()[1])

    def cancel(self) -> None:
        """Cancels a receive: its message stays in the inbox. A message that is being sent is delivered."""
        self._raw.cancel()


def message_of(raw: Optional[tuple[int, int, memoryview]]) -> Optional[Message]:
    """The message of the extension module."""
    return None if raw is None else Message(Tid(raw[0]), raw[1], raw[2])


def wait_any(task: Task, requests: Iterable[Request]) -> Optional[tuple[int, Optional[Message]]]:
    """See :meth:`Task.wait_any`."""
    raw = _vmachine.wait_any(task._raw, [request._raw for request in requests])
    return None if raw is None else (raw[0], message_of(raw[1]))


def wait_all(task: Task, requests: Iterable[Request]) -> list[Optional[Message]]:
    """See :meth:`Task.wait_all`."""
    raws: list[Any] = [request._raw for request in requests]
    messages: list[Optional[Message]] = [None] * len(raws)
    for place, raw in _vmachine.wait_all(task._raw, raws):
        messages[place] = message_of(raw)
    return messages
