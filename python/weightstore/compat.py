"""The functions of the `safetensors` module itself, with its argument forms and the texts of its errors.

For programs that build on `serialize`, `deserialize` or `safe_open` and match on what they raise. Everything else is
better off with `weightstore.open` and the verbs of `weightstore.numpy` and `weightstore.torch`.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core, errors
from ._core import __version__
from ._files import safe_open as _safe_open
from ._files.source import Backend, OpenSource, kind_of, open_source
from ._reference_slices import ArraySlice, TorchSlice
from ._tensors import dtypes as _dtypes
from ._tensors import frameworks as _frameworks
from .errors import SafetensorError

__all__ = [
    "SafetensorError",
    "TensorSpec",
    "__version__",
    "_safe_open_handle",
    "deserialize",
    "safe_open",
    "serialize",
    "serialize_file",
]


class TensorSpec:
    """A tensor in memory that the caller keeps alive: type, shape, address and length.

    dtype is the name numpy and torch use ("float32", "bfloat16", "float4_e2m1fn_x2", ...). A packed type's last dimension
    is given in items and doubled here.
    """

    __slots__ = ("_data_len", "_data_ptr", "_dtype", "_shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        name = _dtypes.NAME_OF_TORCH.get(dtype)
        if name is None:
            raise SafetensorError(f'Unknown dtype "{dtype}". Supported dtypes: {", ".join(_dtypes.NAME_OF_TORCH)}')
        dims = tuple(int(size) for size in shape)
        self._dtype = name
        self._shape = _frameworks.stored_shape(name, dims) if dims else dims
        self._data_ptr = int(data_ptr)
        self._data_len = int(data_len)

    @property
    def dtype(self) -> str:
        """SafeTensors' name of the type."""
        return self._dtype

    @property
    def shape(self) -> list[int]:
        """The shape of the tensor."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """The number of bytes."""
        return self._data_len


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a SafeTensors file."""
    try:
        return _collect(tensor_dict, metadata).write_bytes("safetensors")
    except errors.StoreError as error:
        raise _in_reference_words("Error while serializing: ", error) from error


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a SafeTensors file, as durably and atomically as `weightstore.numpy.save_file` does."""
    try:
        _collect(tensor_dict, metadata).write_file(filename, "safetensors")
    except errors.StoreError as error:
        raise _in_reference_words("Error while serializing: ", error) from error


def deserialize(bytes: bytes) -> list[tuple[str, dict[str, Any]]]:
    """All tensors of a file's bytes, as (name, {"shape", "dtype", "data"})."""
    try:
        with open_source(bytes) as source:
            _refuse_other_formats(source)
            reader = source.reader
            described = reader.describe_many(list(range(len(reader))))
            return [
                (name, {"shape": list(shape), "dtype": dtype, "data": bytearray(reader.read_bytes(number))})
                for number, (name, dtype, shape, _) in enumerate(described)
            ]
    except errors.StoreError as error:
        verdict = _verdict_on_length(bytes[:8], len(bytes))
        raise _in_reference_words("Error while deserializing: ", error, verdict) from error


class safe_open(_safe_open.safe_open):  # noqa: N801 - the name users know
    """`weightstore.safe_open` with the reference's texts, and its stricter slices."""

    def _open(self, filename: Any, backend: Backend) -> OpenSource:
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        try:
            source = open_source(filename, backend=backend)
            _refuse_other_formats(source)
            return source
        except errors.StoreIOError as error:
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(f"No such file or directory: {os.fspath(filename)}") from error
            raise
        except errors.StoreError as error:
            raise _in_reference_words("Error while deserializing header: ", error, _verdict_on(filename)) from error

    def get_tensor(self, name: str) -> Any:
        self._check_name(name)
        try:
            return super().get_tensor(name)
        except TypeError as error:
            raise SafetensorError(str(error)) from error

    def get_slice(self, name: str) -> _safe_open.SafeSlice:
        self._check_name(name)
        # Paddle indexes the mapped file itself, as numpy does.
        kind = {"torch": TorchSlice, "paddle": _safe_open.SafeSlice}.get(self._framework, ArraySlice)
        return kind(self, self._handle(name))

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or self._opened().reader.find(name) is None:
            raise SafetensorError(f"File does not contain tensor {name}")


def _safe_open_handle(file: Any, framework: str, device: Any = "cpu", *, backend: Backend = "mmap") -> safe_open:
    """As safe_open, for a file object; one with a name that is a path is opened by that name."""
    name = getattr(file, "name", None)
    target: Any = name if isinstance(name, (str, os.PathLike)) and os.path.exists(name) else file
    return safe_open(target, framework, device, backend=backend)


def _collect(tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None) -> _core.Writer:
    writer = _core.Writer()
    for name, spec in tensors.items():
        if not isinstance(spec, TensorSpec):
            raise TypeError(
                f"argument 'tensor_dict': '{type(spec).__name__}' object is not an instance of 'TensorSpec'"
            )
        bits = _dtypes.bits(spec.dtype)
        for size in spec.shape:
            bits *= size
        if bits != spec.data_len * 8:
            shape = ", ".join(map(str, spec.shape))
            raise errors.make(
                "invalid_argument",
                f"tensor of type {spec.dtype} and shape ({shape}) can't be created from {spec.data_len} bytes",
                format="safetensors",
            )
        writer.add_memory(name, spec.dtype, spec.shape, spec.data_ptr, spec.data_len, spec)
    if metadata is not None:
        writer.set_metadata(dict(metadata))
    return writer


def _refuse_other_formats(source: OpenSource) -> None:
    if source.format != "safetensors":
        raise errors.make("corrupt", f"this is a {source.format} file", format="safetensors", path=source.path)


def _verdict_on(filename: Any) -> str | None:
    if kind_of(filename) != "path":
        return None
    with builtins.open(filename, "rb") as stream:
        return _verdict_on_length(stream.read(8), os.fstat(stream.fileno()).st_size)


def _verdict_on_length(head: bytes, size: int) -> str | None:
    """What the reference says of a file that is no SafeTensors at all: it looks at the length of the header first."""
    if size < 8:
        return "header too small"
    length = int.from_bytes(head, "little")
    if length > 100_000_000:
        return "header too large"
    return "invalid header length" if 8 + length > size else None


def _in_reference_words(prefix: str, error: errors.StoreError, verdict: str | None = None) -> Exception:
    if isinstance(error, OSError):
        return error
    made = SafetensorError(prefix + (error.reference_text or verdict or str(error)))
    made.path, made.tensor, made.offset = error.path, error.tensor, error.offset
    made.reference_text = error.reference_text
    return made
