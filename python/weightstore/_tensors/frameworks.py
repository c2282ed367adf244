"""Arrays of numpy and tensors of torch alike: what a module may hold.

Imports neither of the two: a value can only be a tensor of torch if somebody else has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

from . import dtypes


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_lazy(value: Any) -> bool:
    """Whether a tensor is one of torch's that take their shape from the first input."""
    return is_tensor(value) and bool(sys.modules["torch"].nn.parameter.is_lazy(value))


def type_and_shape(value: Any) -> tuple[str | None, tuple[int, ...] | None]:
    """As a file would store it. None for a type that files do not have, and for the shape of a lazy parameter."""
    if not is_tensor(value):
        return dtypes.READ_AS.get(value.dtype.name), value.shape
    dtype = dtypes.READ_AS.get(str(value.dtype).removeprefix("torch."))
    if is_lazy(value):
        return dtype, None
    packing = 1 if dtype is None else dtypes.byte_packing(dtype)
    shape = tuple(value.shape)
    return dtype, (*shape[:-1], shape[-1] * packing) if packing > 1 and shape else shape


def identity(value: Any) -> Hashable:
    """Equal for values that are the same tensor: the same object, or all of the same memory in the same layout."""
    if is_tensor(value) and not is_lazy(value) and value.device.type != "meta" and value.numel():
        if value.layout is not sys.modules["torch"].strided:
            return id(value)
        return value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
    return id(value)


def memory_range(value: Any) -> tuple[int, int]:
    """First byte and end of what a tensor's elements touch."""
    if not is_tensor(value):
        import numpy as np

        return np.lib.array_utils.byte_bounds(value) if value.size else (0, 0)
    from . import aliases

    return (0, 0) if value.device.type == "meta" or is_lazy(value) else aliases.memory_range(value)


def plain_memory(value: Any) -> int | None:
    """The address of an array or tensor that lies in memory as in a file, row-major and native; else None."""
    if not is_tensor(value):
        plain = value.flags.c_contiguous and value.dtype.isnative
        return value.__array_interface__["data"][0] if plain else None
    plain = value.device.type == "cpu" and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    return value.data_ptr() if plain else None
