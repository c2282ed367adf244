"""Slices of `weightstore.compat`: they refuse what the safetensors package refuses, in its words.

The package answers some keys with an OverflowError, a panic or the wrong elements, although numpy knows what they mean: a
negative start or stop, a start behind the stop, and an empty slice with a step. These slices answer them as numpy does.
"""

from __future__ import annotations

import operator
from typing import Any

from ._files.safe_open import SafeSlice
from .errors import SafetensorError

_INT32 = range(-(2**31), 2**31)


class TorchSlice(SafeSlice):
    """torch indexes the mapped file, so that everything but a reversed slice is as in `SafeSlice`."""

    def __getitem__(self, key: Any) -> Any:
        for item in key if isinstance(key, tuple) else (key,):
            if isinstance(item, slice) and item.step is not None and operator.index(item.step) < 0:
                raise ValueError("step must be greater than zero")
        return super().__getitem__(key)


class ArraySlice(SafeSlice):
    """For numpy, and for the frameworks whose tensors are made from arrays. The package takes whatever converts to an integer
    for one, also True and a tensor of one element, and does not clip slices."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list):
            if key:
                raise SafetensorError("Non empty lists are not implemented")
            key = slice(0, 0)
        shape = tuple(self.get_shape())
        items = _parsed(key if isinstance(key, tuple) else (key,), shape)
        _check_bounds(items, shape)
        return super().__getitem__(tuple(items))


def _parsed(keys: tuple[Any, ...], shape: tuple[int, ...]) -> list[int | slice]:
    """Integers that are not negative, and slices, without `...`."""
    ellipses = sum(key is Ellipsis for key in keys)
    if ellipses > 1:
        raise SafetensorError("Only one ellipsis (...) is allowed in slice index")
    items: list[int | slice] = []
    for key in keys:
        if key is Ellipsis:
            items += [slice(None)] * (len(shape) - len(keys) + 1)
        elif isinstance(key, slice):
            items.append(_parsed_slice(key))
        else:
            items.append(_parsed_integer(key, len(items), shape))
    return items


def _parsed_slice(key: slice) -> slice:
    start, stop, step = (None if part is None else operator.index(part) for part in (key.start, key.stop, key.step))
    if step is not None and step <= 0:
        raise SafetensorError(f"Slice step must be a positive integer, got {step}")
    return slice(start, stop, step)


def _parsed_integer(key: Any, axis: int, shape: tuple[int, ...]) -> int:
    try:
        index = operator.index(key)
    except (TypeError, ValueError, RuntimeError):  # TypeError: also tensors of more than one element
        index = None
    if index is None or index not in _INT32:
        raise SafetensorError(f"Unsupported slice index at position {axis}: expected slice, int, or ellipsis")
    size = shape[axis] if axis < len(shape) else 0
    if index < -size:
        raise SafetensorError(f"Invalid index {index} for dimension {axis} of size {size}")
    return index + size if index < 0 else index


def _check_bounds(items: list[int | slice], shape: tuple[int, ...]) -> None:
    problem = "more slicing indexes than dimensions in tensor" if len(items) > len(shape) else None
    if problem is None:
        # From the last axis to the first, as the package does.
        for axis in reversed(range(len(items))):
            outside = _outside(items[axis], shape[axis])
            if outside is not None:
                problem = f"index {outside} out of bounds for tensor dimension #{axis} of size {shape[axis]}"
                break
    if problem is not None:
        shown = ", ".join(map(_shown, items))
        raise SafetensorError(f"Error during slicing [{shown}] with shape {list(shape)}: {problem}")


def _outside(item: int | slice, size: int) -> int | None:
    """The index that lies outside of an axis, if there is one."""
    if isinstance(item, int):
        return item if item >= size else None
    if (item.start or 0) < 0 or (item.stop or 0) < 0:
        return None  # which the package does not answer at all
    if (item.start or 0) >= size:
        return item.start or 0
    return item.stop - 1 if item.stop is not None and item.stop > size else None


def _shown(item: int | slice) -> str:
    if isinstance(item, int):
        return str(item)
    start, stop = ("" if part is None else part for part in (item.start, item.stop))
    return f"{start}:{stop}" if item.step in (None, 1) else f"{start}:{stop}:{item.step}"
