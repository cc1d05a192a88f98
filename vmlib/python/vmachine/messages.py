"""Messages, and how objects become messages."""

from __future__ import annotations

import pickle
from typing import Any, Optional

from .arrays import array_of
from .errors import MessageError, PickleError
from .ids import Tid

try:  # Functions of `__main__` and lambdas, if the user has installed it.
    import cloudpickle as _imported
except ImportError:
    _imported = None
_cloudpickle: Any = _imported


def dumps(obj: Any) -> bytes:
    """The object as bytes."""
    try:
        return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        if _cloudpickle is not None:
            try:
                body: bytes = _cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
                return body
            except Exception:
                pass
        raise PickleError(
            f"an object of type {type(obj).__name__} cannot be pickled ({error}): send what "
            "describes it, or install cloudpickle if it is a function of its own"
        ) from error


class Message:
    """A whole message that was received."""

    __slots__ = ("source", "tag", "data")

    def __init__(self, source: Tid, tag: int, data: memoryview) -> None:
        #: The task that sent the message.
        self.source = source
        #: The tag that the sender gave it.
        self.tag = tag
        #: The bytes, read-only and not copied.
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Message tag {self.tag}, {len(self)} bytes, from {self.source}>"

    @property
    def bytes(self) -> bytes:
        """A copy of the bytes."""
        return self.data.tobytes()

    def obj(self) -> Any:
        """The object that was sent with ``send``.

        As always with pickle, a sender that is not trusted can run any code here: the tasks of a machine
        trust each other.

        :raises MessageError: if the message is no pickled object, or its classes cannot be imported here.
        """
        try:
            return pickle.loads(self.data)
        except Exception as error:
            raise MessageError(
                f"{self._what()} is no object that can be read here ({type(error).__name__}: "
                f"{error}): read it as it was sent, with `bytes` or `array`"
            ) from error

    def array(self, dtype: Any = "float64", shape: Optional[Any] = None) -> Any:
        """The numbers that were sent with ``send_array``, as a read-only array without a copy.

        Only the numbers travel: the receiver says their dtype and shape.

        :raises MessageError: if the length does not fit.
        """
        try:
            return array_of(self.data, dtype, shape)
        except (ValueError, TypeError) as error:
            raise MessageError(
                f"{self._what()} is no array of dtype {dtype}"
                + (f" and shape {shape}" if shape is not None else "")
                + f" ({error}): ask for what the sender has sent"
            ) from error

    def _what(self) -> str:
        return f"the message (tag {self.tag}, {len(self)} bytes, from {self.source})"
