"""Items of torch's plans as boxes of tensors. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.planner import WriteItem

from .. import errors
from .._chunks.layout import FileTensor
from .._tensors import dtypes, frameworks
from .._tensors.torch_memory import require_memory

# Tensors on other devices are brought here in pieces of this size.
_PIECE_BYTES = 32 << 20


def chunk_of(item: WriteItem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape of the whole tensor; where the item begins in it; and its size."""
    data = item.tensor_data
    assert data is not None
    return tuple(data.size), tuple(data.chunk.offsets), tuple(data.chunk.sizes)


def stored_dtype(dtype: torch.dtype, name: str) -> str:
    """The name in files. Raises InvalidArgument for a type that no file has."""
    known = dtypes.READ_AS.get(str(dtype).removeprefix("torch."))
    if known is None:
        raise errors.make("invalid_argument", f"{dtype} has no place in a checkpoint; convert the tensor", tensor=name)
    return known


def dtype_of(item: WriteItem) -> str:
    data = item.tensor_data
    assert data is not None
    return stored_dtype(data.properties.dtype, item.index.fqn)


def nbytes_of(item: WriteItem) -> int:
    data = item.tensor_data
    assert data is not None
    return data.chunk.sizes.numel() * data.properties.dtype.itemsize


def is_in_safetensors(dtype: str) -> bool:
    """Whether SafeTensors has the type. Tensors of other types are kept as bytes."""
    return dtype in dtypes.NAME_OF_TORCH.values()


def file_tensor(name: str, dtype: str, shape: tuple[int, ...]) -> FileTensor:
    return FileTensor(name, dtype, frameworks.stored_shape(dtype, shape))


def values_of(item: WriteItem, tensor: Any) -> torch.Tensor:
    """The tensor that the planner has for an item, checked."""
    name = item.index.fqn
    _, _, size = chunk_of(item)
    if not isinstance(tensor, torch.Tensor):
        raise errors.make("invalid_argument", f"the planner gave {errors.typed(tensor)} for a tensor", tensor=name)
    if hasattr(tensor, "wait"):  # the result of a collective that may still be running
        tensor = tensor.wait()
    values: torch.Tensor = tensor.detach()
    if tuple(values.shape) != size:
        raise errors.make(
            "invalid_argument",
            f"the plan says {list(size)}, the tensor has the shape {list(values.shape)}",
            tensor=name,
        )
    require_memory(values, name)
    return values


def box(
    name: str,
    file: int,
    begin: int,
    shape: tuple[int, ...],
    first: tuple[int, ...],
    values: torch.Tensor,
    shared: tuple[int, int, int] | None,
) -> tuple[Any, ...]:
    """What _core.write_boxes() takes; the caller keeps `values` alive."""
    item_bytes = values.element_size()
    strides = tuple(stride * item_bytes for stride in values.stride())
    signs = 0
    if values.is_neg() or values.is_conj():
        signs = item_bytes // 2 if values.dtype.is_complex else item_bytes
    size = tuple(values.shape)
    address = values.data_ptr()
    return (
        name,
        file,
        begin,
        item_bytes,
        shape,
        first,
        size,
        address,
        strides,
        signs,
        values.is_neg(),
        values.is_conj(),
        shared,
    )


def pieces(values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Parts of a tensor on the CPU, cut along the first dimension, and where each begins there. A tensor that is on the CPU is
    one part, without a copy."""
    if values.device.type == "cpu":
        yield 0, values
        return
    rows = values.shape[0] if values.dim() else 1
    if rows <= 1 or values.nbytes <= _PIECE_BYTES:
        yield 0, values.cpu()
        return
    step = max(1, rows * _PIECE_BYTES // values.nbytes)
    for row in range(0, rows, step):
        yield row, values.narrow(0, row, min(step, rows - row)).cpu()
