"""The values of one tensor, wherever they come from. Type and shape are known; the values are read when asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, errors
from .._files.deferred import DeferredTensor
from .._files.handle import TensorHandle, origin_of
from .._files.loading import Description
from .._files.source import OpenSource, kind_of
from .._tensors import arrays, dtypes, frameworks

if TYPE_CHECKING:
    import torch


Array = np.ndarray[Any, Any]


class Values(ABC):
    """One tensor. `shares`: what is handed out may be views of memory that others use."""

    dtype: str
    shape: tuple[int, ...]
    shares = False

    @property
    def nbytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * dtypes.bits(self.dtype) // 8

    @abstractmethod
    def view(self) -> Any:
        """A buffer of the row-major bytes, only to be read: it may be somebody else's memory."""

    @abstractmethod
    def own(self) -> Any:
        """The same in new memory, which may be written to."""

    def numpy(self, *, own: bool) -> Array:
        return arrays.from_memory(self.own() if own else self.view(), self.dtype, self.shape)

    def torch(self, *, own: bool) -> torch.Tensor:
        """Here always in memory of its own: torch has no read-only tensors."""
        from .._tensors import torch_tensors

        return torch_tensors.from_memory(self.own(), self.dtype, self.shape)

    def producer(self, *, read_now: bool) -> _core.Producer:
        """The bytes for a writer, read when it reaches them; or read already. What lies ready is taken from where it is."""
        if read_now or self.is_ready():
            return _core.Producer.buffer(self.view())
        return _core.Producer.deferred(self.nbytes, self.view)

    def is_ready(self) -> bool:
        """Whether view() costs nothing, because it shows memory that is there."""
        return False

    def add_to(self, writer: _core.Writer, name: str, param_id: int | None, format: str) -> None:
        """Plans to write this tensor."""
        writer.add(name, frameworks.storable(self.dtype, format), self.shape, self.producer(read_now=False), param_id)


class FileTensor(Values):
    """A tensor of an open file."""

    def __init__(self, source: OpenSource, number: int, described: Description, shares: bool) -> None:
        self.source = source
        self.number = number
        self.described = described
        self.name, self.dtype, self.shape, self._nbytes = described
        self.shares = shares

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def view(self) -> Any:
        return self.source.reader.view(self.number) or self.own()

    def own(self) -> Any:
        return self.source.reader.load([self.number])[0]

    def add_to(self, writer: _core.Writer, name: str, param_id: int | None, format: str) -> None:
        if self.dtype == "QFloat":
            writer.add_quantized(name, self.source.reader, self.number, param_id)
        else:
            super().add_to(writer, name, param_id, format)

    def numpy(self, *, own: bool) -> Array:
        arrays.check_showable(self.name, self.dtype, self.shape)
        return super().numpy(own=True) if own else TensorHandle(self.source, self.number).numpy()

    def torch(self, *, own: bool) -> torch.Tensor:
        from .._tensors import torch_tensors

        torch_tensors.check_showable(self.name, self.dtype, self.shape)
        return super().torch(own=True) if own else TensorHandle(self.source, self.number).torch()


class ArrayValue(Values):
    """A numpy array."""

    def __init__(self, array: Any, name: str) -> None:
        self.array: Array = np.asarray(array)
        self.dtype, self.shape = frameworks.stored_type(self.array, name)

    def _native(self) -> Array:
        native: Array = np.ascontiguousarray(self.array, self.array.dtype.newbyteorder("="))
        return native.reshape(self.shape)

    def view(self) -> Any:
        return self._native().reshape(-1).view(np.uint8)

    def is_ready(self) -> bool:
        return frameworks.is_plain(self.array)

    def own(self) -> Any:
        return self.view().copy()

    def add_to(self, writer: _core.Writer, name: str, param_id: int | None, format: str) -> None:
        arrays.add_array(writer, name, self.array, param_id, format)


class TensorValue(Values):
    """A torch tensor, on any device."""

    def __init__(self, tensor: torch.Tensor, name: str) -> None:
        from .._tensors.torch_memory import why_not_dense

        problem = why_not_dense(tensor)
        if problem is not None:
            raise errors.make("invalid_argument", problem, tensor=name or None)
        self.tensor = tensor
        self.name = name
        self.dtype, self.shape = frameworks.stored_type(tensor, name)

    def _check(self) -> None:
        from .._tensors.torch_memory import require_memory

        require_memory(self.tensor, self.name)

    def view(self) -> Any:
        from .._tensors import torch_tensors

        self._check()
        return torch_tensors.cpu_bytes(self.tensor)

    def own(self) -> Any:
        return self.view().copy()

    def is_ready(self) -> bool:
        return frameworks.is_plain(self.tensor)

    def torch(self, *, own: bool) -> torch.Tensor:
        self._check()
        tensor = self.tensor.detach()
        return tensor.clone() if own else tensor

    def add_to(self, writer: _core.Writer, name: str, param_id: int | None, format: str) -> None:
        from .._tensors import torch_tensors

        torch_tensors.add_tensor(writer, name, self.tensor, param_id, format)


class Produced(Values):
    """A callable that makes the values: a bytes-like object, an iterable of them, an array or a tensor."""

    def __init__(self, dtype: str, shape: tuple[int, ...], produce: Callable[[], Any]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._produce = produce

    def view(self) -> Any:
        made = self._produce()
        if frameworks.is_tensor(made):
            made = TensorValue(made, "").view()
        elif isinstance(made, (np.ndarray, np.generic)):
            made = ArrayValue(made, "").view()
        elif kind_of(made) != "buffer":
            made = b"".join(made)
        found = memoryview(made).nbytes
        if found != self.nbytes:
            raise errors.make(
                "invalid_argument",
                f"{found} bytes were produced where {self.dtype} of shape {list(self.shape)} needs {self.nbytes}",
            )
        return made

    def own(self) -> Any:
        return np.frombuffer(self.view(), np.uint8).copy()


class Loaded(Values):
    """Values that have been read."""

    def __init__(self, original: Values, buffer: Any) -> None:
        self.dtype = original.dtype
        self.shape = original.shape
        self._nbytes = original.nbytes
        self._buffer = buffer

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def view(self) -> Any:
        return self._buffer

    def own(self) -> Any:
        return np.frombuffer(self._buffer, np.uint8).copy()


class Changed(Values):
    """Other values, changed block by block on their way: a chain of changes holds nothing in between."""

    def __init__(self, original: Values, dtype: str, shape: tuple[int, ...]) -> None:
        self.original = original
        self.dtype = dtype
        self.shape = shape

    def own(self) -> Any:
        return self.producer(read_now=True).read()

    def view(self) -> Any:
        return self.own()


class Transposed(Changed):
    """A matrix with its rows and columns exchanged."""

    def __init__(self, original: Values) -> None:
        super().__init__(original, original.dtype, original.shape[::-1])

    def producer(self, *, read_now: bool) -> _core.Producer:
        return self.original.producer(read_now=read_now).transpose(self.dtype, *self.original.shape)


class Rows(Changed):
    """Some rows of a tensor that has several: a range of its first dimension."""

    def __init__(self, original: Values, begin: int, end: int) -> None:
        super().__init__(original, original.dtype, (end - begin, *original.shape[1:]))
        self._begin = begin

    def view(self) -> Any:
        begin = self._begin * self.nbytes // max(self.shape[0], 1)
        return memoryview(self.original.view()).cast("B")[begin : begin + self.nbytes]

    def own(self) -> Any:
        return np.frombuffer(self.view(), np.uint8).copy()

    def is_ready(self) -> bool:
        return self.original.is_ready()

    def producer(self, *, read_now: bool) -> _core.Producer:
        return Values.producer(self, read_now=read_now)


class Joined(Values):
    """Tensors one below the other: their rows in one tensor."""

    def __init__(self, parts: list[Values]) -> None:
        self.parts = parts
        self.dtype = parts[0].dtype
        self.shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])

    def read_into(self, address: int) -> None:
        for part in self.parts:
            part.producer(read_now=True).read_into(address, part.nbytes)
            address += part.nbytes

    def own(self) -> Any:
        made = np.empty(self.nbytes, np.uint8)
        self.read_into(made.ctypes.data)
        return made

    def view(self) -> Any:
        return self.own()


class Cast(Changed):
    """The same numbers as another floating-point type."""

    def __init__(self, original: Values, dtype: str) -> None:
        super().__init__(original, dtype, original.shape)

    def producer(self, *, read_now: bool) -> _core.Producer:
        before, after = self.original.dtype, self.dtype
        if before in dtypes.CORE_FLOATS and after in dtypes.CORE_FLOATS:
            return self.original.producer(read_now=read_now).cast(before, after)
        if read_now:
            return _core.Producer.buffer(self._cast_now())
        return _core.Producer.deferred(self.nbytes, self._cast_now)

    def _cast_now(self) -> Any:
        return _cast_in_python(self.original.view(), self.original.dtype, self.dtype)


class Quantized(Changed):
    """Numbers that are quantized as Burn's CPU backend does. All of them are read before the first byte is known."""

    def __init__(self, original: Values, scheme: _core.QuantScheme) -> None:
        super().__init__(original, "QFloat", original.shape)
        self.scheme = scheme
        self._nbytes = scheme.payload_bytes(original.shape)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def producer(self, *, read_now: bool) -> _core.Producer:
        numbers = self.original.producer(read_now=read_now).cast(self.original.dtype, "F32")
        return numbers.quantize(self.scheme, self.shape)

    def add_to(self, writer: _core.Writer, name: str, param_id: int | None, format: str) -> None:
        stored = frameworks.storable(self.dtype, format)
        writer.add(name, stored, self.shape, self.producer(read_now=False), param_id, self.scheme)


class Dequantized(Changed):
    """The numbers of a quantized tensor."""

    def __init__(self, original: Values, scheme: _core.QuantScheme, dtype: str) -> None:
        super().__init__(original, dtype, original.shape)
        self.scheme = scheme

    def producer(self, *, read_now: bool) -> _core.Producer:
        return self.original.producer(read_now=read_now).dequantize(self.scheme, self.shape, self.dtype)


def values_of(value: Any, path: str) -> Values:
    """What reads a value: a tensor, an array, or something lazy."""
    if frameworks.is_tensor(value):
        return TensorValue(value, path)
    if isinstance(value, (np.ndarray, np.generic)):
        return ArrayValue(value, path)
    if isinstance(value, DeferredTensor):
        return Produced(str(value.dtype), value.shape, value.produce)
    if isinstance(value, TensorHandle):
        origin = origin_of(value)
        if origin.is_whole:
            described = origin.source.reader.describe(origin.number)
            return FileTensor(origin.source, origin.number, described, False)
        return Produced(str(value.dtype), value.shape, origin.read)
    raise TypeError(
        f"'{path}' is {errors.typed(value)}; a module holds numpy arrays and torch tensors, or DeferredTensor, "
        "TensorHandle and TensorSnapshot objects when it is only saved from"
    )


def residents(values: Values) -> list[Any]:
    """The arrays or tensors in memory that hold the values, however changed; none when they are elsewhere."""
    while isinstance(values, Changed):
        values = values.original
    if isinstance(values, Joined):
        return [value for part in values.parts for value in residents(part)]
    value = values.array if isinstance(values, ArrayValue) else getattr(values, "tensor", None)
    return [] if value is None else [value]


def rows(values: Values, begin: int, end: int, name: str) -> Values:
    _check_whole_bytes(values, name)
    return values if (begin, end) == (0, values.shape[0]) else Rows(values, begin, end)


def joined(parts: list[Values], name: str) -> Values:
    """Parts must agree in all but their number of rows."""
    first = parts[0]
    for part in parts:
        _check_whole_bytes(part, name)
        if part.dtype != first.dtype or part.shape[1:] != first.shape[1:]:
            raise errors.make(
                "invalid_argument",
                f"{first.dtype} of shape {list(first.shape)} and {part.dtype} of shape {list(part.shape)} cannot be joined",
                tensor=name,
            )
    return first if len(parts) == 1 else Joined(parts)


def _check_whole_bytes(values: Values, name: str) -> None:
    """Raises for types whose rows are not where the shape says: quantized ones, and those of less than a byte."""
    if not values.shape or dtypes.bits(values.dtype) % 8 or not dtypes.bits(values.dtype):
        raise errors.make(
            "invalid_argument", f"{values.dtype} of shape {list(values.shape)} cannot be split or joined", tensor=name
        )


def transposed(values: Values, name: str) -> Values:
    if len(values.shape) != 2 or dtypes.bits(values.dtype) % 8 or not dtypes.bits(values.dtype):
        raise errors.make(
            "invalid_argument", f"{values.dtype} of shape {list(values.shape)} cannot be transposed", tensor=name
        )
    return values.original if isinstance(values, Transposed) else Transposed(values)


def cast(values: Values, dtype: str, name: str) -> Values:
    if dtype not in dtypes.FLOATS or values.dtype not in dtypes.FLOATS:
        raise errors.make("invalid_argument", f"{values.dtype} cannot be cast to {dtype}", tensor=name)
    return values if values.dtype == dtype else Cast(values, dtype)


def quantized(values: Values, scheme: _core.QuantScheme, name: str) -> Values:
    if values.dtype not in dtypes.CORE_FLOATS:
        raise errors.make("invalid_argument", f"{values.dtype} cannot be quantized", tensor=name)
    return Quantized(values, scheme)


def scheme_of(values: Values) -> _core.QuantScheme | None:
    """How the values are quantized, if they are."""
    if isinstance(values, FileTensor):
        return values.source.reader.scheme(values.number)
    return values.scheme if isinstance(values, Quantized) else None


def dequantized(values: Values, dtype: str, name: str) -> Values:
    scheme = scheme_of(values)
    if scheme is None:
        raise errors.make("invalid_argument", f"{values.dtype} is not quantized", tensor=name)
    return Dequantized(values, scheme, dtype)


def _cast_in_python(data: Any, before: str, after: str) -> Any:
    """Casts between types that the core does not know: with numpy and ml_dtypes, or with torch without ml_dtypes."""
    try:
        numbers: Any = np.frombuffer(data, dtypes.numpy_dtype(before))
        with np.errstate(over="ignore", invalid="ignore"):
            return numbers.astype(dtypes.numpy_dtype(after)).view(np.uint8)
    except TypeError:
        import torch

        from .._tensors import torch_tensors

        count = memoryview(data).nbytes * 8 // dtypes.bits(before)
        loaded = Loaded(Produced(before, (count,), lambda: data), data)
        return torch_tensors.cpu_bytes(loaded.torch(own=True).to(dtypes.torch_dtype(after)).to(torch.device("cpu")))
