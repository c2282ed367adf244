"""The verbs of `safetensors.torch`, for SafeTensors and Burnpack (paths that end in `.bpk`). Imports torch.

The functions save tensors by value: transposed, expanded, conjugated and negated views are gathered block by block while the
writer writes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

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
from ._state.loading import load_state
from ._state.saving import save_state
from ._tensors import aliases as _aliases
from ._tensors import batches as _batches
from ._tensors import torch_memory as _torch_memory
from ._tensors import torch_tensors as _tensors
from ._torch_library import loading as _library

__all__ = [
    "DeferredTensor",
    "library_path",
    "load",
    "load_file",
    "load_model",
    "load_state",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "save_state",
    "storage_ptr",
    "storage_size",
]


def save_file(
    tensors: Mapping[str, torch.Tensor | DeferredTensor],
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
    """Saves tensors. The file appears under its name only when it is complete. Tensors that share memory are refused.

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
    batch = _checked(tensors)
    _save.save_file(
        tensors,
        filename,
        metadata,
        _tensors.add_tensor,
        batch,
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
    tensors: Mapping[str, torch.Tensor | DeferredTensor],
    metadata: Mapping[str, str] | None = None,
    *,
    checksums: bool = False,
) -> bytes:
    """Returns the bytes of a SafeTensors file."""
    writer = _save.collect(tensors, metadata, _tensors.add_tensor, "safetensors", _checked(tensors))
    return writer.write_bytes("safetensors", checksums=checksums)


def load_file(
    filename: str | os.PathLike[str],
    device: str | int | torch.device | None = "cpu",
    *,
    backend: Backend = "mmap",
    verify: Verify = "off",
    progress: Progress | bool | None = None,
) -> dict[str, torch.Tensor]:
    """Loads all tensors of a file.

    device: where the tensors go; None is "cpu".
    backend: "mmap" returns copy-on-write views of the mapped file: changing them does not change the file. "pread" reads
        the tensors in parallel, into memory of their own.
    verify: compare the checksums of the file, as `weightstore.open` does.
    """
    loaded = _load.load_file(filename, "torch", backend=backend, verify=verify, progress=progress)
    target = torch.device("cpu" if device is None else device)
    if target.type == "cpu":
        return loaded
    return {name: tensor.to(target) for name, tensor in loaded.items()}


def load(data: bytes, *, verify: Verify = "off") -> dict[str, torch.Tensor]:
    """Loads all tensors from the bytes of a file, into memory of their own."""
    with open(data, verify=verify) as file:
        return file.load(framework="torch")


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True,
    **options: Any,
) -> None:
    """Saves the state of a model. Of tensors that share memory only one is saved; the metadata maps the other names to it.

    force_contiguous: False refuses tensors that are not row-major. True saves them, too: files are always row-major.
    options: as for save_file().
    """
    state = model.state_dict()
    strided = [] if force_contiguous else [name for name, tensor in state.items() if not tensor.is_contiguous()]
    if strided:
        raise ValueError(
            f"not contiguous: {', '.join(strided)}. Make them contiguous, or use save_model(..., force_contiguous=True)"
        )
    described = None if metadata is None else dict(metadata)
    for kept, dropped in _aliases.names_to_drop(state).items():
        described = {} if described is None else described
        for name in dropped:
            described.setdefault(name, kept)
            del state[name]
    save_file(state, filename, described, **options)


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int | torch.device | None = "cpu",
    *,
    backend: Backend = "mmap",
    verify: Verify = "off",
) -> tuple[set[str], list[str]]:
    """Loads a file into a model. Returns the names that the file lacks and those that the model lacks; with `strict` both are
    errors. A name that shares memory with a name in the file counts as loaded. backend, verify: as for load_file()."""
    loaded = load_file(filename, device, backend=backend, verify=verify)
    dropped = _aliases.names_to_drop(model.state_dict(), loaded.keys())
    result = model.load_state_dict(loaded, strict=False)
    missing, unexpected = set(result.missing_keys), list(result.unexpected_keys)
    for names in dropped.values():
        for name in names:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for title, found in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if found:
                lines.append(f"    {title} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in found))
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def storage_ptr(tensor: torch.Tensor) -> int:
    """The address of the memory in which a tensor lies; 0 if it has none, as on the meta device. Tensors with the same device,
    `storage_ptr` and `storage_size` are views of the same memory."""
    return _torch_memory.storage_pointer(tensor)


def storage_size(tensor: torch.Tensor) -> int:
    """The bytes of the memory in which a tensor lies, which can be more than the tensor's own."""
    return tensor.untyped_storage().nbytes()


def library_path() -> Path:
    """The path of the library behind `torch.classes.store`, for C++ programs. ImportError if there is none for this torch."""
    return _library.library_path()


def _checked(tensors: Mapping[str, Any]) -> _core.TensorBatch:
    """The tensors as a batch. Raises if one is not a tensor, or if tensors share memory."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    names, values = list(tensors), list(tensors.values())
    batch = _batches.look_at(values, "torch")
    others = [(names[number], values[number]) for number in batch.others()]
    for name, value in others:
        if not isinstance(value, (torch.Tensor, DeferredTensor)):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(value)}")
    # The batch does not know the storages: tensors that lie between one another, or in several storages over the same
    # memory, need a closer look.
    if batch.has_overlap() or any(isinstance(value, torch.Tensor) for _, value in others):
        _aliases.check_not_shared({name: value for name, value in tensors.items() if isinstance(value, torch.Tensor)})
    return batch


_library.load_if_there()
