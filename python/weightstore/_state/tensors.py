"""Tensors of torch in a state. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from .._tensors import dtypes, frameworks, torch_memory, torch_tensors
from .sharing import ALIGNMENT, Extent

_CLASSES = (torch.Tensor, torch.nn.Parameter)
_PAIRED = {torch.complex128: torch.float64, torch.complex32: torch.float16}


def refusal(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be saved; None if it can."""
    problem = torch_memory.why_no_memory(tensor)
    if problem is not None:
        return problem
    if type(tensor) not in _CLASSES:
        return "its class would be lost; save the tensor it wraps, or .as_subclass(torch.Tensor)"
    if tensor.dtype not in _PAIRED and str(tensor.dtype).removeprefix("torch.") not in dtypes.NAME_OF_TORCH:
        return f"a file cannot hold {tensor.dtype}"
    return None


# ---- saving ----------------------------------------------------------------------------------------------------------


def extent(tensor: torch.Tensor) -> Extent:
    memory = (tensor.device, *torch_memory.storage_range(tensor))
    begin, end = torch_memory.memory_range(tensor)
    is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return Extent(memory, begin, end, tensor.element_size(), is_plain, tensor)


def stored(tensor: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
    """What the file holds for a tensor, and the options with which it becomes the tensor again."""
    options: dict[str, Any] = _class_options(tensor)
    value = tensor.detach()
    if frameworks.is_distributed(value):
        return value, options
    if not value.is_contiguous() and _is_dense(list(value.shape), list(value.stride())):
        options["strides"] = list(value.stride())
    if value.dtype in _PAIRED:
        options["dtype"] = str(value.dtype).removeprefix("torch.")
        value = torch.view_as_real(value.resolve_conj())
    return value, options


def _class_options(tensor: torch.Tensor) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if isinstance(tensor, torch.nn.Parameter):
        options["parameter"] = True
    if tensor.requires_grad:
        options["requires_grad"] = True
    return options


def _is_dense(shape: list[int], strides: list[int]) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def bytes_between(tensor: torch.Tensor, begin: int, end: int) -> tuple[torch.Tensor, int]:
    """The part of a tensor's storage from one address to another, and the address at which it begins: a little earlier, so that
    views of every type can be made of it."""
    storage = tensor.untyped_storage()
    offset = (begin - storage.data_ptr()) // ALIGNMENT * ALIGNMENT
    size = end - storage.data_ptr() - offset
    part = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return part.set_(storage, offset, (size,), (1,)), storage.data_ptr() + offset


def view_options(tensor: torch.Tensor, begin: int) -> dict[str, Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    options = {"view": [name, list(tensor.shape), list(tensor.stride()), tensor.data_ptr() - begin]}
    for bit in ("conj", "neg"):
        if getattr(tensor, f"is_{bit}")():
            options[bit] = True  # type: ignore[assignment]
    return options | _class_options(tensor)


# ---- loading ---------------------------------------------------------------------------------------------------------


def restored(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """Raises ValueError if the options do not fit."""
    if "view" in options:
        tensor = _view(tensor, *options["view"])
        tensor = torch.conj(tensor) if options.get("conj") else tensor
        tensor = torch._neg_view(tensor) if options.get("neg") else tensor
    else:
        if "dtype" in options:
            tensor = _from_pairs(tensor, options["dtype"])
        if "strides" in options:
            tensor = _with_strides(tensor, options["strides"])
    if options.get("parameter"):
        return torch.nn.Parameter(tensor, requires_grad=bool(options.get("requires_grad")))
    return tensor.requires_grad_() if options.get("requires_grad") else tensor


def _from_pairs(tensor: torch.Tensor, name: Any) -> torch.Tensor:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if dtype not in _PAIRED or tensor.dtype != _PAIRED[dtype] or tensor.shape[-1:] != (2,):
        raise ValueError(f"{name!r} is not stored as pairs of {tensor.dtype}")
    return torch.view_as_complex(tensor)


def _with_strides(tensor: torch.Tensor, strides: Any) -> torch.Tensor:
    if not _are_sizes(strides) or len(strides) != tensor.dim() or not _is_dense(list(tensor.shape), strides):
        raise ValueError(f"strides {strides!r} do not fit the shape {list(tensor.shape)}")
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _view(tensor: torch.Tensor, name: Any, shape: Any, strides: Any, offset: Any) -> torch.Tensor:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype) or not (_are_sizes(shape) and _are_sizes(strides) and _are_sizes([offset])):
        raise ValueError(f"a view of {name!r}, {shape!r}, {strides!r} at {offset!r} cannot be made")
    if len(shape) != len(strides) or not tensor.is_contiguous():
        raise ValueError("a view needs as many strides as dimensions, of a tensor that is contiguous")
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    span = 0 if 0 in shape else (last + 1) * dtype.itemsize
    start = tensor.storage_offset() * tensor.element_size() + offset
    if offset + span > tensor.nbytes or start % dtype.itemsize:
        raise ValueError(f"a view of {span} bytes at {offset} is not in a tensor of {tensor.nbytes} bytes")
    made = torch.empty(0, dtype=dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), start // dtype.itemsize, shape, strides)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def shown(dtype: str, shape: tuple[int, ...], options: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Type and shape of what restored() makes of a tensor of the file. Raises ValueError."""
    if "view" in options:
        name, sizes, *_ = options["view"]
        return f"torch.{name}", tuple(sizes)
    if "dtype" in options:
        return f"torch.{options['dtype']}", shape[:-1]
    return str(torch_tensors.shown_dtype(dtype)), frameworks.shown_shape(dtype, shape)
