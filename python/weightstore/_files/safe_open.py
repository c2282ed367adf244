"""`safe_open`, with the arguments and methods of the safetensors package."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from .. import errors
from .._tensors import dtypes, other_frameworks
from . import loading
from .handle import TensorHandle
from .selection import is_basic
from .source import Backend, OpenSource, open_source

_FRAMEWORKS = {
    "pt": "torch",
    "torch": "torch",
    "pytorch": "torch",
    "np": "numpy",
    "numpy": "numpy",
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "jax": "flax",
    "flax": "flax",
    "mlx": "mlx",
    "paddle": "paddle",
}


class safe_open:  # noqa: N801 - the name users know
    """Opens a file lazily and returns tensors as asked, in the framework's own type.

    framework: "pt", "np", "jax" (or "flax"), "tf", "mlx" or "paddle", and longer names of these. torch tensors are
        copy-on-write views of the mapped file, or own their memory with backend="pread". numpy arrays and the tensors of
        all other frameworks own their memory. A framework that is not installed raises ModuleNotFoundError.
    device: where the tensors go. None is "cpu". Only torch takes another device.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: Any = "cpu",
        *,
        backend: Backend = "mmap",
    ) -> None:
        self._framework = self._check_framework(framework)
        self._device = self._check_device("cpu" if device is None else device)
        self._convert: other_frameworks.Convert | None = None
        if self._framework not in ("torch", "numpy"):
            self._convert = other_frameworks.converter(self._framework)
        self._source = self._open(filename, backend)

    def _open(self, filename: Any, backend: Backend) -> OpenSource:
        try:
            return open_source(filename, backend=backend)
        except errors.StoreError as error:
            # Whoever opens a file with this class expects SafetensorError, whatever the file turns out to be.
            raise errors.placed(error, "safetensors") from None

    @staticmethod
    def _check_framework(framework: str) -> str:
        known = _FRAMEWORKS.get(framework) if isinstance(framework, str) else None
        if known is None:
            text = f"framework {framework} is invalid; it is one of {', '.join(_FRAMEWORKS)}"
            raise errors.make("invalid_argument", text, format="safetensors")
        return known

    def _check_device(self, device: Any) -> Any:
        if self._framework != "torch":
            if str(device) != "cpu":
                text = f"Device {device} is not supported for framework {self._framework}"
                raise errors.make("invalid_argument", text, format="safetensors")
            return device
        import torch

        try:
            return torch.device(device)
        except (RuntimeError, TypeError):
            raise errors.make("invalid_argument", f"device {device} is invalid", format="safetensors") from None

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_source"):  # for a traceback out of __init__
            return "<safe_open, not opened>"
        where = "in memory" if self._source.path is None else repr(self._source.path)
        what = "closed" if self._source.closed else f"{self._source.format}, {len(self._source.reader)} tensors"
        target = f" on {self._device}" if str(self._device) != "cpu" else ""
        return f"<safe_open {where}, {what}, for {self._framework}{target}>"

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return self._opened().reader.names()

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of their data."""
        return self._opened().reader.names_in_order()

    def metadata(self) -> dict[str, str] | None:
        """The metadata; None when the file has none."""
        return self._opened().reader.metadata()

    def get_tensor(self, name: str) -> Any:
        """A whole tensor."""
        return self._show(self._handle(name))

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, in the order of their data, read in parallel where they are copied."""
        source = self._opened()
        numbers = list(range(len(source.reader)))
        if self._framework == "torch" and source.mapped:
            loaded = loading.view_all(source, numbers, "torch")
        else:
            loaded = loading.load(source.reader, numbers, "torch" if self._framework == "torch" else "numpy", None)
        return {name: self._finished(value) for name, value in loaded.items()}

    def get_slice(self, name: str) -> SafeSlice:
        """An object to index: the result is read, and nothing else."""
        return SafeSlice(self, self._handle(name))

    def _opened(self) -> OpenSource:
        if self._source.closed:
            raise errors.make("invalid_argument", "File is closed", format="safetensors")
        return self._source

    def _handle(self, name: str) -> TensorHandle:
        source = self._opened()
        return TensorHandle(source, source.reader.at(name))

    def _show(self, handle: TensorHandle) -> Any:
        return self._finished(handle.torch() if self._framework == "torch" else handle.numpy())

    def _show_indexed(self, handle: TensorHandle, key: Any) -> Any:
        """The part of a tensor that torch or numpy itself picks, from all of the tensor."""
        if self._framework == "torch":
            return self._finished(handle.torch()[key])
        import numpy as np

        return self._finished(np.asarray(handle.numpy()[_with_arrays(key)]))

    def _finished(self, value: Any) -> Any:
        """A tensor of torch, or an array, as the caller shall get it."""
        if self._framework == "torch":
            return value.to(self._device)
        if self._convert is not None:
            return self._convert(value)
        return value if value.flags.owndata or value.flags.writeable else value.copy()


class SafeSlice:
    """A tensor that is read when it is indexed, as numpy and torch index.

    Integers, slices and `...` read what they pick. For any other index (lists, masks, tensors, arrays, None) the library
    indexes the whole tensor. That costs nothing more where the file is mapped; backend="pread" reads the whole tensor.
    """

    def __init__(self, opened: safe_open, handle: TensorHandle) -> None:
        self._opened = opened
        self._handle = handle

    def __repr__(self) -> str:
        return f"<SafeSlice of {self._handle!r}>"

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._handle.shape)

    def get_dtype(self) -> str:
        """The element type by its SafeTensors name."""
        return self._handle.dtype

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list) and not key:
            key = slice(0, 0)
        # Libraries count the bytes of elements that are smaller than a byte, so that only the handle knows what is meant.
        if is_basic(key) or dtypes.bits(self._handle.dtype) < 8:
            return self._opened._show(self._handle[key])
        return self._opened._show_indexed(self._handle, key)


def _with_arrays(key: Any) -> Any:
    """A key for numpy. numpy would take a tensor of one element for an integer, and drop the axis."""
    if isinstance(key, tuple):
        return tuple(map(_with_arrays, key))
    return key.__array__() if hasattr(key, "__array__") else key
