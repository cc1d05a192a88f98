"""Arrays as bytes: numpy's, and every other object with a buffer. numpy itself is optional."""

from __future__ import annotations

import sys
from typing import Any

from .errors import ArgumentError


def view(array: Any, to_write: bool = False) -> memoryview:
    """The bytes of an array, without a copy. :class:`ArgumentError` if they cannot be had so."""
    if hasattr(array, "__array_interface__") and hasattr(array, "dtype"):
        return _of_numpy(array, to_write)
    try:
        data = memoryview(array)
    except TypeError as error:
        raise ArgumentError(
            f"{type(array).__name__} is no array of numbers: send objects with `send`, and arrays "
            "of numpy, `array.array`, bytes and the like as arrays"
        ) from error
    if not data.c_contiguous:
        raise ArgumentError("the array is not contiguous in memory: pass a copy of it")
    _check_writable(not data.readonly, to_write)
    if data.nbytes == 0:
        return memoryview(bytearray() if to_write else b"")
    return data.cast("B")


def _of_numpy(array: Any, to_write: bool) -> memoryview:
    if not isinstance(array, _ndarray()):
        array = _numpy().asarray(array)
    dtype = array.dtype
    if dtype.hasobject:
        raise ArgumentError(
            f"an array of dtype {dtype} holds Python objects: send it with `send`, which pickles it"
        )
    if dtype.byteorder == (">" if sys.byteorder == "little" else "<"):
        raise ArgumentError(
            f"the numbers of dtype {dtype.str} are not in this host's byte order: convert them "
            f"with `astype(array.dtype.newbyteorder('='))`"
        )
    if not array.flags.c_contiguous:
        raise ArgumentError(
            "the array is not contiguous in memory: pass `numpy.ascontiguousarray(array)`"
        )
    _check_writable(array.flags.writeable, to_write)
    return memoryview(array.reshape(-1).view(_numpy().uint8))


def _check_writable(is_writable: bool, to_write: bool) -> None:
    if to_write and not is_writable:
        raise ArgumentError(
            "the buffer is read-only: receive into a bytearray or an array that can be written"
        )


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ArgumentError(
            "this call needs numpy: install it, or use `Message.data`, which is a memoryview"
        ) from error
    return numpy


def _ndarray() -> Any:
    return _numpy().ndarray


def array_of(data: memoryview, dtype: Any, shape: Any = None) -> Any:
    """The bytes as an array of numpy, without a copy. ``ValueError`` if they are none."""
    numpy = _numpy()
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"no message holds objects of dtype {dtype}")
    array = numpy.frombuffer(data, dtype=dtype) if len(data) else numpy.empty(0, dtype)
    return array if shape is None else array.reshape(shape)


def as_array(values: Any) -> Any:
    """The values as an array of numpy; an array as it is."""
    return _numpy().asarray(values)
