"""The verbs of `safetensors.numpy`, for SafeTensors and (paths ending in `.bpk`) Burnpack.

Arrays of any layout and byte order are saved by value: Fortran order, strides and big-endian numbers come out as the array
shows them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _core
from ._files import loading as _load
from ._files import saving as _save
from ._files.deferred import DeferredTensor
from ._files.file import open
from ._files.progress import Progress
from ._files.safe_open import safe_open
from ._files.source import Backend
from ._tensors import arrays as _arrays

__all__ = ["DeferredTensor", "load", "load_file", "safe_open", "save", "save_file"]

Array = np.ndarray[Any, Any]


def save_file(
    tensor_dict: Mapping[str, Array | DeferredTensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    durable: bool = True,
    checksums: bool = False,
    overwrite: bool = True,
    progress: Progress | bool | None = None,
    max_shard_size: int | str | None = None,
    param_ids: Mapping[str, int] | None = None,
    scalars: Mapping[str, _save.Scalar] | None = None,
) -> None:
    """Saves arrays. The file appears under its name only when it is whole.

    durable: what was written survives a power failure once this returns.
    checksums: keep a crc32c of every tensor in the metadata, to be compared with `open(..., verify=...)`.
    overwrite: False raises ConflictError when the file exists.
    max_shard_size: "5GB" or bytes; a larger SafeTensors file becomes shards beside `<name>.safetensors.index.json`.
        The file replaces a set of this name, and the set the file.
    param_ids, scalars: Burnpack only.
    """
    _save.save_file(
        tensor_dict,
        filename,
        metadata,
        _add,
        param_ids=param_ids,
        scalars=scalars,
        durable=durable,
        checksums=checksums,
        overwrite=overwrite,
        progress=progress,
        max_shard_size=max_shard_size,
    )


def save(tensor_dict: Mapping[str, Array | DeferredTensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a SafeTensors file."""
    return _save.collect(tensor_dict, metadata, _add, "safetensors").write_bytes("safetensors")


def load_file(
    filename: str | os.PathLike[str], *, backend: Backend = "pread", progress: Progress | bool | None = None
) -> dict[str, Array]:
    """All arrays of a file: in memory of their own ("pread"), or as read-only views of the mapped file ("mmap")."""
    return _load.load_file(filename, backend, "numpy", progress)


def load(data: bytes) -> dict[str, Array]:
    """All arrays of a file's bytes, in memory of their own."""
    with open(data) as file:
        return file.load()


def _add(writer: _core.Writer, name: str, value: Any, param_id: int | None, format: str) -> None:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise ValueError(f"Key `{name}` is invalid, expected numpy.ndarray but received {type(value)}")
    _arrays.add_array(writer, name, value, param_id, format)
