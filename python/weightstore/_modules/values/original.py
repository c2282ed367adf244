"""The values of one tensor, wherever they come from. Type and shape are known; the values are read when asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _core, errors
from ..._files.deferred import DeferredTensor
from ..._files.handle import TensorHandle, origin_of
from ..._files.loading import Description
from ..._files.source import OpenSource, kind_of
from ..._tensors import arrays, dtypes, frameworks

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
        return dtypes.stored_bytes(self.dtype, self.shape)

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
        from ..._tensors import torch_tensors

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
        from ..._tensors import torch_tensors

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
        from ..._tensors.torch_memory import why_not_dense

        problem = why_not_dense(tensor)
        if problem is not None:
            raise errors.make("invalid_argument", problem, tensor=name or None)
        self.tensor = tensor
        self.name = name
        self.dtype, self.shape = frameworks.stored_type(tensor, name)

    def _check(self) -> None:
        from ..._tensors.torch_memory import require_memory

        require_memory(self.tensor, self.name)

    def view(self) -> Any:
        from ..._tensors import torch_tensors

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
        from ..._tensors import torch_tensors

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
