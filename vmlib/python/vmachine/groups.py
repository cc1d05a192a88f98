"""Groups: named sets of tasks, and what their members compute and exchange together."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Union

from . import _vmachine
from .arrays import array_of, as_array, view
from .errors import ArgumentError
from .ids import Tid
from .messages import Message, dumps

if TYPE_CHECKING:
    from .task import Task

#: An operation by its name (``"sum"``, ``"product"``, ``"min"``, ``"max"``, ``"and"``, ``"or"``,
#: ``"xor"``), or a function of two values. A function must be associative.
Op = Union[str, Callable[[Any, Any], Any]]

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


class Members(NamedTuple):
    """The members of a group as of one version."""

    #: Goes up with each join and leave.
    version: int
    #: The members' tids, by instance number.
    tids: dict[int, Tid]


class Group:
    """A group that this task is a member of; from :meth:`Task.join`.

    All members make the same calls in the same order. Each call has two kinds: with objects, which are
    pickled, and with arrays of numpy, of which all members pass one dtype and shape. A call that cannot
    be completed fails with a :class:`GroupError` that names the member; no member waits for ever.
    """

    def __init__(self, raw: _vmachine.Group) -> None:
        self._raw = raw

    def __repr__(self) -> str:
        return f"<Group {self.name!r}>"

    def __len__(self) -> int:
        return self.size

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # After an error others may be in a call that this task does not know.
        if kind is None:
            self.leave()

    @property
    def name(self) -> str:
        """The group's name."""
        return self._raw.name

    @property
    def instance(self) -> int:
        """This task's number in the group: the lowest that was free when it joined."""
        return self._raw.instance

    @property
    def size(self) -> int:
        """How many members the group has, as far as this handle knows."""
        return len(self._raw.members)

    @property
    def members(self) -> Members:
        """The members, as far as this handle knows."""
        return Members(self._raw.version, {number: Tid(tid) for number, tid in self._raw.members})

    def await_members(self, count: int) -> None:
        """Waits until the group has at least so many members."""
        self._raw.await_members(count)

    def refresh(self) -> None:
        """Brings this handle up to the group's newest version."""
        self._raw.refresh()

    def leave(self) -> None:
        """Leaves the group; this handle is of no use any more."""
        self._raw.leave()

    def barrier(self) -> None:
        """Waits until all members have called this."""
        self._raw.barrier()

    # Objects.

    def broadcast(self, obj: Any = None, root: int = 0) -> Any:
        """The object of the member with instance ``root``, for all."""
        if self.instance == root:
            self._raw.broadcast(root, dumps(obj))
            return obj
        return self._read(root, self._raw.broadcast(root, b""))

    def gather(self, obj: Any, root: int = 0) -> Optional[list[Any]]:
        """The objects of all, by instance, for the root; ``None`` for the others."""
        return self._read_all(self._raw.gather(root, dumps(obj)))

    def scatter(self, objs: Optional[Sequence[Any]] = None, root: int = 0) -> Any:
        """One object of the root's list for each member, by instance."""
        bodies: list[Any] = []
        if self.instance == root:
            bodies = [dumps(obj) for obj in self._one_for_each(objs)]
        return self._read(root, self._raw.scatter(root, bodies))

    def allgather(self, obj: Any) -> list[Any]:
        """The objects of all, by instance, for all."""
        return self._read_all(self._raw.allgather(dumps(obj))) or []

    def alltoall(self, objs: Sequence[Any]) -> list[Any]:
        """One object of each member's list for each member. Returns one object of each member."""
        bodies = [dumps(obj) for obj in self._one_for_each(objs)]
        return self._read_all(self._raw.alltoall(bodies)) or []

    # Reductions: of arrays place by place, of other values as they are.

    def reduce(self, value: Any, op: Op = "sum", root: int = 0) -> Any:
        """The values of all, combined, for the root; ``None`` for the others.

        Arrays of numpy are combined place by place; a function is called with whole values, those of
        lower instances first.
        """
        if _is_array(value) and isinstance(op, str):
            raw = self._raw.reduce(root, op, _code(value), view(value))
            return None if raw is None else _array_like(raw, value)
        values = self.gather(value, root)
        return None if values is None else functools.reduce(_function(op), values)

    def allreduce(self, value: Any, op: Op = "sum") -> Any:
        """The values of all, combined, for all. All members get the same bits."""
        if _is_array(value) and isinstance(op, str):
            return _array_like(self._raw.allreduce(op, _code(value), view(value)), value)
        return functools.reduce(_function(op), self.allgather(value))

    def scan(self, value: Any, op: Op = "sum") -> Any:
        """The combined values of the lower instances and this one's own."""
        if _is_array(value) and isinstance(op, str):
            return _array_like(self._raw.scan(op, _code(value), view(value)), value)
        return functools.reduce(_function(op), self.allgather(value)[: self._place() + 1])

    def exclusive_scan(self, value: Any, op: Op = "sum") -> Any:
        """The combined values of the lower instances; ``None`` for the lowest."""
        if _is_array(value) and isinstance(op, str):
            raw = self._raw.exclusive_scan(op, _code(value), view(value))
            return None if raw is None else _array_like(raw, value)
        lower = self.allgather(value)[: self._place()]
        return functools.reduce(_function(op), lower) if lower else None

    def min_with_place(self, array: Any) -> tuple[Any, Any]:
        """The smallest value of all members at each place, and the instance that has it."""
        return self._extreme(True, array)

    def max_with_place(self, array: Any) -> tuple[Any, Any]:
        """The greatest value of all members at each place, and the instance that has it."""
        return self._extreme(False, array)

    # Arrays.

    def broadcast_array(self, array: Any, root: int = 0) -> None:
        """The array of the root, into the arrays of all others, which have its dtype and shape."""
        if self.instance == root:
            # The root's array is only read, but the library takes one that can be written.
            data = view(array)
            array = bytearray(data) if data.readonly else data
        self._raw.broadcast_into(root, view(array, to_write=True))

    def gather_array(self, array: Any, root: int = 0) -> Any:
        """The arrays of all for the root: one array, whose first axis is the member by instance."""
        array = as_array(array)
        raw = self._raw.gather_equal(root, view(array))
        return None if raw is None else _stacked(raw, array)

    def allgather_array(self, array: Any) -> Any:
        """The arrays of all for all: one array, whose first axis is the member by instance."""
        array = as_array(array)
        return _stacked(self._raw.allgather_equal(view(array)), array)

    def scatter_array(self, array: Any, out: Any, root: int = 0) -> None:
        """The blocks of the root's array along its first axis, one for each member, into ``out``."""
        data = view(array) if self.instance == root else b""
        _fill(out, self._raw.scatter_equal(root, data))

    def alltoall_array(self, array: Any) -> Any:
        """The blocks of each member's array along its first axis, one for each member. Returns an array
        of the same shape, with the blocks by the instance of their senders."""
        array = as_array(array)
        if array.ndim == 0 or array.shape[0] % self.size:
            raise ArgumentError(
                f"the first axis of an array of shape {array.shape} cannot be divided among "
                f"{self.size} members"
            )
        return _array_like(self._raw.alltoall_equal(view(array)), array)

    def _extreme(self, least: bool, array: Any) -> tuple[Any, Any]:
        array = as_array(array)
        raw, places = self._raw.extreme_with_place(least, _code(array), view(array))
        return _array_like(raw, array), as_array(places).reshape(array.shape)

    def _place(self) -> int:
        return sorted(number for number, _ in self._raw.members).index(self.instance)

    def _one_for_each(self, objs: Optional[Sequence[Any]]) -> Sequence[Any]:
        if objs is None or len(objs) != self.size:
            count = "no list" if objs is None else f"{len(objs)} objects"
            raise ArgumentError(f"{count} for {self.size} members: pass one object for each")
        return objs

    def _read(self, instance: int, data: memoryview) -> Any:
        return Message(self.members.tids[instance], 0, data).obj()

    def _read_all(self, all_data: Optional[list[memoryview]]) -> Optional[list[Any]]:
        if all_data is None:
            return None
        tids = [Tid(tid) for _, tid in sorted(self._raw.members)]
        return [Message(tid, 0, data).obj() for tid, data in zip(tids, all_data)]


def join(task: Task, name: str, count: Optional[int] = None) -> Group:
    """See :meth:`Task.join`."""
    group = Group(_vmachine.join(task._raw, name))
    if count is not None:
        group.await_members(count)
    return group


def members(task: Task, name: str) -> Members:
    """See :meth:`Task.group`."""
    version, tids = _vmachine.members(task._raw, name)
    return Members(version, {number: Tid(tid) for number, tid in tids})


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0


def _code(array: Any) -> str:
    """The type of the numbers, for the extension module."""
    return f"{array.dtype.kind}{array.dtype.itemsize}"


def _function(op: Op) -> Callable[[Any, Any], Any]:
    if callable(op):
        return op
    if op not in _OPERATIONS:
        raise ArgumentError(f"there is no operation {op!r}: use one of {', '.join(_OPERATIONS)}")
    return _OPERATIONS[op]


def _array_like(raw: bytearray, array: Any) -> Any:
    return array_of(memoryview(raw), array.dtype, array.shape)


def _stacked(raw: bytearray, array: Any) -> Any:
    count = len(raw) // array.nbytes if array.nbytes else 0
    return array_of(memoryview(raw), array.dtype, (count, *array.shape))


def _fill(out: Any, raw: bytearray) -> None:
    memory = view(out, to_write=True)
    if len(memory) != len(raw):
        raise ArgumentError(
            f"a block of {len(raw)} bytes came for an array of {len(memory)} bytes: pass an array of "
            "the block's shape"
        )
    memory[:] = raw
