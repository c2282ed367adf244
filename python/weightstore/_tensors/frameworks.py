"""What arrays of numpy and tensors of torch have in common: the types and shapes that files have for them, and their memory.

Imports neither of the two: a value can only be a tensor of torch if the caller has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import cache
from typing import Any

from .. import _core, errors
from . import dtypes


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_distributed(value: Any) -> bool:
    """Whether this is a DTensor, of which other processes have parts."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


@cache
def _torch_memory() -> Any:
    """The module that looks at tensors; it imports torch."""
    from . import torch_memory

    return torch_memory


def is_lazy(value: Any) -> bool:
    """Whether a tensor is one of torch's that take their shape from the first input."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.parameter.UninitializedTensorMixin)


# ---- types and shapes ------------------------------------------------------------------------------------------------


def stored_type(value: Any, name: str, format: str = "") -> tuple[str, tuple[int, ...]]:
    """Type and shape of an array or tensor in a file. Raises InvalidArgument, with the tensor's name, if files have no such
    type."""
    names = dtypes.NAME_OF_TORCH if is_tensor(value) else dtypes.NAME_OF_NUMPY
    dtype = names.get(_type_name(value))
    if dtype is None:
        shown = value.dtype if is_tensor(value) else f"numpy's {value.dtype.name}"
        raise errors.make(
            "invalid_argument",
            f"a file cannot hold {shown}; convert it to one of {', '.join(names)}",
            tensor=name or None,
            format=format,
        )
    return dtype, stored_shape(dtype, tuple(value.shape))


def storable(dtype: str, format: str) -> str:
    """The type under which a format holds the same bytes."""
    return _renamed_dtypes()[format].get(dtype, dtype)


@cache
def _renamed_dtypes() -> dict[str, dict[str, str]]:
    return {each.name: each.renamed_dtypes for each in _core.FORMATS}


def type_and_shape(value: Any) -> tuple[str | None, tuple[int, ...] | None]:
    """Type and shape that a file must have to be read into this value. None for a type that no file has, and for the shape
    of a lazy parameter."""
    dtype = dtypes.READ_AS.get(_type_name(value))
    if is_lazy(value):
        return dtype, None
    shape = tuple(value.shape)
    return dtype, shape if dtype is None else stored_shape(dtype, shape)


def _type_name(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.") if is_tensor(value) else value.dtype.name


def stored_shape(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Converts a shape in items, as libraries count, to a shape in elements, as files count."""
    packing = dtypes.byte_packing(dtype)
    if packing == 1:
        return shape
    return (*shape[:-1], shape[-1] * packing) if shape else (packing,)


def shown_shape(dtype: str, shape: tuple[int, ...], name: str | None = None) -> tuple[int, ...]:
    """Converts a shape in elements, as files count, to a shape in items, as libraries count. Raises InvalidArgument if a row
    does not end with a whole item."""
    packing = dtypes.byte_packing(dtype)
    if packing == 1:
        return shape
    if not shape or shape[-1] % packing:
        raise errors.make(
            "unshowable",
            f"{dtype} is shown {packing} elements to the byte, but the last dimension of {list(shape)} is odd; .bytes() "
            "gives its bytes as stored",
            tensor=name,
        )
    return (*shape[:-1], shape[-1] // packing)


# ---- memory ----------------------------------------------------------------------------------------------------------


def is_plain(value: Any) -> bool:
    """Whether the bytes in memory of an array or tensor are those that a file would hold: row-major, in the machine's byte
    order."""
    if is_tensor(value):
        return bool(_torch_memory().is_plain(value))
    return bool(value.flags.c_contiguous and value.dtype.isnative)


def plain_memory(value: Any) -> int | None:
    """The address of such bytes; None if is_plain() is False. A tensor must have memory."""
    if not is_plain(value):
        return None
    address: int = value.data_ptr() if is_tensor(value) else value.__array_interface__["data"][0]
    return address


def memory_range(value: Any) -> tuple[int, int]:
    """First byte and end of what a tensor's elements touch."""
    if not is_tensor(value):
        import numpy as np

        return np.lib.array_utils.byte_bounds(value) if value.size else (0, 0)
    return (0, 0) if value.device.type == "meta" or is_lazy(value) else _torch_memory().memory_range(value)


def identity(value: Any) -> Hashable:
    """Equal for values that are the same tensor: the same object, or the same memory with the same strides."""
    if not is_tensor(value):
        return id(value)
    memory = _torch_memory()
    if memory.is_ordinary(value):
        address = value.data_ptr()  # 0 without elements
    elif is_lazy(value) or memory.why_not_dense(value) is not None or not value.numel():
        return id(value)
    else:
        address = memory.pointer(value)
    return (value.device, address, value.shape, value.stride(), value.dtype) if address else id(value)


# ---- writing into them -----------------------------------------------------------------------------------------------


def copy_into(target: Any, value: Any) -> None:
    """Sets the elements of an array or tensor, converted to its type."""
    if is_tensor(target):
        with sys.modules["torch"].no_grad():
            target.copy_(value)
        return
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(target, value, casting="unsafe")


def note_written(target: Any) -> None:
    """Tells autograd that the memory of a target was written to. A backward pass that needs the old values then fails instead
    of computing something wrong."""
    if is_tensor(target):
        sys.modules["torch"].autograd.graph.increment_version(target)
