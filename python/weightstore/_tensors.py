"""Tensors as torch tensors. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import _dtypes

if TYPE_CHECKING:
    from ._core import Memory
    from ._handle import TensorHandle


def to_torch(handle: TensorHandle) -> torch.Tensor:
    dtype = _dtype_for(handle.name, handle.dtype)
    shape, offset, strides = handle._layout()
    memory = None
    if handle._file._mapped and not any(stride < 0 for stride in strides):
        memory = handle._file._reader.private_view(handle._number)
    if memory is None or memory.address % dtype.itemsize:
        tensor = _over(handle._read(), dtype, shape)
    elif handle._selection is None:
        tensor = _over(memory, dtype, shape)
    elif len(memory) == 0:
        tensor = torch.empty(shape, dtype=dtype, device="cpu")
    else:
        steps = [stride // dtype.itemsize for stride in strides]
        whole = torch.frombuffer(memory, dtype=dtype)
        tensor = torch.as_strided(whole, shape, steps, offset // dtype.itemsize)
    return tensor != 0 if handle.dtype == _dtypes.WIDE_BOOL else tensor


def from_memory(memory: Memory, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over row-major memory, which may be written to."""
    packing = _dtypes.byte_packing(dtype)
    if packing > 1:
        shape = (*shape[:-1], shape[-1] // packing)
    tensor = _over(memory, _dtypes.torch_dtype(dtype), shape)
    return tensor != 0 if dtype == _dtypes.WIDE_BOOL else tensor


def check_showable(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    _dtype_for(name, dtype)
    packing = _dtypes.byte_packing(dtype)
    if packing > 1 and (not shape or shape[-1] % packing):
        raise TypeError(
            f"tensor '{name}': torch shows {dtype} two to the byte, but the last dimension of {shape} is odd"
        )


def _over(memory: Memory, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    # torch.frombuffer() refuses empty buffers.
    if len(memory) == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    tensor = torch.frombuffer(memory, dtype=dtype)
    # In place, so that it is no view of another tensor; and quicker.
    return tensor if len(shape) == 1 else tensor.resize_(shape)


def _dtype_for(name: str, dtype: str) -> torch.dtype:
    try:
        return _dtypes.torch_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"tensor '{name}': {error}") from None
