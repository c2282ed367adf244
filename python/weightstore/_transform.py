"""Changes to the bytes of whole tensors: transposition and conversion between floating-point types."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core, _dtypes


def transpose(data: Any, dtype: str, rows: int, cols: int) -> _core.Memory:
    """The transpose of a row-major matrix of `rows` by `cols` elements, in new memory."""
    item = np.dtype(f"V{_dtypes.bits(dtype) // 8}")
    source: Any = np.frombuffer(data, item).reshape(rows, cols)
    memory = _core.allocate(source.nbytes)
    buffer: Any = memory
    np.ndarray((cols, rows), item, buffer)[...] = source.T
    return memory


def cast(data: Any, from_dtype: str, to_dtype: str) -> _core.Memory:
    """The same numbers as another type, rounded to nearest even, in new memory."""
    source: Any = np.frombuffer(data, _dtypes.numpy_dtype(from_dtype))
    target = _dtypes.numpy_dtype(to_dtype)
    memory = _core.allocate(source.size * target.itemsize)
    buffer: Any = memory
    with np.errstate(over="ignore", invalid="ignore"):
        np.ndarray(source.shape, target, buffer)[...] = source.astype(target)
    return memory
