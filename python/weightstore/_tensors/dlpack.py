"""How tensors hand themselves to other libraries: `__array__` and DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from . import dtypes, shapes

if TYPE_CHECKING:
    import numpy as np

_CPU = (1, 0)  # kDLCPU


class StridedItems(NamedTuple):
    """Where the items of a tensor are in its memory, as libraries show it: F4 two elements to the item."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]  # in bytes


def row_major(shape: tuple[int, ...], item_bytes: int) -> StridedItems:
    strides = [item_bytes] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return StridedItems(shape, 0, tuple(strides))


class ArrayProtocols:
    """For a tensor in main memory that has a name, shows itself as a numpy array, and makes capsules."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...

        @property
        def dtype(self) -> str | None: ...

        def numpy(self) -> np.ndarray[Any, Any]: ...

        def _capsule(self, *, versioned: bool, copy: bool | None) -> Any: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"tensor '{self.name}' is {array.dtype}; showing it as {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream is not None:
            raise BufferError(f"tensor '{self.name}' is in main memory, which has no streams")
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError(f"tensor '{self.name}' is in main memory, not on device {dl_device}")
        versioned = max_version is not None and max_version[0] >= 1
        if self.dtype == dtypes.WIDE_BOOL:
            return self.numpy().__dlpack__(max_version=(1, 0) if versioned else None)
        return self._capsule(versioned=versioned, copy=copy)


def item_bytes(name: str, dtype: str) -> int:
    """Bytes of what DLPack counts as one item of a stored type."""
    if dtype not in dtypes.DLPACK:
        raise BufferError(f"DLPack has no type for {dtype}; .bytes() gives the bytes of tensor '{name}'")
    _, bits, lanes = dtypes.DLPACK[dtype]
    return bits * lanes // 8


def capsule(
    name: str,
    dtype: str,
    items: StridedItems,
    memory: _core.Memory | None,
    read: Callable[[], _core.Memory],
    *,
    versioned: bool,
    must_share: bool,
) -> Any:
    """A capsule over `memory`, flagged read-only. Consumers that do not know the flag, and all when the memory is not
    aligned or there is none, get what `read` makes: row-major memory of their own, unless they `must_share`."""
    size = item_bytes(name, dtype)
    shapes.check_dlpack(name, items.shape, size)
    copied = memory is None or memory.address % size != 0 or not versioned
    if copied:
        if must_share:
            raise BufferError(
                f"tensor '{name}' cannot be handed over without a copy: it is not aligned, or the consumer does not know "
                "read-only memory"
            )
        memory = read()
        items = row_major(items.shape, size)
    assert memory is not None
    return _core.dlpack(
        memory,
        items.offset,
        list(items.shape),
        [stride // size for stride in items.strides],
        dtypes.DLPACK[dtype],
        versioned=versioned,
        read_only=not copied,
        copied=copied,
    )
