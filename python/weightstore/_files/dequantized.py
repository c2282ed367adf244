"""The numbers of a quantized tensor."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import _core, errors
from .._tensors import dlpack, dtypes
from .._tensors.dlpack import ArrayProtocols, StridedItems
from .selection import Dim, Selection
from .sizes import format_size

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .._core import Memory, QuantScheme
    from .source import OpenSource


class DequantizedTensor(ArrayProtocols):
    """The numbers of a quantized tensor, or of part of one. They are made when asked for, in memory of their own.

    Indexing with integers, slices and `...` gives another such object; then only the rows (of the outermost dimension) that
    are needed are made.
    """

    __slots__ = ("_dtype", "_name", "_number", "_scheme", "_selection", "_shape", "_source")

    def __init__(
        self,
        source: OpenSource,
        number: int,
        scheme: QuantScheme | None,
        dtype: str,
        selection: Selection | None = None,
    ) -> None:
        self._source = source
        self._number = number
        self._name, _, self._shape, _ = source.reader.describe(number)
        self._scheme = scheme
        self._dtype = dtype
        self._selection = Selection.whole(self._shape) if selection is None else selection

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        return dtypes.DType(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._selection.shape

    @property
    def nbytes(self) -> int:
        return self._selection.size * dtypes.bits(self._dtype) // 8

    @property
    def scheme(self) -> QuantScheme | None:
        """The scheme of Burn by which the numbers are made; None for types of GGUF and for floats."""
        return self._scheme

    def __getitem__(self, key: Any) -> DequantizedTensor:
        return DequantizedTensor(self._source, self._number, self._scheme, self._dtype, self._selection.select(key))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def numpy(self) -> np.ndarray[Any, Any]:
        from .._tensors import arrays

        arrays.check_showable(self._name, self._dtype, self.shape)
        memory, items = self._make(self._selection)
        return arrays.view_memory(memory, self._dtype, items)

    def torch(self) -> torch.Tensor:
        from .._tensors import torch_tensors

        torch_tensors.check_showable(self._name, self._dtype, self.shape)
        # torch has no negative strides.
        forward = Selection(tuple(_forward(dim) for dim in self._selection.dims))
        memory, items = self._make(forward)
        tensor = torch_tensors.view_memory(memory, self._dtype, items)
        kept = [dim for dim in self._selection.dims if dim.kept]
        reversed_dims = [axis for axis, dim in enumerate(kept) if dim.step < 0]
        return tensor.flip(reversed_dims) if reversed_dims else tensor

    def bytes(self) -> bytes:
        """The numbers as a file would store them, in row-major order."""
        return self.numpy().tobytes()

    def _make(self, selection: Selection) -> tuple[Memory, StridedItems]:
        """The rows that a selection needs, and where the selection is in them."""
        shape, dims = self._shape, selection.dims
        if dims:
            rows = dims[0]
            last = rows.start + (rows.size - 1) * rows.step
            begin = min(rows.start, last) if selection.size else 0
            count = max(rows.start, last) + 1 - begin if selection.size else 0
            row = prod(shape[1:])
            shape, dims = (count, *shape[1:]), (rows._replace(start=rows.start - begin), *dims[1:])
        else:
            begin, count, row = 0, 1, 1
        memory = _core.dequantize(
            self._source.reader, self._number, self._scheme, self._dtype, begin * row, count * row
        )
        inner = Selection(dims)
        return memory, StridedItems(inner.shape, *inner.strides(dtypes.bits(self._dtype) // 8, shape))

    def _capsule(self, *, versioned: bool, copy: bool | None) -> Any:
        memory, items = self._make(self._selection)
        return _core.dlpack(
            memory,
            items.offset,
            list(items.shape),
            [stride // dlpack.item_bytes(self._name, self._dtype) for stride in items.strides],
            dtypes.DLPACK[self._dtype],
            versioned=versioned,
            read_only=False,
            copied=True,
        )

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"<DequantizedTensor {self._name!r} {self._dtype} {shape}, {format_size(self.nbytes)}>"


def _forward(dim: Dim) -> Dim:
    if dim.step >= 0:
        return dim
    return dim._replace(start=dim.start + (dim.size - 1) * dim.step, step=-dim.step)


def number_type(dtype: Any) -> str:
    """The type that quantized tensors shall become."""
    name = dtypes.stored_name(dtype)
    if name not in dtypes.CORE_FLOATS:
        text = f"quantized tensors become {', '.join(dtypes.CORE_FLOATS)}, not {name}"
        if name in _core.QUANTIZABLE:
            text += "; convert() to a .gguf file quantizes to it"
        raise errors.make("invalid_argument", text)
    return name


def dequantized(source: OpenSource, number: int, dtype: Any, burn: str | None) -> DequantizedTensor:
    to = number_type(dtype)
    scheme = source.reader.scheme(number)
    if scheme is not None:
        return DequantizedTensor(source, number, scheme if burn is None else scheme.for_burn(burn), to)
    name, stored, _, _ = source.reader.describe(number)
    if burn is not None:
        raise errors.make(
            "invalid_argument", f"burn is for tensors of Burn; this is {stored}", path=source.path, tensor=name
        )
    if stored not in _core.DEQUANTIZABLE and stored not in dtypes.CORE_FLOATS:
        reason = (
            f"{stored} is not dequantized by this library; .bytes() gives its bytes as stored"
            if stored in _core.BLOCKS
            else f"{stored} is not quantized"
        )
        raise errors.make(
            "unsupported" if stored in _core.BLOCKS else "invalid_argument", reason, path=source.path, tensor=name
        )
    return DequantizedTensor(source, number, None, to)
