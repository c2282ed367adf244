"""Arrays and scalars of numpy in a state. Imports numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .. import _core
from .._tensors import dtypes, frameworks
from .sharing import Extent
from .tree import NotAScalar

Array = np.ndarray[Any, Any]

# Kinds of types whose bytes are values. Objects of Python would be pointers.
_VALUE_KINDS = frozenset("?biufcmMSU")


def refusal(value: Any) -> str | None:
    """Why an array cannot be saved; None if it can."""
    if type(value) is not np.ndarray:
        return "its class would be lost; save np.asarray() of it"
    return None if _dtype_text(value.dtype) else f"numpy's type {value.dtype} cannot be saved"


def _dtype_text(dtype: np.dtype[Any]) -> str | None:
    """How a tree names a type: as files do, else as numpy does. None for types whose bytes are not values."""
    if dtype.isnative and dtype.name in dtypes.NAME_OF_NUMPY:
        return dtypes.NAME_OF_NUMPY[dtype.name]
    return dtype.str if dtype.kind in _VALUE_KINDS else None


def _saved_dtype(dtype: np.dtype[Any]) -> str:
    text = _dtype_text(dtype)
    if text is None:
        raise NotAScalar
    return text


def dtype_of(text: str) -> np.dtype[Any]:
    """Raises ValueError if a tree names no such type."""
    if text in _core.DTYPES:
        try:
            return dtypes.numpy_dtype(text)
        except TypeError as error:
            raise ValueError(str(error)) from None
    try:
        found = np.dtype(text)
    except (TypeError, SyntaxError):
        raise ValueError(f"{text!r} is not a type of numpy") from None
    if found.kind not in _VALUE_KINDS or found.subdtype is not None:
        raise ValueError(f"{text!r} is not a type whose bytes are values")
    return found


def encode_dtype(dtype: np.dtype[Any]) -> list[Any]:
    return ["numpy.dtype", _saved_dtype(dtype)]


def encode_scalar(value: np.generic) -> list[Any]:
    # numpy gives an empty text four bytes that its type does not have.
    return ["numpy.scalar", _saved_dtype(value.dtype), value.tobytes()[: value.dtype.itemsize].hex()]


def decode_scalar(dtype: str, data: bytes) -> Any:
    found = dtype_of(dtype)
    if len(data) != found.itemsize:
        raise ValueError(f"{len(data)} bytes are not a value of {dtype}")
    return np.frombuffer(data, found)[0] if data else np.zeros((), found)[()]


# ---- saving ----------------------------------------------------------------------------------------------------------


def extent(array: Array) -> Extent:
    begin, end = frameworks.memory_range(array)
    return Extent("numpy", begin, end, 1, array.flags.c_contiguous, array)


def stored(array: Array) -> tuple[Array, dict[str, Any]]:
    """What the file holds for an array, and the options with which it becomes the array again."""
    if not array.dtype.isnative or array.dtype.name not in dtypes.NAME_OF_NUMPY:
        if array.dtype == np.complex128:
            return pairs(array), {"dtype": "complex128"}
        data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        return data, {"dtype": array.dtype.str, "shape": list(array.shape)}
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return array, {"order": "F"} if is_fortran else {}


def pairs(array: Array) -> Array:
    """Complex numbers as pairs of real ones."""
    return np.ascontiguousarray(array).reshape(-1).view(np.float64).reshape(*array.shape, 2)


def bytes_between(array: Array, begin: int, end: int) -> tuple[Array, int]:
    """The memory from one address to another, and the first address. `array` and others that are alive cover all of it."""
    memory: Any = (ctypes.c_ubyte * (end - begin)).from_address(begin)
    return np.frombuffer(memory, np.uint8), begin


def _bytes_of(base: Array) -> Array:
    contiguous = base if base.flags.c_contiguous else base.T
    return contiguous.reshape(-1).view(np.uint8)


def view_options(array: Array, begin: int) -> dict[str, Any]:
    offset = array.__array_interface__["data"][0] - begin
    return {"view": [_dtype_text(array.dtype), list(array.shape), list(array.strides), offset]}


# ---- loading ---------------------------------------------------------------------------------------------------------


def restored(array: Array, options: dict[str, Any]) -> Array:
    """Raises ValueError if the options do not fit."""
    if "view" in options:
        return _view(array, *options["view"])
    if options.get("dtype") == "complex128":
        if array.dtype != np.float64 or array.shape[-1:] != (2,):
            raise ValueError("complex128 is not stored as pairs of F64")
        return array.reshape(-1).view(np.complex128).reshape(array.shape[:-1])
    if "dtype" in options:
        found, shape = dtype_of(options["dtype"]), _sizes(options.get("shape"))
        if found.itemsize == 0:
            return np.zeros(shape, found)
        return array.reshape(-1).view(np.uint8).view(found).reshape(shape)
    return np.asfortranarray(array) if options.get("order") == "F" else array


def _view(array: Array, dtype: Any, shape: Any, strides: Any, offset: Any) -> Array:
    found, sizes = dtype_of(dtype), _sizes(shape)
    if not isinstance(strides, list) or not all(type(stride) is int for stride in [*strides, offset]):
        raise ValueError("strides and offset are not integers")
    # numpy raises ValueError if the view leaves the buffer.
    return np.ndarray(sizes, found, _bytes_of(array), offset, tuple(strides))


def _sizes(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape!r} is not a shape")
    return tuple(shape)


def shown(dtype: str, shape: tuple[int, ...], options: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Type and shape of what restored() makes of a tensor of the file. Raises ValueError."""
    if "view" in options:
        name, sizes, *_ = options["view"]
        return str(dtype_of(name)), _sizes(sizes)
    if options.get("dtype") == "complex128":
        return "complex128", shape[:-1]
    if "dtype" in options:
        return str(dtype_of(options["dtype"])), _sizes(options.get("shape"))
    return str(dtypes.numpy_dtype(dtype)), shape
