"""Tensors as numpy arrays and DLPack capsules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, _dlpack, _dtypes, _shapes, errors

if TYPE_CHECKING:
    from ._core import Memory
    from ._handle import TensorHandle

Array = np.ndarray[Any, Any]


def to_numpy(handle: TensorHandle) -> Array:
    dtype = _dtype_for(handle.name, handle.dtype)
    _shapes.check_numpy(handle.name, handle.shape, dtype.itemsize)
    memory: Any = handle._file._reader.view(handle._number) if handle._file._mapped else None
    if memory is None:
        memory = handle._read()
        array: Array = np.ndarray(handle.shape, dtype, memory)
    else:
        shape, offset, strides = handle._layout()
        # Nothing has no place: an offset that numpy would find outside the memory.
        array = (
            np.ndarray(shape, dtype, memory, offset, strides) if 0 not in shape else np.ndarray(shape, dtype, memory)
        )
    return _narrow_bool(array) if handle.dtype == _dtypes.WIDE_BOOL else array


def from_memory(memory: Memory, dtype: str, shape: tuple[int, ...]) -> Array:
    """An array over row-major memory."""
    buffer: Any = memory  # numpy's own hints know but a few kinds of buffers
    array: Array = np.ndarray(shape, _dtypes.numpy_dtype(dtype), buffer)
    return _narrow_bool(array) if dtype == _dtypes.WIDE_BOOL else array


def check_showable(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    _shapes.check_numpy(name, shape, _dtype_for(name, dtype).itemsize)


def to_dlpack(handle: TensorHandle, *, versioned: bool, copy: bool | None) -> Any:
    """A capsule. Consumers that ignore that it is read-only write to a copy-on-write mapping: nobody can change the file, or
    crash."""
    if handle.dtype == _dtypes.WIDE_BOOL:
        return to_numpy(handle).__dlpack__(max_version=(1, 0) if versioned else None)
    _dlpack.item_bytes(handle.name, handle.dtype)
    mapped = handle._file._mapped
    reader = handle._file._reader
    memory = reader.private_view(handle._number) or reader.view(handle._number) if mapped and not copy else None
    return _dlpack.capsule(
        handle.name,
        handle.dtype,
        handle._layout(),
        memory,
        handle._read,
        versioned=versioned,
        # Without a mapping there is nothing that could be copied: the tensor is read.
        must_share=copy is False and mapped,
    )


def _dtype_for(name: str, dtype: str) -> np.dtype[Any]:
    try:
        return _dtypes.numpy_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"tensor '{name}': {error}") from None


def _narrow_bool(array: Array) -> Array:
    return np.asarray(array != 0)


# ---- writing -------------------------------------------------------------------------------------------------------


def add_array(writer: _core.Writer, name: str, value: Any, param_id: int | None, format: str) -> None:
    """Adds a numpy array of any layout and byte order; nothing is copied before it is written."""
    array: Array = np.asarray(value)
    dtype = _dtypes.NAME_OF_NUMPY.get(array.dtype.name)
    if dtype is None:
        raise errors.make(
            "invalid_argument",
            f"a file cannot hold numpy's {array.dtype.name}; convert it to one of {', '.join(_dtypes.NAME_OF_NUMPY)}",
            tensor=name,
            format=format,
        )
    address = array.__array_interface__["data"][0]
    swapped = not array.dtype.isnative and array.dtype.itemsize > 1
    if array.flags.c_contiguous and not swapped:
        writer.add_memory(name, dtype, array.shape, address, array.nbytes, array, param_id)
        return
    item_bytes, shape, strides = array.dtype.itemsize, array.shape, array.strides
    if swapped:
        # Each number as a row of bytes, last byte first; a complex number is two of them.
        width = item_bytes // 2 if array.dtype.kind == "c" else item_bytes
        address += width - 1
        shape = (*shape, item_bytes // width, width)
        strides = (*strides, width, -1)
        item_bytes = 1
    writer.add_strided(name, dtype, array.shape, address, item_bytes, shape, strides, array, param_id)
