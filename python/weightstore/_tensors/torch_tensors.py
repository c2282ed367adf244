"""Tensors as torch tensors. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from . import dtypes, frameworks, shapes
from .torch_memory import require_memory

if TYPE_CHECKING:
    from .._core import Memory
    from .dlpack import StridedItems


def from_memory(memory: Memory, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over row-major memory, which may be written to."""
    tensor = _over(memory, dtypes.torch_dtype(dtype), frameworks.shown_shape(dtype, shape))
    return tensor != 0 if dtype == dtypes.WIDE_BOOL else tensor


def view_memory(memory: Memory, dtype: str, items: StridedItems) -> torch.Tensor:
    """A tensor over the items of some memory. The memory is aligned, and no stride is negative."""
    shown = dtypes.torch_dtype(dtype)
    if len(memory) == 0:
        return torch.empty(items.shape, dtype=shown, device="cpu")
    steps = [stride // shown.itemsize for stride in items.strides]
    tensor = torch.as_strided(torch.frombuffer(memory, dtype=shown), items.shape, steps, items.offset // shown.itemsize)
    return tensor != 0 if dtype == dtypes.WIDE_BOOL else tensor


def can_view(memory: Memory, dtype: str) -> bool:
    """Whether torch can show memory where it is: the memory must be aligned."""
    return memory.address % dtypes.torch_dtype(dtype).itemsize == 0


def check_showable(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    _dtype_for(name, dtype)
    shapes.check_torch(name, shape)
    frameworks.shown_shape(dtype, shape, name)


def check_target(value: torch.Tensor, name: str) -> None:
    """Raises unless something can be written into a tensor."""
    require_memory(value, name)


def shown_dtype(dtype: str) -> torch.dtype:
    return torch.bool if dtype == dtypes.WIDE_BOOL else dtypes.torch_dtype(dtype)


def _over(memory: Memory, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    # torch.frombuffer() refuses empty buffers.
    if len(memory) == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    tensor = torch.frombuffer(memory, dtype=dtype)
    # In place, so that it is no view of another tensor; and quicker.
    return tensor if len(shape) == 1 else tensor.resize_(shape)


def _dtype_for(name: str, dtype: str) -> torch.dtype:
    try:
        return dtypes.torch_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"tensor '{name}': {error}") from None


# ---- writing -------------------------------------------------------------------------------------------------------


def add_tensor(writer: _core.Writer, name: str, tensor: torch.Tensor, param_id: int | None, format: str) -> None:
    """Adds a tensor of any strides and device; nothing is copied before it is written."""
    require_memory(tensor, name, format)
    dtype, shape = frameworks.stored_type(tensor, name, format)
    if tensor.device.type != "cpu":
        writer.add_deferred(name, dtype, shape, lambda: cpu_bytes(tensor), param_id)
        return
    item_bytes = tensor.element_size()
    # The storage too: while the writer writes, others can give the tensor another one.
    owner = (tensor, tensor.untyped_storage())
    plain = frameworks.plain_memory(tensor)
    if plain is not None:
        writer.add_memory(name, dtype, shape, plain, tensor.numel() * item_bytes, owner, param_id)
        return
    writer.add_strided(
        name,
        dtype,
        shape,
        tensor.data_ptr(),
        item_bytes,
        tuple(tensor.shape),
        tuple(stride * item_bytes for stride in tensor.stride()),
        owner,
        param_id,
        sign_bytes=item_bytes // 2 if tensor.dtype.is_complex else item_bytes,
        negate=tensor.is_neg(),
        conjugate=tensor.is_conj(),
    )


def cpu_bytes(tensor: torch.Tensor) -> Any:
    """The row-major bytes of a tensor: its own memory where it lies like that, else a copy."""
    here = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return here.reshape(-1).view(torch.uint8).numpy()
