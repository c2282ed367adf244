"""The verbs of `safetensors.numpy`, for SafeTensors and Burnpack (paths that end in `.bpk`).

The functions save arrays by value, whatever their strides, memory order and byte order are.
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
from ._files.entries.scalars import Scalar
from ._files.file import open
from ._files.progress import Progress
from ._files.safe_open import safe_open
from ._files.sizes import Size
from ._files.source import Backend, Verify
from ._tensors import arrays as _arrays
from ._tensors import batches as _batches

__all__ = ["DeferredTensor", "load", "load_file", "safe_open", "save", "save_file"]

Array = np.ndarray[Any, Any]


def save_file(
    tensor_dict: Mapping[str, Array | DeferredTensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    *,
    durable: bool = True,
    checksums: bool = False,
    overwrite: bool = True,
    progress: Progress | bool | None = None,
    max_shard_size: Size | None = None,
    param_ids: Mapping[str, int] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
    burn: str | None = None,
) -> None:
    """Saves arrays. The file appears under its name only when it is complete.

    filename: the ending tells the format: `.bpk` is Burnpack, `.gguf` is GGUF, and any other ending is SafeTensors. The ending of
        a format that is only read, such as `.pt`, is an error.
    metadata: text to text. For GGUF the values have types: text, numbers, booleans, lists of these, scalars and arrays of numpy,
        `GgufValue`, or all of `file.metadata` of another GGUF file.
    durable: the file survives a power failure once this function returns.
    checksums: write a crc32c of every tensor into the metadata; `verify=` compares them when the file is read.
    overwrite: False raises ConflictError if the file exists.
    max_shard_size: bytes, or text such as "5GB" or "5GiB". A larger SafeTensors file becomes shards beside
        `<name>.safetensors.index.json`. The file replaces a set of this name, and the set replaces the file.
    param_ids, scalars: Burnpack only. `file.scalars` of an open file keeps its unsigned numbers unsigned.
    burn: for Burnpack: the release of Burn that shall read the file, "0.20" to "0.23". The default is the newest stable release,
        0.22. It matters for files with booleans: 0.20 reads only those written for 0.20, and 0.21 to 0.23 all others.
    """
    _save.save_file(
        tensor_dict,
        filename,
        metadata,
        _add,
        _batch(tensor_dict),
        param_ids=param_ids,
        scalars=scalars,
        durable=durable,
        checksums=checksums,
        overwrite=overwrite,
        progress=progress,
        max_shard_size=max_shard_size,
        burn=burn,
    )


def save(
    tensor_dict: Mapping[str, Array | DeferredTensor],
    metadata: Mapping[str, str] | None = None,
    *,
    checksums: bool = False,
) -> bytes:
    """Returns the bytes of a SafeTensors file."""
    writer = _save.collect(tensor_dict, metadata, _add, "safetensors", _batch(tensor_dict))
    return writer.write_bytes("safetensors", checksums=checksums)


def load_file(
    filename: str | os.PathLike[str],
    *,
    backend: Backend = "pread",
    verify: Verify = "off",
    progress: Progress | bool | None = None,
) -> dict[str, Array]:
    """Loads all arrays of a file.

    backend: "pread" reads the arrays into memory of their own; "mmap" returns read-only views of the mapped file.
    verify: compare the checksums of the file, as `weightstore.open` does.
    """
    return _load.load_file(filename, "numpy", backend=backend, verify=verify, progress=progress)


def load(data: bytes, *, verify: Verify = "off") -> dict[str, Array]:
    """Loads all arrays from the bytes of a file, into memory of their own."""
    with open(data, verify=verify) as file:
        return file.load()


def _batch(tensors: Mapping[str, Any]) -> _core.TensorBatch:
    return _batches.look_at(list(tensors.values()), "numpy")


def _add(writer: _core.Writer, name: str, value: Any, param_id: int | None, format: str) -> None:
    if not isinstance(value, (np.ndarray, np.generic)):
        raise ValueError(f"Key `{name}` is invalid, expected numpy.ndarray but received {type(value)}")
    _arrays.add_array(writer, name, value, param_id, format)
