"""Shapes that a file may hold and a library cannot show: a tensor without elements may have dimensions of any size."""

from __future__ import annotations

from .. import errors

NUMPY_DIMENSIONS = 64
_LARGEST = 2**63 - 1


def problem(shape: tuple[int, ...], item_bytes: int, *, dimensions: int | None = None) -> str | None:
    """Why an array of this shape cannot be made; None when it can. Libraries count the bytes, and the steps from one
    element to the next, in 63 bits, as if dimensions of 0 were 1."""
    if dimensions is not None and len(shape) > dimensions:
        return f"it has {len(shape)} dimensions, and arrays have at most {dimensions}"
    extent = item_bytes
    for size in shape:
        extent *= size or 1
    if extent > _LARGEST:
        return f"its shape {list(shape)} exceeds the {_LARGEST} bytes that arrays can have"
    return None


def check_numpy(name: str, shape: tuple[int, ...], item_bytes: int) -> None:
    _refuse(name, "numpy", problem(shape, item_bytes, dimensions=NUMPY_DIMENSIONS))


def check_torch(name: str, shape: tuple[int, ...]) -> None:
    too_large = [size for size in shape if size > _LARGEST]
    _refuse(name, "torch", f"its shape {list(shape)} exceeds 63 bits" if too_large else None)


def check_dlpack(name: str, shape: tuple[int, ...], item_bytes: int) -> None:
    """As consumers of __dlpack__() expect it: a BufferError."""
    why = problem(shape, item_bytes)
    if why is not None:
        raise BufferError(f"tensor '{name}': DLPack cannot describe it: {why}; .bytes() gives its bytes")


def _refuse(name: str, library: str, why: str | None) -> None:
    if why is not None:
        raise errors.make("unsupported", f"{library} cannot show it: {why}; .bytes() gives its bytes", tensor=name)
