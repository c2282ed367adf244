"""What part of a tensor is meant: numpy's basic indexing, remembered instead of done."""

from __future__ import annotations

import operator
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

from .._tensors import frameworks


def is_basic(key: Any) -> bool:
    """Whether an index is made of integers, slices and at most one `...`, so that numpy and torch mean the same by it."""
    keys = key if isinstance(key, tuple) else (key,)
    if sum(item is Ellipsis for item in keys) > 1:
        return False
    return all(
        item is Ellipsis or isinstance(item, slice) or (isinstance(item, Integral) and not isinstance(item, bool))
        for item in keys
    )


class Dim(NamedTuple):
    """`size` elements from `start`, `step` apart. An integer index leaves a size of 1 that is not kept."""

    start: int
    step: int
    size: int
    kept: bool = True


class _OneElement(NamedTuple):
    """An index that picks one element, as an integer does, and keeps the axis."""

    at: int


class Selection:
    """A rectangular, strided part of an array. Immutable."""

    __slots__ = ("dims", "shape")

    def __init__(self, dims: tuple[Dim, ...]) -> None:
        self.dims = dims
        self.shape = tuple(dim.size for dim in dims if dim.kept)

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Selection:
        return cls(tuple(Dim(0, 1, size) for size in shape))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def covers(self, shape: tuple[int, ...]) -> bool:
        """Whether this is all of an array, unchanged."""
        return all(dim == (0, 1, size, True) for dim, size in zip(self.dims, shape, strict=True))

    def select(self, key: Any) -> Selection:
        """The part of this part that `key` picks. Raises IndexError and TypeError as numpy does."""
        keys = _expand(_resolved(key), len(self.shape))
        dims = []
        axis = 0
        for dim in self.dims:
            if not dim.kept:
                dims.append(dim)
            else:
                dims.append(_pick(dim, keys[axis], axis))
                axis += 1
        return Selection(tuple(dims))

    def strides(self, item_bytes: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Offset and strides, in bytes, of this part of a row-major array."""
        offset, step, result = 0, item_bytes, []
        for dim, size in zip(reversed(self.dims), reversed(shape), strict=True):
            offset += dim.start * step if dim.size else 0
            if dim.kept:
                result.append(dim.step * step)
            step *= size
        return offset, tuple(reversed(result))


def _resolved(key: Any) -> tuple[Any, ...]:
    """The items of an index, without those tensors of torch that a handle can follow: a tensor without dimensions is an
    integer, and a tensor of one element is an integer that keeps the axis."""
    keys = key if isinstance(key, tuple) else (key,)
    if not any(map(frameworks.is_tensor, keys)):
        return keys
    with_axes = sum(frameworks.is_tensor(item) and item.ndim > 0 for item in keys)
    return tuple(_of_tensor(item, with_axes) if frameworks.is_tensor(item) else item for item in keys)


def _of_tensor(item: Any, with_axes: int) -> Any:
    # torch takes tensors of booleans and bytes for masks, and combines several tensors in one index.
    is_integer = str(item.dtype) in ("torch.int64", "torch.int32", "torch.int16", "torch.int8")
    if not is_integer or item.ndim > 1 or item.numel() != 1 or (item.ndim and with_axes > 1):
        return item
    index = operator.index(item)
    return _OneElement(index) if item.ndim else index


def _expand(key: tuple[Any, ...], rank: int) -> list[Any]:
    keys = list(key)
    ellipses = sum(item is Ellipsis for item in keys)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if len(keys) - ellipses > rank:
        raise IndexError(f"too many indices: the tensor has {rank} dimensions, but {len(keys) - ellipses} were indexed")
    if not ellipses:
        keys.append(Ellipsis)
    at = next(i for i, item in enumerate(keys) if item is Ellipsis)
    keys[at : at + 1] = [slice(None)] * (rank - len(keys) + 1)
    return keys


def _pick(dim: Dim, key: Any, axis: int) -> Dim:
    if isinstance(key, slice):
        start, stop, step = key.indices(dim.size)
        # As len(range(start, stop, step)), which is for 63 bits; dimensions beside one of 0 may be larger.
        count = max(0, (stop - start + step - (1 if step > 0 else -1)) // step)
        # With one element or none the step says nothing, and may be too large for the core.
        return Dim(dim.start + start * dim.step if count else 0, dim.step * step if count > 1 else 1, count)
    index = key.at if isinstance(key, _OneElement) else _integer(key)
    if not -dim.size <= index < dim.size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {dim.size}")
    return Dim(dim.start + (index % dim.size) * dim.step, 1, 1, kept=isinstance(key, _OneElement))


def _integer(key: Any) -> int:
    try:
        if not isinstance(key, bool) and not frameworks.is_tensor(key):
            return operator.index(key)
    except TypeError:
        pass
    raise TypeError(
        f"index {key!r} is not an integer, a slice or '...'; for masks, lists and new axes index the result of .numpy()"
    )
