"""Values that are made of other values when they are read: transposed, cast, split, joined, quantized."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _core, errors
from ..._tensors import dtypes, frameworks
from .original import ArrayValue, FileTensor, Loaded, Produced, Values


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
    """The numbers of a quantized tensor. scheme: of Burn; None for a type of GGUF."""

    def __init__(self, original: Values, scheme: _core.QuantScheme | None, dtype: str) -> None:
        super().__init__(original, dtype, original.shape)
        self.scheme = scheme

    def producer(self, *, read_now: bool) -> _core.Producer:
        payload = self.original.producer(read_now=read_now)
        if self.scheme is None:
            return payload.dequantize_blocks(self.original.dtype, self.dtype)
        return payload.dequantize(self.scheme, self.shape, self.dtype)


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
    if scheme is None and values.dtype not in _core.DEQUANTIZABLE:
        reason = "not dequantized by this library" if dtypes.is_quantized(values.dtype) else "not quantized"
        raise errors.make("invalid_argument", f"{values.dtype} is {reason}", tensor=name)
    return Dequantized(values, scheme, dtype)


def _cast_in_python(data: Any, before: str, after: str) -> Any:
    """Casts between types that the core does not know: with numpy and ml_dtypes, or with torch without ml_dtypes."""
    try:
        numbers: Any = np.frombuffer(data, dtypes.numpy_dtype(before))
        with np.errstate(over="ignore", invalid="ignore"):
            return numbers.astype(dtypes.numpy_dtype(after)).view(np.uint8)
    except TypeError:
        import torch

        from ..._tensors import torch_tensors

        count = memoryview(data).nbytes * 8 // dtypes.bits(before)
        loaded = Loaded(Produced(before, (count,), lambda: data), data)
        return torch_tensors.cpu_bytes(loaded.torch(own=True).to(dtypes.torch_dtype(after)).to(torch.device("cpu")))
