"""Tensors as torch tensors. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .. import _core, errors
from . import aliases, dtypes, shapes

if TYPE_CHECKING:
    from .._core import Memory
    from .dlpack import Layout


def from_memory(memory: Memory, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over row-major memory, which may be written to."""
    packing = dtypes.byte_packing(dtype)
    if packing > 1:
        shape = (*shape[:-1], shape[-1] // packing)
    tensor = _over(memory, dtypes.torch_dtype(dtype), shape)
    return tensor != 0 if dtype == dtypes.WIDE_BOOL else tensor


def view_memory(memory: Memory, dtype: str, layout: Layout) -> torch.Tensor:
    """A tensor over the part of some memory that the layout describes. The memory is aligned, and no stride is negative."""
    shown = dtypes.torch_dtype(dtype)
    if len(memory) == 0:
        return torch.empty(layout.shape, dtype=shown, device="cpu")
    steps = [stride // shown.itemsize for stride in layout.strides]
    tensor = torch.as_strided(
        torch.frombuffer(memory, dtype=shown), layout.shape, steps, layout.offset // shown.itemsize
    )
    return tensor != 0 if dtype == dtypes.WIDE_BOOL else tensor


def is_aligned(memory: Memory, dtype: str) -> bool:
    """Whether torch can show memory where it is."""
    return memory.address % dtypes.torch_dtype(dtype).itemsize == 0


def check_showable(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    _dtype_for(name, dtype)
    shapes.check_torch(name, shape)
    packing = dtypes.byte_packing(dtype)
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
        return dtypes.torch_dtype(dtype)
    except TypeError as error:
        raise TypeError(f"tensor '{name}': {error}") from None


# ---- writing -------------------------------------------------------------------------------------------------------


def stored_type(tensor: torch.Tensor, name: str, format: str) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor in a file. Raises InvalidArgument when files have no such type."""
    dtype = dtypes.NAME_OF_TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise errors.make(
            "invalid_argument",
            f"a file cannot hold {tensor.dtype}; convert it to one of {', '.join(dtypes.NAME_OF_TORCH)}",
            tensor=name,
            format=format,
        )
    packing = dtypes.byte_packing(dtype)
    shape = tuple(tensor.shape)
    if packing > 1:
        shape = (*shape[:-1], shape[-1] * packing) if shape else (packing,)
    return dtype, shape


def add_tensor(writer: _core.Writer, name: str, tensor: torch.Tensor, param_id: int | None, format: str) -> None:
    """Adds a tensor of any layout and device; nothing is copied before it is written."""
    dtype, shape = stored_type(tensor, name, format)
    if tensor.device.type == "meta":
        raise errors.make("no_data", "Cannot copy out of meta tensor: it has a shape but no values", tensor=name)
    if tensor.device.type != "cpu":
        writer.add_deferred(name, dtype, shape, lambda: cpu_bytes(tensor), param_id)
        return
    if not aliases.has_memory(tensor):
        raise errors.make(
            "invalid_argument",
            "has no memory of its own: it is a DTensor, a FakeTensor or another subclass that wraps its values, or its "
            "storage was freed; pass to_local() or full_tensor() of it, or a clone() from before",
            tensor=name,
            format=format,
        )
    item_bytes = tensor.element_size()
    if lies_ready(tensor):
        writer.add_memory(name, dtype, shape, tensor.data_ptr(), tensor.numel() * item_bytes, tensor, param_id)
        return
    writer.add_strided(
        name,
        dtype,
        shape,
        tensor.data_ptr(),
        item_bytes,
        tuple(tensor.shape),
        tuple(stride * item_bytes for stride in tensor.stride()),
        tensor,
        param_id,
        sign_bytes=item_bytes // 2 if tensor.dtype.is_complex else item_bytes,
        negate=tensor.is_neg(),
        conjugate=tensor.is_conj(),
    )


def lies_ready(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor holds its values as a file does."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def cpu_bytes(tensor: torch.Tensor) -> Any:
    """The row-major bytes of a tensor: its own memory where it lies like that, else a copy."""
    here = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return here.reshape(-1).view(torch.uint8).numpy()
