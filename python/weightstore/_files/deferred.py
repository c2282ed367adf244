"""Tensors that are made when the writer reaches them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

from .._tensors import dtypes


class DeferredTensor:
    """A type, a shape and a callable: a value for every save verb.

    produce() is called once a save, when the writer reaches the tensor, and returns its bytes as stored (row-major,
    little-endian): one bytes-like object, or an iterable of them, of which one is held at a time. Planning the file calls
    nothing, so a model larger than memory can be saved.

    dtype: a type in any form: "BF16", "bf16", torch.bfloat16, np.float32.
    shape: counts elements: two to the byte for "F4".
    """

    __slots__ = ("dtype", "produce", "shape")

    def __init__(self, dtype: Any, shape: Sequence[int], produce: Callable[[], Any | Iterable[Any]]) -> None:
        self.dtype = dtypes.DType(dtypes.stored_name(dtype))
        self.shape = tuple(index(size) for size in shape)
        self.produce = produce
        if self.dtype == "QFloat":
            raise TypeError("QFloat tensors are made by quantize(), the adapter of a store, and copied by convert()")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"a shape cannot be negative: {self.shape}")
        if not callable(produce):
            raise TypeError("produce must be callable")

    def __repr__(self) -> str:
        return f"DeferredTensor({self.dtype!r}, {self.shape})"
