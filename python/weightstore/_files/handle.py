"""A tensor of an open file, not read yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from .._tensors import dlpack, dtypes, frameworks
from .._tensors.dlpack import ArrayProtocols, StridedItems
from .dequantized import DequantizedTensor, dequantized
from .selection import Selection
from .sizes import format_size

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .._core import Memory, QuantScheme
    from .source import OpenSource


class TensorHandle(ArrayProtocols):
    """A tensor, or part of one, that is read when asked for.

    Indexing with integers, slices and `...` gives another handle and reads nothing; `.numpy()`, `.torch()`, `.bytes()`,
    `np.asarray()` and the `from_dlpack()` of any library read what is selected, and little more.
    """

    __slots__ = ("_dtype", "_name", "_nbytes", "_number", "_selection", "_shape", "_source")

    def __init__(self, source: OpenSource, number: int, selection: Selection | None = None) -> None:
        self._source = source
        self._number = number
        self._name, self._dtype, self._shape, self._nbytes = source.reader.describe(number)
        self._selection = selection

    @property
    def name(self) -> str:
        """The name in the file."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The element type by SafeTensors' name ("F32", "BF16", ...), or "Flex32", "BoolU8", "BoolU32", "QFloat", or GGUF's
        name for its own types ("Q4_K", ...). It is text, and also equal to the same type of torch and numpy: `handle.dtype == torch.bfloat16`."""
        return dtypes.DType(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is selected, in elements as files count."""
        return self._shape if self._selection is None else self._selection.shape

    @property
    def nbytes(self) -> int:
        """The number of bytes of what is selected."""
        if self._selection is None:
            return self._nbytes
        return self._selection.size * dtypes.bits(self._dtype) // 8

    @property
    def param_id(self) -> int | None:
        """Burnpack's id of the parameter; None in files without ids."""
        return self._source.reader.param_id(self._number)

    @property
    def scheme(self) -> QuantScheme | None:
        """How a QFloat tensor is quantized; None for all other types."""
        return self._source.reader.scheme(self._number)

    def dequantize(self, dtype: Any = "F32", *, burn: str | None = None) -> DequantizedTensor:
        """The numbers of a quantized tensor: `.dequantize().numpy()`, `.dequantize()[5:9].torch()`. Those of QFloat are as Burn's CPU
        backend reads them, those of GGUF's types as the Python package gguf computes them. Floats are cast.

        dtype: F32, F64, F16 or BF16, in any form. Numbers are computed in F32; other types are cast from it.
        burn: the release whose rules hold, such as "0.23"; None for `scheme.burn`, the release that the file was written for. A file
            that does not name its release counts as one of 0.22.
        """
        return dequantized(self._source, self._number, dtype, burn)

    @property
    def shard(self) -> str:
        """The file that holds the tensor."""
        return self._source.reader.source_of(self._number)

    def __getitem__(self, key: Any) -> TensorHandle:
        selection = (self._selection or Selection.whole(self._shape)).select(key)
        self._check_whole_bytes(selection)
        return TensorHandle(self._source, self._number, None if selection.covers(self._shape) else selection)

    def _check_whole_bytes(self, selection: Selection) -> None:
        bits = dtypes.bits(self._dtype)
        if bits >= 8 or selection.covers(self._shape):
            return
        if bits == 0:
            raise errors.make(
                "invalid_argument",
                f"{self._dtype} tensors are read whole; slice what dequantize() returns",
                tensor=self._name,
            )
        last = selection.dims[-1]
        if last != (0, 1, self._shape[-1], True) or self._shape[-1] * bits % 8:
            raise errors.make(
                "invalid_argument",
                f"elements of {self._dtype} are smaller than a byte: its last dimension is only read whole, and the rows "
                "must end at bytes",
                tensor=self._name,
            )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def numpy(self) -> np.ndarray[Any, Any]:
        """As a numpy array: a read-only view of a mapped file, or memory of its own (backend "pread")."""
        from .._tensors import arrays

        arrays.check_showable(self._name, self._dtype, self.shape)
        memory = self._source.reader.view(self._number) if self._source.mapped else None
        if memory is None:
            return arrays.from_memory(self._read(), self._dtype, self.shape)
        return arrays.view_memory(memory, self._dtype, self._items())

    def torch(self) -> torch.Tensor:
        """As a torch tensor: a view of a copy-on-write mapping (writing to it works and leaves the file as it is), or
        memory of its own (backend "pread", reversed slices)."""
        from .._tensors import torch_tensors

        torch_tensors.check_showable(self._name, self._dtype, self.shape)
        items = self._items()
        memory = None
        if self._source.mapped and not any(stride < 0 for stride in items.strides):
            memory = self._source.reader.private_view(self._number)
        if memory is None or not torch_tensors.can_view(memory, self._dtype):
            return torch_tensors.from_memory(self._read(), self._dtype, self.shape)
        if self._selection is None:
            return torch_tensors.from_memory(memory, self._dtype, self.shape)
        return torch_tensors.view_memory(memory, self._dtype, items)

    def bytes(self) -> bytes:
        """The selected elements as they are stored, in row-major order."""
        if self._selection is None:
            return self._source.reader.read_bytes(self._number)
        return bytes(self._read())

    def _capsule(self, *, versioned: bool, copy: bool | None) -> Any:
        """Consumers that ignore that it is read-only write to a copy-on-write mapping: nobody can change the file, or
        crash."""
        dlpack.item_bytes(self._name, self._dtype)
        mapped, reader = self._source.mapped, self._source.reader
        memory = reader.private_view(self._number) or reader.view(self._number) if mapped and not copy else None
        return dlpack.capsule(
            self._name,
            self._dtype,
            self._items(),
            memory,
            self._read,
            versioned=versioned,
            # Without a mapping there is nothing that could be copied: the tensor is read.
            must_share=copy is False and mapped,
        )

    def __reduce__(self) -> Any:
        return _handle_again, (self._source, self._name, self._selection)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<TensorHandle {self._name!r} {self._dtype} {shape}, {format_size(self.nbytes)}>"

    def _items(self) -> StridedItems:
        """Shape, offset and byte strides of what is selected, as libraries show it: F4 two elements to the item."""
        shape = frameworks.shown_shape(self._dtype, self._shape, self._name)
        selection = self._selection or Selection.whole(self._shape)
        if shape != self._shape:  # which is only sliced where the last dimension stays whole
            selection = Selection((*selection.dims[:-1], selection.dims[-1]._replace(size=shape[-1])))
        item_bytes = dtypes.bits(self._dtype) * dtypes.byte_packing(self._dtype) // 8
        offset, strides = selection.strides(item_bytes, shape)
        return StridedItems(selection.shape, offset, strides)

    def _read(self) -> Memory:
        """What is selected, in new memory, row-major."""
        reader = self._source.reader
        if self._selection is None:
            return reader.load([self._number])[0]
        dims = [(dim.start, dim.step, dim.size) for dim in self._selection.dims]
        return reader.read_slice(self._number, dims, self.nbytes)


def _handle_again(source: OpenSource, name: str, selection: Selection | None) -> TensorHandle:
    return TensorHandle(source, source.reader.at(name), selection)


class Origin(NamedTuple):
    source: OpenSource
    number: int
    is_whole: bool
    read: Callable[[], Memory]


def origin_of(handle: TensorHandle) -> Origin:
    """What a handle reads, for the rest of the package: a tensor by its number, and whether the handle means all of it."""
    return Origin(handle._source, handle._number, handle._selection is None, handle._read)
