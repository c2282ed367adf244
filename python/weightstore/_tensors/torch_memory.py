"""Where the elements of a torch tensor lie. cpp/torch/element_memory.h does the same in C++. Imports torch."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .. import _core, errors

_NO_MEMORY = (
    "has no memory of its own: it is a DTensor, a FakeTensor or another tensor subclass that wraps its values; pass "
    "to_local() or full_tensor() of it, or the tensor it wraps"
)


_ORDINARY_CLASSES = (torch.Tensor, torch.nn.Parameter)


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what nearly all are: of torch's own classes, dense, on the CPU. Quicker than to ask what else it
    might be."""
    return (
        type(tensor) in _ORDINARY_CLASSES and tensor.is_cpu and tensor.layout is torch.strided and not tensor.is_nested
    )


def has_ordinary_memory(tensor: torch.Tensor) -> bool:
    """Whether it also is contiguous, and has elements that lie in its storage. Then why_no_memory() is None."""
    if not is_ordinary(tensor) or not tensor.is_contiguous():
        return False
    storage = tensor.untyped_storage()
    begin = storage.data_ptr()
    return begin != 0 and tensor.data_ptr() + tensor.nbytes <= begin + storage.nbytes()


def memory_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end of what a tensor's elements touch."""
    begin = tensor.data_ptr()
    return begin, begin + _spanned_bytes(tensor)


def _spanned_bytes(tensor: torch.Tensor) -> int:
    if tensor.is_contiguous():
        return tensor.nbytes
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def pointer(tensor: torch.Tensor) -> int:
    """The address of the first element of a dense tensor; 0 when there is none."""
    # torch warns, or raises, when such a tensor is asked for its address.
    return 0 if isinstance(tensor, FakeTensor) or tensor.device.type == "meta" else tensor.data_ptr()


def storage_pointer(tensor: torch.Tensor) -> int:
    """The address of the storage of any tensor; 0 when there is no memory, or none of the tensor's own."""
    if isinstance(tensor, FakeTensor):
        return 0
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a sparse tensor has no storage, and a wrapper's storage has no address
        return 0


def storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and size of the storage of a dense tensor. The address is 0 when there is no memory."""
    if isinstance(tensor, FakeTensor):
        return 0, 0
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:  # a wrapper's storage has no address
        return 0, 0


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the bytes in a tensor's memory are those that a file would hold. The tensor must have memory."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def why_not_dense(tensor: torch.Tensor) -> str | None:
    """Why a tensor is not a dense array, and what to pass instead; None if it is one."""
    if tensor.layout == torch.strided and not tensor.is_nested:
        return None
    if tensor.is_nested:
        return "is nested; pass the tensors that it is made of"
    if tensor.is_mkldnn:
        return "is an mkldnn tensor; pass to_dense() of it"
    return f"has the layout {tensor.layout}; pass to_dense() of it, or its indices and values"


def why_no_memory(tensor: torch.Tensor) -> str | None:
    """Why a tensor has no memory of its own that holds its elements, and what to pass instead; None if it has. Tensors on
    other devices, and tensors without elements, are not refused."""
    problem = why_not_dense(tensor)
    if problem is not None:
        return problem
    device = tensor.device.type
    if device == "meta":
        return (
            "is on the meta device, so it has a shape but no values (Cannot copy out of meta tensor); give it memory with "
            "to_empty()"
        )
    if isinstance(tensor, FakeTensor):
        return _NO_MEMORY
    if device != "cpu" or tensor.numel() == 0:
        return None
    begin, available = storage_range(tensor)
    if begin != 0 and memory_range(tensor)[1] <= begin + available:
        return None
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return _NO_MEMORY
    needed = tensor.storage_offset() * tensor.element_size() + _spanned_bytes(tensor)
    return (
        f"lies in a storage of {available} bytes where its shape needs {needed}: the storage was freed or shrunk; pass the "
        "tensor while it has its memory (with FSDP: inside summon_full_params()), or a clone() from before"
    )


def require_memory(tensor: torch.Tensor, name: str, format: str = "") -> None:
    """Raises InvalidArgument, with the tensor's name, if the tensor has no memory. On the meta device the error is a
    NoDataError, which is an InvalidArgument, too."""
    problem = why_no_memory(tensor)
    if problem is not None:
        code = "no_data" if tensor.device.type == "meta" else "invalid_argument"
        raise errors.make(code, problem, tensor=name or None, format=format)


# Larger tensors get memory with huge pages, which is much faster to fill for the first time.
_LARGE = 1 << 20


def new_memory(values: torch.Tensor) -> torch.Tensor:
    """A tensor on the CPU of the same type and shape, row-major, without values."""
    if values.nbytes < _LARGE:
        return torch.empty(values.shape, dtype=values.dtype, device="cpu")
    flat = torch.frombuffer(_core.allocate(values.nbytes), dtype=torch.uint8)
    return flat.view(values.dtype).view(values.shape)
