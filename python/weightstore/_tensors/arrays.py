"""Tensors as numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, errors
from . import dtypes, frameworks, shapes

if TYPE_CHECKING:
    from .._core import Memory
    from .dlpack import StridedItems

Array = np.ndarray[Any, Any]


def from_memory(memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
    """An array over row-major memory."""
    buffer: Any = memory  # numpy's own hints know but a few kinds of buffers
    array: Array = np.ndarray(shape, dtypes.numpy_dtype(dtype), buffer)
    return _narrow_bool(array) if dtype == dtypes.WIDE_BOOL else array


def can_view(memory: Memory, dtype: str) -> bool:
    """Whether numpy can show memory where it is: it can, at any address."""
    return True


def view_memory(memory: Memory, dtype: str, items: StridedItems) -> Array:
    """An array over the items of some memory."""
    buffer: Any = memory
    shown = dtypes.numpy_dtype(dtype)
    # A part without elements may have an offset that numpy would find outside of the memory.
    empty = 0 in items.shape
    array: Array = (
        np.ndarray(items.shape, shown, buffer) if empty else np.ndarray(items.shape, shown, buffer, *items[1:])
    )
    return _narrow_bool(array) if dtype == dtypes.WIDE_BOOL else array


def check_showable(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    shapes.check_numpy(name, shape, _dtype_for(name, dtype).itemsize)


def check_target(value: Any, name: str) -> None:
    """Raises unless something can be written into an array."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"tensor '{name}': a target is a numpy array or a torch tensor, not {type(value).__name__}")
    if not value.flags.writeable:
        raise errors.make("invalid_argument", "cannot be read into the given target: it is read-only", tensor=name)


def shown_dtype(dtype: str) -> np.dtype[Any]:
    return np.dtype(bool) if dtype == dtypes.WIDE_BOOL else dtypes.numpy_dtype(dtype)


def _dtype_for(name: str, dtype: str) -> np.dtype[Any]:
    try:
        return dtypes.numpy_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"tensor '{name}': {error}") from None


def _narrow_bool(array: Array) -> Array:
    return np.asarray(array != 0)


# ---- writing -------------------------------------------------------------------------------------------------------


def add_array(writer: _core.Writer, name: str, value: Any, param_id: int | None, format: str) -> None:
    """Adds a numpy array of any strides and byte order; nothing is copied before it is written."""
    array: Array = np.asarray(value)
    dtype, _ = frameworks.stored_type(array, name, format)
    plain = frameworks.plain_memory(array)
    if plain is not None:
        writer.add_memory(name, dtype, array.shape, plain, array.nbytes, array, param_id)
        return
    address = array.__array_interface__["data"][0]
    item_bytes, shape, strides = array.dtype.itemsize, array.shape, array.strides
    if not array.dtype.isnative:
        # Each number as a row of bytes, last byte first; a complex number is two of them.
        width = item_bytes // 2 if array.dtype.kind == "c" else item_bytes
        address += width - 1
        shape = (*shape, item_bytes // width, width)
        strides = (*strides, width, -1)
        item_bytes = 1
    writer.add_strided(name, dtype, array.shape, address, item_bytes, shape, strides, array, param_id)
