"""`safe_open`, with the arguments and methods of the safetensors package."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from .. import errors
from . import loading
from .handle import TensorHandle
from .source import Backend, OpenSource, open_source

_FRAMEWORKS = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy"}
_ELSEWHERE = {"tf", "tensorflow", "jax", "flax", "mlx", "paddle"}


class safe_open:  # noqa: N801 - the name users know
    """Opens a file lazily and returns tensors as asked, in the framework's own type.

    framework: "pt" or "np" (and their longer names). torch tensors are copy-on-write views of the mapped file, or own
    their memory with backend="pread"; numpy arrays always own their memory.
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
        self._device = self._check_device(device)
        self._source = self._open(filename, backend)

    def _open(self, filename: Any, backend: Backend) -> OpenSource:
        try:
            return open_source(filename, backend=backend)
        except errors.StoreError as error:
            # Whoever opens a file with this class expects SafetensorError, whatever the file turns out to be.
            raise errors.placed(error, "safetensors") from None

    @staticmethod
    def _check_framework(framework: str) -> str:
        if framework in _FRAMEWORKS:
            return _FRAMEWORKS[framework]
        hint = ": open it with framework='np' and convert the arrays" if framework in _ELSEWHERE else ""
        raise errors.make("invalid_argument", f"framework {framework} is invalid{hint}", format="safetensors")

    def _check_device(self, device: Any) -> Any:
        if self._framework == "numpy":
            if device != "cpu":
                text = f"Device {device} is not supported for framework numpy"
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
        where = repr(self._source.path) if self._source.path is not None else "in memory"
        if self._source.closed:
            return f"<safe_open {where}, closed>"
        return f"<safe_open {where}, {len(self._source.reader)} tensors for {self._framework}>"

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
        if self._framework == "numpy":
            return loading.load(source.reader, numbers, "numpy", None)
        if source.mapped:
            loaded = loading.view_all(source, numbers, "torch")
        else:
            loaded = loading.load(source.reader, numbers, "torch", None)
        return {name: tensor.to(self._device) for name, tensor in loaded.items()}

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
        if self._framework == "torch":
            return handle.torch().to(self._device)
        array = handle.numpy()
        return array if array.flags.owndata or array.flags.writeable else array.copy()


class SafeSlice:
    """A tensor that is read when it is indexed, as numpy and torch index."""

    def __init__(self, opened: safe_open, handle: TensorHandle) -> None:
        self._opened = opened
        self._handle = handle

    def __repr__(self) -> str:
        handle = self._handle
        return f"<SafeSlice {handle.name!r} {handle.dtype} {list(handle.shape)}>"

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._handle.shape)

    def get_dtype(self) -> str:
        """The element type by its SafeTensors name."""
        return self._handle.dtype

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list) and not key:
            key = slice(0, 0)
        return self._opened._show(self._handle[key])
